//! Pins: who reads which object, so that the daemon never takes memory from under a reader.
//!
//! An object in the store has a **state word**; a process has a row of **pin entries**. Both lie in
//! the metadata segment. To read, a process writes the object's slot into an entry of its own row,
//! and then looks whether the object is still there. To evict, the daemon closes the object, and
//! then looks whether somebody has it in an entry. Nobody waits for anybody.
//!
//! ```text
//!           seal (generation + 1)              close, nobody pins               free
//!   FREE ---------------------------> SEALED ---------------------> CLOSED ----------> FREE
//!                                       ^        somebody pins         |
//!                                       +------------------------------+
//!                                                  reopen
//! ```
//!
//! # Never both pinned and closed for good (PIN-1)
//! 1. The reader stores its entry, passes a SeqCst fence, and loads the state word.
//! 2. The daemon swaps the state word to CLOSED, passes a SeqCst fence, and loads the entries.
//! 3. The two fences have an order. Reader's first: the daemon's load sees the entry, and it
//!    reopens. Daemon's first: the reader's load sees CLOSED, and it withdraws the entry.
//! 4. Both may see each other: the reader withdraws although the daemon reopens. The reader then
//!    reports `Closing`, which is worth another try, and no harm is done.
//!
//! # Other invariants
//! - PIN-2: an entry at or above its row's high-water mark is empty. The mark is raised before the
//!   entry is stored (so step 3 covers it too) and lowered after the entry is cleared.
//! - PIN-3: a generation is given once in 2^32 seals of a slot; a late reader with an old
//!   generation gets `Stale`. Generation 0 is never given.
//! - PIN-4: only the row's process writes its row, through one [`PinTable`]; the daemon wipes it
//!   once that process is known to be dead.
//! - PIN-5: the daemon alone seals for clients' objects it accounts for, closes and frees; it lists
//!   a process among the live ones before that process can pin, and until it has wiped its row.

mod object;
mod row;
mod table;

pub use object::{CloseOutcome, Generation, ObjectSlot, ObjectState, ObjectWord};
pub use row::PinRow;
pub use table::{PinEntry, PinError, PinTable};

#[cfg(all(test, not(loom)))]
mod tests;
