//! Read-only memory of an object, as Python sees it.

use std::ffi::c_int;

use hoplo_client::Content;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

/// A piece of an object; keeps the object where it is while anything reads it.
#[pyclass(frozen, module = "hoplo._core", name = "_StoredBytes", freelist = 64)]
pub(crate) struct StoredBytes {
    _content: Content,
    data: *const u8,
    len: usize,
}

// SAFETY: the memory is immutable and kept by the content, which is Send and Sync itself.
unsafe impl Send for StoredBytes {}
// SAFETY: as above.
unsafe impl Sync for StoredBytes {}

impl StoredBytes {
    /// `piece` lies in the bytes of `content`.
    pub(super) fn new(content: Content, piece: &[u8]) -> StoredBytes {
        StoredBytes { data: piece.as_ptr(), len: piece.len(), _content: content }
    }
}

#[pymethods]
impl StoredBytes {
    fn __len__(&self) -> usize {
        self.len
    }

    /// SAFETY: `view` comes from the interpreter's buffer protocol.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let this = slf.get();
        let (data, len) = (this.data, this.len);
        // SAFETY: `view` is valid; the memory lives as long as `slf`, which the view keeps.
        unsafe { fill(view, slf.as_any(), data.cast_mut(), len, true, flags) }
    }
}

/// # Safety
/// `view` is the interpreter's; `data` is `len` bytes that live as long as `owner`.
pub(super) unsafe fn fill(
    view: *mut ffi::Py_buffer,
    owner: &Bound<'_, PyAny>,
    data: *mut u8,
    len: usize,
    read_only: bool,
    flags: c_int,
) -> PyResult<()> {
    if view.is_null() {
        return Err(PyBufferError::new_err("no view to fill"));
    }
    // SAFETY: promised by the caller.
    let status = unsafe {
        ffi::PyBuffer_FillInfo(
            view,
            owner.as_ptr(),
            data.cast(),
            len as ffi::Py_ssize_t,
            c_int::from(read_only),
            flags,
        )
    };
    if status == 0 { Ok(()) } else { Err(PyErr::fetch(owner.py())) }
}
