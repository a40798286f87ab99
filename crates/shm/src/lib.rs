//! The unsafe room: what the processes of one node share, behind safe types.
//!
//! ```text
//!  Segment   one per node    doorbells | object state words | pin rows       everybody read-write
//!  Channel   one per pair    call ring | reply ring                          caller and worker
//!  Arena     one per node    the bytes of large objects                      readers read-only
//!  SpillFile one per node    those that are not in the arena, on disk        readers read-only
//! ```
//!
//! Everything but the spill file is a sealed memfd; descriptors travel over a unix socket ([`fds`]). Nothing here decides
//! anything: schedulers, stores and sessions do, through these types.
//!
//! # What is trusted
//! All processes of a node belong to one user. A *buggy or dead* peer must never make us read out
//! of bounds, panic or hang: every length and position that a peer wrote is checked before use, a
//! memfd is sealed against shrinking (no `SIGBUS`), and a peer may die between any two
//! instructions. A *malicious* peer of the same user can still change the bytes of a frame or an
//! object while we look at them; who parses bytes must therefore not trust a length that it read
//! twice.
//!
//! # Invariants
//! - SHM-1: a word that two processes touch at once is an atomic, and each access names its
//!   partner. Plain bytes have one writer, and change hands through such an atomic.
//! - SHM-2: no process ever waits for another one inside this crate, except in
//!   [`Sleeper::sleep`], which takes a timeout.
//! - SHM-3: memory of all zeroes is a valid, empty state of every structure, so that a sparse file
//!   needs no initialisation beyond its header.
//!
//! # Checking the protocols
//! The atomic protocols (ring, doorbell, pins) are compiled against [loom] with `--cfg loom`, in
//! which case the mappings are replaced by model memory and only `tests/loom.rs` is built:
//! ```text
//! RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom \
//!     cargo test -p hoplo-shm --release --test loom
//! ```
//!
//! [loom]: https://docs.rs/loom

#[cfg(not(all(target_os = "linux", target_endian = "little", target_pointer_width = "64")))]
compile_error!("hoplo-shm needs 64-bit little-endian Linux");

mod doorbell;
mod extent;
mod pins;
mod ring;
mod segment;
mod sync;

#[cfg(not(loom))]
mod arena;
#[cfg(not(loom))]
mod channel;
#[cfg(not(loom))]
mod copy;
#[cfg(not(loom))]
pub mod fds;
#[cfg(not(loom))]
pub mod futex;
#[cfg(not(loom))]
pub mod heap;
#[cfg(not(loom))]
mod kept;
#[cfg(not(loom))]
mod mapping;
#[cfg(not(loom))]
pub mod signals;
#[cfg(not(loom))]
mod spill;
#[cfg(not(loom))]
mod spin;

pub use doorbell::{Doorbell, SleepKind, Sleeper, Slept, Urgency};
pub use extent::RangeAllocator;
pub use pins::{
    CloseOutcome, Generation, ObjectSlot, ObjectState, ObjectWord, PinEntry, PinError, PinRow,
    PinTable,
};
pub use ring::{Consumer, Corrupt, Frame, Position, Producer, Unread, WriteError};
pub use segment::{OBJECT_SLOTS, PINS_PER_PROCESS, PROCESS_SLOTS, ProcessSlot, Segment};

#[cfg(not(loom))]
pub use arena::{Arena, Claim, ClaimError, OutOfBounds};
#[cfg(not(loom))]
pub use channel::{CallerEnd, Channel, ChannelError, RING_BYTES_MAX, RING_BYTES_MIN, WorkerEnd};
#[cfg(not(loom))]
pub use copy::copy;
#[cfg(not(loom))]
pub use kept::Kept;
#[cfg(not(loom))]
pub use mapping::MapError;
#[cfg(not(loom))]
pub use spill::{FileRoom, FileView, SpillFile};
#[cfg(not(loom))]
pub use spin::Spins;

/// A ring in model memory, for `tests/loom.rs`.
#[cfg(loom)]
pub use ring::model_ring;
