//! Large numpy arrays of tasks lie in the store from the start, so that a result need not be copied.
//!
//! In a worker that runs tasks numpy takes the memory of arrays from here (NEP 49), in the context
//! of the main thread:
//!
//! ```text
//!   numpy's malloc --room in this process's extents--> scratch --the only reference returned--> sealed
//!         |                                              |
//!         +--small, zeroed, or no room--> numpy's own    +--freed, resized--> room again, still warm
//! ```
//!
//! A result is sealed where it lies if nobody else can reach it: the array, and what it is a view
//! of, have no reference but the result's own, and no weak one. Any other result is copied as ever.
//!
//! # Invariants
//! - SCR-1: scratch is taken only from room that this process has: nothing is asked of the daemon.
//! - SCR-2: of one process at most a quarter of the store, divided by the node's CPUs, is scratch, and no more
//!   is taken for a while after the daemon wanted room back.
//! - SCR-3: memory that was sealed is never given back from here.
//! - SCR-4: after a fork the child's arrays are its own: its scratch is moved to private memory before the
//!   parent goes on. The child takes none and gives none back.
//! - SCR-5: nobody writes to scratch of a process that has left: it is moved to private memory before.
//!
//! The lock is taken attached to the interpreter only, so a fork never finds it taken.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use hoplo_base::limits;
use hoplo_base::resources::CPU;
use hoplo_client::Allocation;
use parking_lot::Mutex;
use pyo3::prelude::*;

use super::array::Array;
use super::numpy::{Allocator, Handler, Numpy};
use crate::session::Session;

/// Smaller arrays are numpy's own: to copy them costs little.
const BYTES_MIN: usize = 1 << 20;

/// In front of the data, for the description of the array.
const ROOM_BYTES: usize = 128;

static SCRATCH: Mutex<Option<Scratch>> = Mutex::new(None);

/// Where the arena is mapped for writing: an address in it is none of numpy's own.
static ARENA: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

static INSTALLED: AtomicBool = AtomicBool::new(false);

struct Scratch {
    session: Arc<Session>,
    /// By the address of the data.
    pieces: BTreeMap<usize, Piece>,
    bytes: usize,
    bytes_max: usize,
}

struct Piece {
    /// `None` in a forked child: its store is the parent's.
    allocation: Option<Allocation>,
    len: usize,
}

/// From now on large arrays that tasks make in this thread lie in the store. Does nothing before
/// numpy was met.
pub(crate) fn begin(py: Python<'_>, session: &Arc<Session>) {
    if INSTALLED.load(Ordering::Relaxed) {
        return;
    }
    let Some(numpy) = Numpy::loaded(py) else { return };
    INSTALLED.store(true, Ordering::Relaxed);
    let arena = session.client.arena_addresses();
    ARENA[0].store(arena.start, Ordering::Relaxed);
    ARENA[1].store(arena.end, Ordering::Relaxed);
    let welcome = session.client.welcome();
    let cpus = welcome.resources.units(CPU).max(1.0);
    let store = welcome.arena_bytes / limits::ARENA_PER_STORE;
    let bytes_max = (store as f64 / limits::SCRATCH_SHARE / cpus) as usize;
    let scratch =
        Scratch { session: Arc::clone(session), pieces: BTreeMap::new(), bytes: 0, bytes_max };
    *SCRATCH.lock() = Some(scratch);
    if !numpy.set_handler(py, &HANDLER) {
        SCRATCH.lock().take(); // results are copied
    }
}

/// No more of it in this process: what an actor keeps would take the store's room for as long as it lives.
pub(crate) fn end() {
    if let Some(scratch) = &mut *SCRATCH.lock() {
        scratch.bytes_max = 0;
    }
    INSTALLED.store(true, Ordering::Relaxed);
}

/// The allocation, ready to be sealed, that a result lies in already. `references`: how many the
/// caller has of `value`. The caller drops them soon and does nothing else with it.
pub(super) fn take(value: &Bound<'_, PyAny>, references: isize) -> Option<Allocation> {
    if !INSTALLED.load(Ordering::Relaxed) {
        return None;
    }
    let array = Array::of_value(value)?;
    let owner = array.sole_owner(references)?;
    let start = owner.address();
    let mut scratch = SCRATCH.lock();
    let scratch = scratch.as_mut()?;
    let piece = scratch.pieces.get(&start)?;
    let at = (array.data() as usize).checked_sub(start)?;
    // A small part of it would keep all of it.
    if array.nbytes < piece.len / 4 * 3 || at + array.nbytes > piece.len {
        return None;
    }
    let front = array.front(ROOM_BYTES + at).filter(|front| front.len() <= ROOM_BYTES)?;
    let allocation = scratch.pieces.get_mut(&start)?.allocation.take()?;
    scratch.remove(start);
    // SAFETY: attached. The memory is of our handler, and `value` is not read any more. The room in front
    // is at least as long as `front`, and only we write it.
    unsafe {
        owner.disown(); // SCR-3
        allocation.as_mut_ptr().copy_from_nonoverlapping(front.as_ptr(), front.len());
    }
    Some(allocation)
}

/// Before the process leaves the node, which gives its room to others: what exit handlers and threads still
/// write to is private from here on.
pub(crate) fn make_private() {
    if let Some(scratch) = &mut *SCRATCH.lock() {
        scratch.make_private();
    }
}

impl Scratch {
    fn allocate(&mut self, len: usize) -> Option<usize> {
        if self.bytes.checked_add(len)? > self.bytes_max {
            return None;
        }
        let allocation = self.session.client.allocate_scratch(ROOM_BYTES + len)?;
        let start = allocation.as_mut_ptr() as usize + ROOM_BYTES;
        self.pieces.insert(start, Piece { allocation: Some(allocation), len });
        self.bytes += len;
        Some(start)
    }

