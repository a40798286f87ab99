//! Read-only memory of an object, as Python sees it.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::Arc;

use hoplo_base::limits::OBJECT_ALIGN;
use hoplo_client::Pinned;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

/// A piece of an object; keeps the object where it is while anything reads it.
#[pyclass(frozen, module = "hoplo._core", name = "_StoredBytes", freelist = 64)]
pub(crate) struct StoredBytes {
    _keeper: Keeper,
    data: *const u8,
    len: usize,
}

enum Keeper {
    Stored { _stored: Arc<Pinned> },
    Copy { _copy: AlignedCopy },
}

/// A copy of bytes that lie outside of the store, at a multiple of `OBJECT_ALIGN`: arrays of numpy and what computes with them are faster
/// there, and some libraries take no others.
#[derive(Clone)]
pub(super) struct AlignedCopy {
    memory: Arc<[MaybeUninit<u8>]>,
    start: usize,
    len: usize,
}

// SAFETY: the memory is immutable and kept by the keeper, which is Send and Sync itself.
unsafe impl Send for StoredBytes {}
// SAFETY: as above.
unsafe impl Sync for StoredBytes {}

impl StoredBytes {
    /// `piece` lies in the bytes of `stored`.
    pub(super) fn new(stored: Arc<Pinned>, piece: &[u8]) -> StoredBytes {
        let _keeper = Keeper::Stored { _stored: stored };
        StoredBytes { data: piece.as_ptr(), len: piece.len(), _keeper }
    }

    /// `piece` lies in `copy`.
    pub(super) fn in_copy(copy: AlignedCopy, piece: &[u8]) -> StoredBytes {
        StoredBytes {
            data: piece.as_ptr(),
            len: piece.len(),
            _keeper: Keeper::Copy { _copy: copy },
        }
    }

    pub(super) fn data(&self) -> *const u8 {
        self.data
    }
}

impl AlignedCopy {
    pub(super) fn of(bytes: &[u8]) -> AlignedCopy {
        // Not by an aligned allocation: the allocator takes as much for one, and longer.
        let mut memory = Arc::<[u8]>::new_uninit_slice(bytes.len() + OBJECT_ALIGN as usize - 1);
        let start = memory.as_ptr().align_offset(OBJECT_ALIGN as usize);
        let room = Arc::get_mut(&mut memory).expect("nobody else has it yet");
        let room = room[start..start + bytes.len()].as_mut_ptr().cast::<u8>();
        // SAFETY: there is room for so many bytes, and they lie elsewhere.
        unsafe { room.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        AlignedCopy { memory, start, len: bytes.len() }
    }
}

impl std::ops::Deref for AlignedCopy {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let bytes = &self.memory[self.start..self.start + self.len];
        // SAFETY: `of` has written all of them.
        unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast::<u8>(), bytes.len()) }
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
