//! Memory of the allocator that is free goes back to the system.

/// All that is free, in whole pages. It takes longer the more was used: tens of milliseconds for a gigabyte, in
/// which other threads may wait for memory.
pub fn return_free() {
    // Other allocators than glibc's decide for themselves.
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: it touches nothing but the allocator's own books, under its own locks.
        unsafe { libc::malloc_trim(0) };
    }
}
