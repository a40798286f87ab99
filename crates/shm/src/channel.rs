//! Channel: the pair of rings between a caller and a worker, in one memfd.
//!
//! ```text
//!   0     header: magic, version, sizes          (written once, before the descriptor travels)
//!   128   call ring:  head                       (the caller writes, the worker reads)
//!   256               tail                       (the worker writes, the caller reads)
//!   384   reply ring: head                       (the worker writes, the caller reads)
//!   512               tail
//!   4096  call bytes, then reply bytes           (powers of two)
//! ```
//! Head and tail are 128 bytes apart: a core never fetches the one because it touched the other.
//! The memfd outlives both: who has the descriptor can open an end again after its owner died.
//!
//! # Invariants
//! - CHAN-1: at most one live [`CallerEnd`] and one live [`WorkerEnd`] a channel.
//! - CHAN-2: sizes in the header are checked against the file before anything else is mapped.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use crate::mapping::{Access, MapError, Mapping, create_sealed};
use crate::ring::{Consumer, Corrupt, Producer, RingView};

/// The smallest ring.
pub const RING_BYTES_MIN: usize = 256;
/// The largest ring.
pub const RING_BYTES_MAX: usize = 1 << 30;

/// Why a channel could not be made or opened.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The memory could not be had, or is not a channel.
    #[error(transparent)]
    Map(#[from] MapError),
    /// The rings' last owners left nonsense behind.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
}

impl ChannelError {
    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            ChannelError::Map(error) => error.is_retryable(),
            ChannelError::Corrupt(error) => error.is_retryable(),
        }
    }
}

/// The caller's end: writes calls, reads replies.
#[derive(Debug)]
pub struct CallerEnd {
    pub calls: Producer,
    pub replies: Consumer,
}

/// The worker's end: reads calls, writes replies.
#[derive(Debug)]
pub struct WorkerEnd {
    pub calls: Consumer,
    pub replies: Producer,
}

/// Makes and opens channels.
#[derive(Debug)]
pub struct Channel;

impl Channel {
    /// Makes an empty channel and opens the caller's end; send the descriptor to the worker.
    /// Capacities are powers of two within [`RING_BYTES_MIN`] and [`RING_BYTES_MAX`].
    pub fn create(
        call_bytes: usize,
        reply_bytes: usize,
    ) -> Result<(CallerEnd, OwnedFd), ChannelError> {
        let header = Header::new(call_bytes as u64, reply_bytes as u64);
        let fd = create_sealed("hoplo-channel", header.file_bytes()?)?;
        let mapping = Mapping::new(&fd, PAGE, Access::ReadWrite)?;
        // SAFETY: nobody else has the descriptor yet, and the header fits its page.
        unsafe { mapping.at::<Header>(0).write(header) };
        Ok((Channel::open_caller(&fd)?, fd))
    }

    /// Opens the caller's end (CHAN-1), where its last owner left it.
    pub fn open_caller(fd: impl AsFd) -> Result<CallerEnd, ChannelError> {
        let (calls, replies) = rings(fd)?;
        Ok(CallerEnd { calls: Producer::attach(calls)?, replies: Consumer::attach(replies)? })
    }

    /// Opens the worker's end (CHAN-1), where its last owner left it.
    pub fn open_worker(fd: impl AsFd) -> Result<WorkerEnd, ChannelError> {
        let (calls, replies) = rings(fd)?;
        Ok(WorkerEnd { calls: Consumer::attach(calls)?, replies: Producer::attach(replies)? })
    }
}

fn rings(fd: impl AsFd) -> Result<(RingView, RingView), MapError> {
    let first_page = Mapping::new(&fd, PAGE, Access::Read)?;
    // SAFETY: any bytes are a valid Header, and it was written before the file was sent.
    let header = unsafe { first_page.at::<Header>(0).read() };
    if header.magic != Header::MAGIC {
        return Err(MapError::BadMagic { kind: "channel", found: header.magic });
    }
    if header.version != Header::VERSION {
        let (found, expected) = (header.version, Header::VERSION);
        return Err(MapError::BadVersion { kind: "channel", found, expected });
    }
    let mapping = Arc::new(Mapping::new(&fd, header.file_bytes()?, Access::ReadWrite)?);
    let (call_bytes, reply_bytes) = (header.call_bytes as usize, header.reply_bytes as usize);
    let data = PAGE as usize;
    let calls = RingView::new(&mapping, LINE, 2 * LINE, data, call_bytes);
    let replies = RingView::new(&mapping, 3 * LINE, 4 * LINE, data + call_bytes, reply_bytes);
    Ok((calls, replies))
}

const PAGE: u64 = 4096;
const LINE: usize = 128;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Header {
    magic: u64,
    version: u32,
    reserved: u32,
    call_bytes: u64,
    reply_bytes: u64,
}

impl Header {
    const MAGIC: u64 = u64::from_le_bytes(*b"hoploCHN");
    const VERSION: u32 = 1;

    fn new(call_bytes: u64, reply_bytes: u64) -> Header {
        let (magic, version) = (Header::MAGIC, Header::VERSION);
        Header { magic, version, reserved: 0, call_bytes, reply_bytes }
    }

    /// Checks both capacities (CHAN-2).
    fn file_bytes(&self) -> Result<u64, MapError> {
        let limits = RING_BYTES_MIN as u64..=RING_BYTES_MAX as u64;
        for bytes in [self.call_bytes, self.reply_bytes] {
            if !bytes.is_power_of_two() || !limits.contains(&bytes) {
                return Err(MapError::BadSize { bytes });
            }
        }
        Ok((PAGE + self.call_bytes + self.reply_bytes).next_multiple_of(PAGE))
    }
}

#[cfg(test)]
mod tests;
