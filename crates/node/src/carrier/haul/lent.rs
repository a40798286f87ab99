//! An object that is sent stays where it lies, pinned, as long as any piece of it may be sent again (HAUL-2).

use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use hoplo_net::Lent;
use hoplo_shm::{Arena, FileView, OutOfBounds, PinEntry};

/// As long as this lives, the object is pinned.
pub(super) struct Pinned {
    lies: Lies,
    /// Absent when it is given back.
    pin: Option<PinEntry>,
    unpinned: Unpinned,
}

pub(super) enum Lies {
    Arena {
        arena: Arc<Arena>,
        offset: u64,
    },
    File(FileView),
    /// It was given up, before its pin.
    Nowhere,
}

/// Pins to be given back: links drop pieces, and the table is the hauler's.
#[derive(Clone, Default)]
pub(super) struct Unpinned(Arc<Mutex<Vec<PinEntry>>>);

/// Bytes that are sent from where they lie.
struct Part {
    of: Arc<Pinned>,
    offset: u64,
    len: usize,
}

/// Shorter pieces are copied: so what a window holds of many short objects takes few pins.
const LENT_BYTES_MIN: usize = 64 * 1024;

impl Lies {
    pub(super) fn in_arena(arena: &Arc<Arena>, offset: u64, len: u64) -> Result<Self, OutOfBounds> {
        arena.read(offset, len)?;
        Ok(Self::Arena { arena: Arc::clone(arena), offset })
    }
}

impl Pinned {
    pub(super) fn new(lies: Lies, pin: PinEntry, unpinned: &Unpinned) -> Arc<Self> {
        Arc::new(Self { lies, pin: Some(pin), unpinned: unpinned.clone() })
    }

    /// Bytes of the object, for a link.
    pub(super) fn lend(self: &Arc<Self>, offset: u64, len: usize) -> Lent {
        if len < LENT_BYTES_MIN {
            return Arc::new(self.bytes(offset, len).to_vec());
        }
        Arc::new(Part { of: Arc::clone(self), offset, len })
    }

    pub(super) fn bytes(&self, from: u64, len: usize) -> &[u8] {
        match &self.lies {
            Lies::Arena { arena, offset } => {
                arena.read(offset + from, len as u64).expect("all of it lies in the arena")
            }
            Lies::File(view) => &view[from as usize..from as usize + len],
            Lies::Nowhere => unreachable!("nobody reads what is dropped"),
        }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.lies = Lies::Nowhere;
        let mut unpinned = self.unpinned.0.lock().unwrap_or_else(PoisonError::into_inner);
        unpinned.extend(self.pin.take());
    }
}

impl Unpinned {
    pub(super) fn take(&self) -> Vec<PinEntry> {
        mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        self.of.bytes(self.offset, self.len)
    }
}
