//! A value that is measured and not yet written: pieces of memory and where each belongs.

use pyo3::exceptions::PyMemoryError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Copies of this size and more run detached from the interpreter.
const DETACHED_BYTES_MIN: usize = 1 << 20;

/// Data of a str, bytes or array that belongs at `at` in the encoding, which leaves it out.
pub(super) struct Segment {
    pub(super) at: usize,
    pub(super) data: *const u8,
    pub(super) len: usize,
    pub(super) owner: Py<PyAny>,
}

pub(crate) struct Large {
    /// Encoded parts; pieces may point into it.
    _head: Vec<u8>,
    pieces: Vec<Piece>,
    /// Keeps what pieces point to.
    _owners: Vec<Owner>,
    len: usize,
}

struct Piece {
    /// From the start of the value.
    offset: usize,
    data: *const u8,
    len: usize,
}

pub(super) enum Owner {
    Object { _object: Py<PyAny> },
    View { _view: BufferView },
}

/// A contiguous buffer of a Python object, held open.
pub(super) struct BufferView(Box<ffi::Py_buffer>);

impl Large {
    /// A whole encoding.
    pub(crate) fn of_bytes(bytes: Vec<u8>) -> Large {
        Self::of_plain(bytes, Vec::new())
    }

    /// A plain encoding and the data that it leaves out.
    pub(super) fn of_plain(head: Vec<u8>, segments: Vec<Segment>) -> Large {
        let mut pieces = Vec::with_capacity(2 * segments.len() + 1);
        let mut owners = Vec::with_capacity(segments.len());
        let (mut taken, mut offset) = (0, 0);
        let mut add = |data: *const u8, len: usize| {
            pieces.push(Piece { offset, data, len });
            offset += len;
        };
        for segment in segments {
            add(head[taken..].as_ptr(), segment.at - taken);
            add(segment.data, segment.len);
            taken = segment.at;
            owners.push(Owner::Object { _object: segment.owner });
        }
        add(head[taken..].as_ptr(), head.len() - taken);
        Large { _head: head, pieces, _owners: owners, len: offset }
    }

    /// `head` at the start, then each (offset, data).
    pub(super) fn of_parts(
        head: Vec<u8>,
        parts: impl IntoIterator<Item = (usize, *const u8, usize)>,
        owners: Vec<Owner>,
        len: usize,
    ) -> Large {
        let mut pieces = vec![Piece { offset: 0, data: head.as_ptr(), len: head.len() }];
        pieces.extend(parts.into_iter().map(|(offset, data, len)| Piece { offset, data, len }));
        Large { _head: head, pieces, _owners: owners, len }
    }

    /// Bytes of the whole value.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The piece that is so many bytes from `data` on is not written. Where it belongs; or there is none.
    pub(crate) fn leave_out(&mut self, data: *const u8, len: usize) -> Option<usize> {
        let at = self.pieces.iter().position(|it| (it.data, it.len) == (data, len))?;
        Some(self.pieces.remove(at).offset)
    }

    /// For a value that turned out small.
    pub(super) fn append_to(&self, out: &mut Vec<u8>) {
        let base = out.len();
        out.resize(base + self.len, 0);
        // SAFETY: `out` has `len` bytes from `base`.
        unsafe { self.copy(out.as_mut_ptr().add(base)) };
    }

    /// Writes the value; gaps between pieces are left as they are.
    ///
    /// # Safety
    /// `to` is good for `len` bytes that nobody else uses.
    pub(crate) unsafe fn write(&self, py: Python<'_>, to: *mut u8) {
        if self.len < DETACHED_BYTES_MIN {
            // SAFETY: promised by the caller.
            return unsafe { self.copy(to) };
        }
        struct Job<'a>(&'a Large, *mut u8);
        // SAFETY: the job only reads memory that `_head` and `_owners` keep, and writes memory that
        // the caller promises to be ours. Owners are not touched while detached.
        unsafe impl Send for Job<'_> {}
        impl Job<'_> {
            fn run(self) {
                // SAFETY: promised by the caller of `write`.
                unsafe { self.0.copy(self.1) }
            }
        }
        let job = Job(self, to);
        py.detach(move || job.run());
    }

    unsafe fn copy(&self, to: *mut u8) {
        for piece in &self.pieces {
            debug_assert!(piece.offset + piece.len <= self.len);
            // SAFETY: pieces lie inside the value; sources are kept alive; they do not overlap,
            // since the target is new memory.
            unsafe { hoplo_shm::copy(piece.data, to.add(piece.offset), piece.len) };
        }
    }
}

impl BufferView {
    pub(super) fn of(object: &Bound<'_, PyAny>) -> PyResult<BufferView> {
        let mut view = Box::new(ffi::Py_buffer::new());
        // SAFETY: attached; `view` is a zeroed Py_buffer that stays where it is until released.
        let status = unsafe {
            ffi::PyObject_GetBuffer(object.as_ptr(), &mut *view, ffi::PyBUF_ANY_CONTIGUOUS)
        };
        if status != 0 {
            return Err(PyErr::fetch(object.py()));
        }
        Ok(BufferView(view))
    }

    pub(super) fn data(&self) -> *const u8 {
        self.0.buf.cast()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len as usize
    }
}

impl Drop for BufferView {
    fn drop(&mut self) {
        // SAFETY: filled by PyObject_GetBuffer; views live and die attached, on the stack of `encode`.
        unsafe { ffi::PyBuffer_Release(&mut *self.0) };
    }
}

/// A bytes object; large ones are filled detached.
pub(super) fn new_bytes<'py>(py: Python<'py>, data: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    if data.len() < DETACHED_BYTES_MIN {
        return Ok(PyBytes::new(py, data));
    }
    // SAFETY: attached; the new object's bytes are written before anyone else can see it.
    unsafe {
        let object = ffi::PyBytes_FromStringAndSize(std::ptr::null(), data.len() as isize);
        let bytes = Bound::from_owned_ptr_or_opt(py, object)
            .ok_or_else(|| PyMemoryError::new_err("no memory for a bytes object"))?
            .cast_into_unchecked::<PyBytes>();
        let to = ffi::PyBytes_AsString(bytes.as_ptr()) as usize;
        py.detach(move || {
            // SAFETY: `to` are `data.len()` fresh bytes, kept by `bytes` of the outer frame.
            data.as_ptr().copy_to_nonoverlapping(to as *mut u8, data.len());
        });
        Ok(bytes)
    }
}
