//! Memory of the allocator that is free goes back to the system.

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

#[cfg(target_env = "gnu")]
const PIECE_BYTES_MAX: i32 = 8 * 1024 * 1024;
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