    /// Ends it: arrays that are left stay where they are, but no other process sees them.
    fn make_private(&mut self) {
        self.bytes_max = 0;
        for (start, piece) in &mut self.pieces {
            let Some(allocation) = piece.allocation.take() else { continue };
            if let Err(error) = move_to_private(*start, piece.len) {
                eprintln!("hoplo: no memory to keep the arrays of a process that leaves: {error}");
                std::process::abort(); // it would write to what is others' by then
            }
            std::mem::forget(allocation); // its range is none of the store's here any more
        }
    }

    fn remove(&mut self, start: usize) -> Option<Piece> {
        let piece = self.pieces.remove(&start)?;
        self.bytes -= piece.len;
        Some(piece)
    }
}

// ---- what numpy calls ----

static HANDLER: Handler = Handler::new(
    c"hoplo",
    Allocator { context: std::ptr::null_mut(), malloc, calloc, realloc, free },
);

fn is_scratch(address: usize) -> bool {
    (ARENA[0].load(Ordering::Relaxed)..ARENA[1].load(Ordering::Relaxed)).contains(&address)
}

/// Numpy's own, which was there before.
fn own() -> &'static Allocator {
    Numpy::default_allocator()
}

unsafe extern "C" fn malloc(_context: *mut c_void, len: usize) -> *mut c_void {
    if len >= BYTES_MIN
        && let Some(start) = SCRATCH.lock().as_mut().and_then(|scratch| scratch.allocate(len))
    {
        return start as *mut c_void;
    }
    // SAFETY: numpy's own, with its own context.
    unsafe { (own().malloc)(own().context, len) }
}

/// Zeroed memory costs nothing until it is touched, elsewhere.
unsafe extern "C" fn calloc(_context: *mut c_void, count: usize, len: usize) -> *mut c_void {
    // SAFETY: as above.
    unsafe { (own().calloc)(own().context, count, len) }
}

unsafe extern "C" fn realloc(
    context: *mut c_void,
    data: *mut c_void,
    new_len: usize,
) -> *mut c_void {
    let start = data as usize;
    // SAFETY: numpy gives back what it got here; the new memory is as long as the copied part.
    unsafe {
        if !is_scratch(start) {
            return (own().realloc)(own().context, data, new_len);
        }
        let len = SCRATCH.lock().as_ref().and_then(|it| Some(it.pieces.get(&start)?.len));
        let Some(len) = len else { return std::ptr::null_mut() };
        let moved = malloc(context, new_len.max(1));
        if !moved.is_null() {
            data.cast::<u8>().copy_to_nonoverlapping(moved.cast(), len.min(new_len));
            free(context, data, len);
        }
        moved
    }
}

unsafe extern "C" fn free(_context: *mut c_void, data: *mut c_void, len: usize) {
    let start = data as usize;
    if !is_scratch(start) {
        // SAFETY: it came from numpy's own.
        return unsafe { (own().free)(own().context, data, len) };
    }
    // The room is given back outside of the lock.
    let piece = SCRATCH.lock().as_mut().and_then(|scratch| scratch.remove(start));
    drop(piece);
}

// ---- forks ----

/// Ends of the pipe on which the parent waits until its child has moved its scratch.
static MOVED: Mutex<Option<(OwnedFd, OwnedFd)>> = Mutex::new(None);

/// Before every `os.fork`.
#[pyfunction]
pub(crate) fn _before_fork() -> PyResult<()> {
    let any = SCRATCH.lock().as_ref().is_some_and(|scratch| !scratch.pieces.is_empty());
    if any {
        let pipe = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC);
        *MOVED.lock() = Some(pipe.map_err(std::io::Error::from)?);
    }
    Ok(())
}

/// In the parent, which does not write to its arrays before the child has its own.
#[pyfunction]
pub(crate) fn _after_fork_in_parent() {
    let Some((reading, writing)) = MOVED.lock().take() else { return };
    drop(writing); // the child's is the only one left; without a child there is none
    let mut poll = [rustix::event::PollFd::new(&reading, rustix::event::PollFlags::IN)];
    let seconds = limits::SCRATCH_MOVE_PATIENCE.as_secs().cast_signed();
    let patience = rustix::event::Timespec { tv_sec: seconds, tv_nsec: 0 };
    // Interrupted by a signal: again, with all of the patience.
    while rustix::event::poll(&mut poll, Some(&patience)) == Err(rustix::io::Errno::INTR) {}
}

/// In the child of every fork.
pub(crate) fn after_fork_in_child() {
    if let Some(scratch) = &mut *SCRATCH.lock() {
        scratch.make_private();
    }
    MOVED.lock().take();
}

/// Replaces the pages under a piece by private ones of the same content, where they are.
fn move_to_private(start: usize, len: usize) -> rustix::io::Result<()> {
    use rustix::mm::{MapFlags, MremapFlags, ProtFlags, mmap_anonymous, mremap_fixed};
    const PAGE: usize = 4096;
    let from = start / PAGE * PAGE;
    let len = (start + len).next_multiple_of(PAGE) - from;
    // SAFETY: the pages are mapped, in this process's writing view of the arena, where nothing but scratch
    // is written from now on. (A thread that writes to its array right now may lose that.)
    unsafe {
        let to = mmap_anonymous(
            std::ptr::null_mut(),
            len,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        )?;
        (from as *const u8).copy_to_nonoverlapping(to.cast(), len);
        mremap_fixed(to, len, len, MremapFlags::MAYMOVE, from as *mut c_void)?;
    }
    Ok(())
}
