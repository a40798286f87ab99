//! Memory in the store that Python fills itself: what is behind `hoplo.empty`.
//!
//! ```text
//! allocation:  | room for the description (4 KiB) | the user's bytes |
//! ```
//!
//! `put` of an array that lies wholly in the user's bytes writes its description, or its pickle, into
//! the room in front and seals the allocation: nothing is copied. So does returning it from a task, if
//! nobody else has it.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hoplo_base::ObjectId;
use hoplo_client::{Allocation, Content, FileRoom};
use parking_lot::Mutex;
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::array::Array;
use super::buffer::fill;
use super::contained::Contained;
use super::pickled::{self, Pickled};
use crate::errors;
use crate::python;
use crate::reduces::Folded;
use crate::session::{self, Session};

/// The user's bytes start here, a page boundary of the allocation's own.
const ROOM_BYTES: usize = 4096;

/// Open buffers by address, for `put` to recognise.
static OPEN: Mutex<BTreeMap<usize, Arc<Memory>>> = Mutex::new(BTreeMap::new());
/// How many there are, and other values that lie in the store and are no objects; mostly none, and then nobody looks.
static OPEN_COUNT: AtomicUsize = AtomicUsize::new(0);

/// While it lives results are looked at: one may be a value that lies in the store already.
pub(crate) struct LookedAt(());

impl LookedAt {
    pub(crate) fn begin() -> Self {
        OPEN_COUNT.fetch_add(1, Ordering::Relaxed);
        Self(())
    }
}

impl Drop for LookedAt {
    fn drop(&mut self) {
        OPEN_COUNT.fetch_sub(1, Ordering::Relaxed);
    }
}

struct Memory {
    start: usize,
    len: usize,
    state: Mutex<State>,
    /// Of what does not lie in the arena.
    _mapping: Option<Arc<FileRoom>>,
}

enum State {
    Open(Allocation),
    /// Keeps the memory, now an object's.
    Sealed {
        _content: Option<Content>,
    },
}

// SAFETY: an allocation is a range of the store that only its owner writes.
unsafe impl Send for Memory {}
// SAFETY: as above; the state is behind its lock.
unsafe impl Sync for Memory {}

/// Writable memory in the object store, until `put` seals it.
#[pyclass(frozen, module = "hoplo._core")]
pub(crate) struct StoreBuffer {
    memory: Arc<Memory>,
    /// Outlives the allocation.
    _session: Arc<Session>,
}

/// Memory in the store for `hoplo.empty`.
#[pyfunction]
pub(crate) fn allocate(py: Python<'_>, nbytes: isize) -> PyResult<StoreBuffer> {
    let len = usize::try_from(nbytes)
        .map_err(|_| PyValueError::new_err(format!("a size must be 0 or more, not {nbytes}")))?;
    let session = session::current(py)?;
    let whole = len + ROOM_BYTES;
    let allocation = match session.client.allocate_warm(whole) {
        Some(allocation) => allocation,
        None => python::interruptible(py, |gives_up| session.client.allocate(whole, gives_up))?
            .map_err(|error| errors::store_error(py, &error))?,
    };
    let start = allocation.as_mut_ptr() as usize + ROOM_BYTES;
    let _mapping = allocation.mapping();
    let state = Mutex::new(State::Open(allocation));
    let memory = Arc::new(Memory { start, len, state, _mapping });
    OPEN.lock().insert(start, Arc::clone(&memory));
    OPEN_COUNT.fetch_add(1, Ordering::Relaxed);
    Ok(StoreBuffer { memory, _session: session })
}

#[pymethods]
impl StoreBuffer {
    #[getter]
    fn nbytes(&self) -> usize {
        self.memory.len
    }

    fn __len__(&self) -> usize {
        self.memory.len
    }

    /// SAFETY: `view` comes from the interpreter's buffer protocol.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let memory = &slf.get().memory;
        let sealed = matches!(*memory.state.lock(), State::Sealed { .. });
        let (start, len) = (memory.start as *mut u8, memory.len);
        // SAFETY: the memory lives as long as `slf`, which the view keeps.
        unsafe { fill(view, slf.as_any(), start, len, sealed, flags) }
    }
}

impl Drop for StoreBuffer {
    fn drop(&mut self) {
        let open = matches!(*self.memory.state.lock(), State::Open(_));
        if open {
            close(&self.memory); // else it was, and the address may be another's by now
        }
    }
}

