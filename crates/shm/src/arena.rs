//! Arena: the bytes of large objects, in one sparse memfd that the daemon makes.
//!
//! Each process maps it twice: read-only for readers, so that a stray write through a zero-copy
//! array faults instead of changing an object, and read-write for those who fill an extent. The
//! arena knows nothing of objects: who may read or write which range, and when, is decided
//! outside, by extents ([`RangeAllocator`](crate::RangeAllocator)) and pins
//! ([`PinTable`](crate::PinTable)).
//!
//! # Invariants
//! - ARENA-1: every range is checked against the capacity; nothing outside is ever touched.
//! - ARENA-2: a range is written only by the process whose extent it lies in, before its object
//!   is sealed; within that process one [`Claim`] at a time covers a byte (checked here).
//! - ARENA-3: a range is read only by who holds a pin of the sealed object in it, or who wrote it.
//!   Nobody writes or punches it meanwhile.
//!
//! ARENA-2 and ARENA-3 between processes are the protocol's to keep; a peer that breaks them makes
//! readers see changing bytes, but never makes them leave the arena.

use std::collections::BTreeMap;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::FallocateFlags;
use rustix::mm::Advice;

use crate::kept::Kept;
use crate::mapping::{Access, MapError, Mapping, create_sealed};

/// A range that is not in the arena: somebody's offset or length is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("range {offset}+{len} is outside of an arena of {capacity} bytes")]
pub struct OutOfBounds {
    pub offset: u64,
    pub len: u64,
    pub capacity: u64,
}

/// Why a range could not be claimed for writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    /// Not in the arena.
    #[error(transparent)]
    OutOfBounds(#[from] OutOfBounds),
    /// Another claim of this process covers part of it (ARENA-2).
    #[error("range {offset}+{len} is being written already")]
    Overlap { offset: u64, len: u64 },
}

/// One arena, mapped.
#[derive(Debug)]
pub struct Arena {
    fd: Kept,
    capacity: u64,
    reading: Mapping,
    writing: Mapping,
    /// Start and end of each live claim.
    claims: Mutex<BTreeMap<u64, u64>>,
}

/// A range that this process alone writes to (ARENA-2); ends when dropped.
#[derive(Debug)]
pub struct Claim {
    arena: Arc<Arena>,
    offset: u64,
    len: usize,
}

impl Arena {
    /// The daemon's call: an empty arena of `capacity` bytes (whole pages).
    pub fn create(capacity: u64) -> Result<Arc<Arena>, MapError> {
        if capacity == 0 || !capacity.is_multiple_of(PAGE) {
            return Err(MapError::BadSize { bytes: capacity });
        }
        Arena::open(Kept::new(create_sealed("hoplo-arena", capacity)?)?, capacity)
    }

    /// Maps an arena that the daemon sent.
    pub fn open(fd: Kept, capacity: u64) -> Result<Arc<Arena>, MapError> {
        let reading = Mapping::new(&fd, capacity, Access::Read)?;
        let writing = Mapping::new(&fd, capacity, Access::ReadWrite)?;
        Ok(Arc::new(Arena { fd, capacity, reading, writing, claims: Mutex::default() }))
    }

    /// The bytes of a sealed object that the caller has pinned, or that it wrote itself (ARENA-3).
    pub fn read(&self, offset: u64, len: u64) -> Result<&[u8], OutOfBounds> {
        self.check(offset, len)?;
        // SAFETY: in bounds; nobody writes it meanwhile (ARENA-3).
        unsafe {
            let from = self.reading.base().as_ptr().add(offset as usize);
            Ok(core::slice::from_raw_parts(from, len as usize))
        }
    }

    /// Claims a range of one of our extents for writing (ARENA-2).
    pub fn claim(self: &Arc<Self>, offset: u64, len: u64) -> Result<Claim, ClaimError> {
        self.check(offset, len)?;
        let mut claims = self.claims();
        let below = claims.range(..offset + len).next_back();
        if len > 0 {
            if below.is_some_and(|(_, end)| *end > offset) {
                return Err(ClaimError::Overlap { offset, len });
            }
            claims.insert(offset, offset + len);
        }
        drop(claims);
        Ok(Claim { arena: Arc::clone(self), offset, len: len as usize })
    }

    /// Gives the memory of a range back to the system; it reads as zeroes afterwards. The caller
    /// owns the range as for a claim.
    pub fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check(offset, len)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        if len > 0 {
            let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(&self.fd, mode, offset, len)?;
        }
        Ok(())
    }

    /// Asks for huge pages in a range, where the system allows it; `false` if it does not.
    pub fn advise_huge(&self, offset: u64, len: u64) -> bool {
        self.advise(offset, len, Advice::LinuxHugepage).is_ok()
    }

    /// Bytes of memory that the arena takes now, in whole pages.
    pub fn touched_bytes(&self) -> io::Result<u64> {
        let blocks = rustix::fs::fstat(&self.fd)?.st_blocks;
        Ok(u64::try_from(blocks).unwrap_or(0) * 512)
    }

    /// Bytes of address space.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Where claims lie in this process.
    pub fn writing_addresses(&self) -> std::ops::Range<usize> {
        let start = self.writing.base().as_ptr() as usize;
        start..start + self.capacity as usize
    }

    fn advise(&self, offset: u64, len: u64, advice: Advice) -> io::Result<()> {
        self.check(offset, len)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let start = offset / PAGE * PAGE;
        let end = (offset + len).next_multiple_of(PAGE).min(self.capacity);
        // SAFETY: both kinds of advice leave every byte as it is.
        unsafe {
            let from = self.writing.base().as_ptr().add(start as usize);
            rustix::mm::madvise(from.cast(), (end - start) as usize, advice)?;
        }
        Ok(())
    }

    fn check(&self, offset: u64, len: u64) -> Result<(), OutOfBounds> {
        match offset.checked_add(len) {
            Some(end) if end <= self.capacity => Ok(()),
            _ => Err(OutOfBounds { offset, len, capacity: self.capacity }),
        }
    }

    fn claims(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        // A map of plain numbers is whole even if a thread died next to it.
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsFd for Arena {
    /// The descriptor to send to those who will map it.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Claim {
    /// Where it begins in the arena.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Where it lies in this process: for those who fill it through a foreign interface while
    /// they keep the claim.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        // SAFETY: in bounds since claim().
        unsafe { self.arena.writing.base().as_ptr().add(self.offset as usize) }
    }
}

impl Deref for Claim {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: in bounds since claim(); nobody else writes it (ARENA-2).
        unsafe {
            let from = self.arena.writing.base().as_ptr().add(self.offset as usize);
            core::slice::from_raw_parts(from, self.len)
        }
    }
}

impl DerefMut for Claim {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for deref(); no other claim of this process overlaps.
        unsafe { core::slice::from_raw_parts_mut(self.as_mut_ptr(), self.len) }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.len > 0 {
            let ended = self.arena.claims().remove(&self.offset);
            debug_assert_eq!(ended, Some(self.offset + self.len as u64), "ARENA-2");
        }
    }
}

const PAGE: u64 = 4096;

#[cfg(test)]
mod tests;
