//! Memory of the allocator that is free goes back to the system.

#[cfg(target_env = "gnu")]
use hoplo_base::limits::LINK_BULK_WINDOW_BYTES;

/// From now on what this process frees is used again at once, large pieces too, until [`return_free`]: for one that moves
/// bytes in pieces of a quarter of a megabyte. Each would be mapped, cleared by the kernel and unmapped else, which takes three
/// times as long as to copy it.
pub fn keep_free() {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: as below.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, PIECE_BYTES_MAX);
            libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_BYTES_MAX);
        }
    }
}

/// What waits to be sent to another node is a window and what is around its frames. It grows by doubling, to more than two windows. What
/// was mapped once for its length stays a mapping when it is made shorter, and gets fresh pages each time that it grows again.
#[cfg(target_env = "gnu")]
const PIECE_BYTES_MAX: i32 = 4 * LINK_BULK_WINDOW_BYTES as i32;
/// At the end of each of the allocator's areas.
#[cfg(target_env = "gnu")]
const KEPT_BYTES_MAX: i32 = 16 * 1024 * 1024;

/// All that is free goes back, in whole pages. It takes longer the more was used: tens of milliseconds for a gigabyte, in
/// which other threads may wait for memory.
pub fn return_free() {
    // Other allocators than glibc's decide for themselves.
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: it touches nothing but the allocator's own books, under its own locks.
        unsafe { libc::malloc_trim(0) };
    }
}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use hoplo_base::limits::{BULK_CHUNK_BYTES, FRAMES_BYTES_KEPT};

    use super::*;

    /// Of this thread, so far.
    fn faults() -> i64 {
        // SAFETY: all zeros is a value of it, which the call fills.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: it writes into what it is given, and no more.
        assert_eq!(unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) }, 0);
        usage.ru_minflt
    }

    /// Each page that was sent was a fresh one: the kernel cleared it first, which took a third of the sender's time.
    #[test]
    fn what_is_sent_lies_in_memory_that_is_used_again() {
        keep_free();
        let piece = vec![7_u8; BULK_CHUNK_BYTES + 64];
        let mut outbox = Vec::new();
        let mut round = || {
            while outbox.len() < LINK_BULK_WINDOW_BYTES {
                outbox.extend_from_slice(&piece);
            }
            outbox.clear();
            outbox.shrink_to(FRAMES_BYTES_KEPT);
        };
        (0..3).for_each(|_| round());
        let before = faults();
        (0..20).for_each(|_| round());
        let pages = 20 * LINK_BULK_WINDOW_BYTES as i64 / 4096;
        assert!(faults() - before < pages / 10, "{} faults for {pages} pages", faults() - before);
    }
}