fn close(memory: &Memory) {
    if OPEN.lock().remove(&memory.start).is_some() {
        OPEN_COUNT.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Puts a value whose buffers all lie in one open store buffer, without a copy; `None` for any
/// other value.
pub(crate) fn put_in_place(
    session: &Session,
    value: &Bound<'_, PyAny>,
) -> PyResult<Option<ObjectId>> {
    // SAFETY: attached, `value` is alive.
    if OPEN_COUNT.load(Ordering::Relaxed) == 0
        || unsafe { ffi::PyObject_CheckBuffer(value.as_ptr()) } == 0
        || value.is_exact_instance_of::<PyBytes>()
    {
        return Ok(None);
    }
    let Some(found) = in_place(value) else { return Ok(None) };
    let Some(allocation) = found.take() else { return Ok(None) };
    let object = session.client.put_allocated(allocation, found.contains.ids());
    *found.memory.state.lock() = State::Sealed { _content: session.client.read(object) };
    forbid_writing(value);
    Ok(Some(object))
}

/// The allocation, ready to be sealed, of a result that lies in an open store buffer that nobody else
/// reaches. `references`: how many the caller has of `value`, which it drops soon.
pub(super) fn take_result(value: &Bound<'_, PyAny>, references: isize) -> Option<Allocation> {
    if OPEN_COUNT.load(Ordering::Relaxed) == 0 {
        return None;
    }
    if let Ok(folded) = value.cast_exact::<Folded>() {
        return folded.get().take();
    }
    let base = Array::of_value(value)?.base_if_sole(references)?;
    if base.is_null() {
        return None; // an array of its own
    }
    // SAFETY: attached; the base is alive with its array.
    let base = unsafe { Bound::from_borrowed_ptr(value.py(), base) };
    // SAFETY: as above; one reference is the array's, one is `base`.
    let sole = unsafe { ffi::Py_REFCNT(base.as_ptr()) } == 2;
    if !sole || !base.is_exact_instance_of::<StoreBuffer>() {
        return None;
    }
    in_place(value)?.take()
}

/// A value whose data lies in `memory` already.
struct InPlace {
    memory: Arc<Memory>,
    /// What goes into the room in front.
    front: Vec<u8>,
    contains: Contained,
}

fn in_place(value: &Bound<'_, PyAny>) -> Option<InPlace> {
    if let Some(array) = Array::of_value(value) {
        let memory = open_at(array.data() as usize)?;
        let (at, _) = memory.place(array.data(), array.nbytes)?;
        let front = array.front(at).filter(|front| front.len() <= ROOM_BYTES)?;
        return Some(InPlace { memory, front, contains: Contained::default() });
    }
    let mut contains = Contained::default();
    // On an error the usual way meets the same and names it.
    let Pickled { pickle, buffers } = pickled::dump(value, &mut contains).ok()?;
    let memory = open_at(buffers.first()?.data() as usize)?;
    let places: Vec<_> = buffers
        .iter()
        .map(|buffer| memory.place(buffer.data(), buffer.len()))
        .collect::<Option<_>>()?;
    let mut front = pickled::header(pickle.as_bytes().len(), &places);
    front.extend_from_slice(pickle.as_bytes());
    (front.len() <= ROOM_BYTES).then_some(InPlace { memory, front, contains })
}

impl InPlace {
    /// The allocation with the front written, unless it was sealed before.
    fn take(&self) -> Option<Allocation> {
        let mut state = self.memory.state.lock();
        let allocation = match std::mem::replace(&mut *state, State::Sealed { _content: None }) {
            State::Open(allocation) => allocation,
            sealed @ State::Sealed { .. } => {
                *state = sealed;
                return None;
            }
        };
        drop(state);
        close(&self.memory);
        // SAFETY: the room in front is at least as long as `front`, and only we write it.
        unsafe {
            let front = &self.front;
            allocation.as_mut_ptr().copy_from_nonoverlapping(front.as_ptr(), front.len());
        }
        Some(allocation)
    }
}

impl Memory {
    /// Offset in the allocation, and length, of a piece that lies in the user's bytes.
    fn place(&self, data: *const u8, len: usize) -> Option<(usize, usize)> {
        let at = (data as usize).checked_sub(self.start)?;
        (at + len <= self.len).then_some((ROOM_BYTES + at, len))
    }
}

fn open_at(address: usize) -> Option<Arc<Memory>> {
    let open = OPEN.lock();
    let (_, memory) = open.range(..=address).next_back()?;
    (address < memory.start + memory.len.max(1)).then(|| Arc::clone(memory))
}

/// From now on the array is an object's: writing to it would change what others read.
fn forbid_writing(value: &Bound<'_, PyAny>) {
    let py = value.py();
    if let Ok(flags) = value.getattr(intern!(py, "flags")) {
        // What is no numpy array may refuse.
        let _ = flags.setattr(intern!(py, "writeable"), false);
    }
}
