//! One shared mapping of a sealed memfd, or of a piece of the spill file.
//!
//! # Invariants
//! - MAP-1: a memfd is sealed against shrinking before it is mapped, and is at least as long as
//!   the mapping, so that no access inside the mapping can fault. For the spill file see FILE-1.
//! - MAP-2: `base` is page-aligned and stays where it is until the last owner drops it.

use core::ptr::NonNull;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use rustix::process::Resource;

/// Why a shared file could not be made or mapped. Trying again does not help, except that `Os`
/// may be a shortage (`EMFILE`, `ENOMEM`) that passes.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// The operating system refused.
    #[error("shared memory: {0}")]
    Os(#[from] io::Error),
    /// There are no addresses left for so many bytes. Trying again does not help.
    #[error(
        "shared memory: {bytes} bytes of addresses are more than this process may have ({limit} bytes, RLIMIT_AS): raise \
         the limit (`ulimit -v unlimited`), or set a smaller object_store_memory, which takes several times its \
         size in addresses"
    )]
    NoAddresses { bytes: u64, limit: u64 },
    /// The process has as many mappings as it may have, or the kernel has no memory for one more. It may pass.
    #[error(
        "shared memory: {bytes} bytes cannot be mapped, since this process has too many mappings, or the machine is out of \
         memory: map fewer files, or raise the limit (`sysctl vm.max_map_count`)"
    )]
    NoMappings { bytes: u64 },
    /// Its number belongs to nobody now, or to a file of somebody else in this process.
    #[error(
        "the descriptor of a shared file is lost: the code of this process closed a descriptor that it had not opened, by \
         os.close or os.closerange for example"
    )]
    Lost,
    /// Not a file of this kind: its first eight bytes are not ours.
    #[error("not a hoplo {kind}: magic is {found:#x}")]
    BadMagic { kind: &'static str, found: u64 },
    /// Made by another version of hoplo; both sides must run the same.
    #[error("{kind} has version {found}, this process speaks {expected}")]
    BadVersion { kind: &'static str, found: u32, expected: u32 },
    /// Shorter than what it must hold.
    #[error("shared file has {found} bytes, {needed} are needed")]
    TooShort { found: u64, needed: u64 },
    /// Somebody could still shrink it under our feet.
    #[error("shared file is not sealed against shrinking")]
    NotSealed,
    /// A size that cannot be mapped (zero, or not a whole number of pages where that is needed).
    #[error("bad size for shared memory: {bytes} bytes")]
    BadSize { bytes: u64 },
}

impl From<rustix::io::Errno> for MapError {
    fn from(errno: rustix::io::Errno) -> Self {
        MapError::Os(errno.into())
    }
}

impl MapError {
    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            MapError::Os(error) => matches!(
                rustix::io::Errno::from_io_error(error),
                Some(
                    rustix::io::Errno::MFILE
                        | rustix::io::Errno::NFILE
                        | rustix::io::Errno::NOMEM
                        | rustix::io::Errno::AGAIN
                )
            ),
            MapError::NoMappings { .. } => true,
            MapError::NoAddresses { .. }
            | MapError::Lost
            | MapError::BadMagic { .. }
            | MapError::BadVersion { .. }
            | MapError::TooShort { .. }
            | MapError::NotSealed
            | MapError::BadSize { .. } => false,
        }
    }
}

/// What this process may do with the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    ReadWrite,
}

/// A mapped file; unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping is an address range that belongs to the process, not to a thread; the types
// that hand out views of it say who may touch which bytes.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `bytes` of a sealed memfd (MAP-1).
    pub(crate) fn new(fd: impl AsFd, bytes: u64, access: Access) -> Result<Mapping, MapError> {
        let found = u64::try_from(rustix::fs::fstat(&fd)?.st_size).unwrap_or(0);
        if found < bytes {
            return Err(MapError::TooShort { found, needed: bytes });
        }
        match rustix::fs::fcntl_get_seals(&fd) {
            Ok(seals) if seals.contains(SealFlags::SHRINK) => {}
            Ok(_) | Err(rustix::io::Errno::INVAL) => return Err(MapError::NotSealed),
            Err(errno) => return Err(errno.into()),
        }
        Self::map(fd, 0, bytes, access)
    }

    /// Maps a piece of a file that is no memfd: whoever may shorten it keeps FILE-1. `offset` is a multiple
    /// of the system's page size.
    pub(crate) fn of_file(
        fd: impl AsFd,
        offset: u64,
        bytes: u64,
        access: Access,
    ) -> Result<Mapping, MapError> {
        let found = u64::try_from(rustix::fs::fstat(&fd)?.st_size).unwrap_or(0);
        let needed = offset.checked_add(bytes).ok_or(MapError::BadSize { bytes })?;
        if found < needed {
            return Err(MapError::TooShort { found, needed });
        }
        Self::map(fd, offset, bytes, access)
    }

    fn map(fd: impl AsFd, offset: u64, bytes: u64, access: Access) -> Result<Mapping, MapError> {
        let length = usize::try_from(bytes).map_err(|_| MapError::BadSize { bytes })?;
        if length == 0 {
            return Err(MapError::BadSize { bytes });
        }
        let protection = match access {
            Access::Read => ProtFlags::READ,
            Access::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
        };
        // SAFETY: the kernel chooses a fresh address, so that no existing memory is replaced.
        let base = unsafe {
            rustix::mm::mmap(
                core::ptr::null_mut(),
                length,
                protection,
                MapFlags::SHARED | MapFlags::NORESERVE,
                &fd,
                offset,
            )
        };
        let base =
            base.map_err(|errno| match rustix::process::getrlimit(Resource::As).current {
                _ if errno != rustix::io::Errno::NOMEM => errno.into(),
                Some(limit) => MapError::NoAddresses { bytes, limit },
                None => MapError::NoMappings { bytes },
            })?;
        let base = NonNull::new(base.cast()).expect("mmap without a fixed address is never null");
        Ok(Mapping { base, bytes: length })
    }

    /// First byte; page-aligned (MAP-2).
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Bytes mapped.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// A pointer to a `T` at `offset`; the caller must check that it suits what lies there.
    pub(crate) fn at<T>(&self, offset: usize) -> NonNull<T> {
        let end = offset.checked_add(size_of::<T>()).expect("offset of a layout constant");
        assert!(end <= self.bytes, "MAP-1: {offset}+{} beyond {}", size_of::<T>(), self.bytes);
        assert!(offset.is_multiple_of(align_of::<T>()), "MAP-2: {offset} is not aligned");
        // SAFETY: offset lies inside the mapping.
        unsafe { self.base.add(offset).cast() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is ours, and whoever borrowed from it is gone.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "munmap of our own range: {unmapped:?}");
    }
}

/// Makes a sparse memfd of `bytes` zeroes whose size can never change again (MAP-1).
pub(crate) fn create_sealed(name: &str, bytes: u64) -> Result<OwnedFd, MapError> {
    let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&fd, bytes)?;
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(fd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unsealed_file_is_refused() {
        let fd = rustix::fs::memfd_create("t", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&fd, 4096).unwrap();
        assert!(matches!(Mapping::new(&fd, 4096, Access::Read), Err(MapError::NotSealed)));
    }

    #[test]
    fn a_short_file_is_refused() {
        let fd = create_sealed("t", 4096).unwrap();
        assert!(matches!(
            Mapping::new(&fd, 4097, Access::Read),
            Err(MapError::TooShort { found: 4096, needed: 4097 })
        ));
        assert!(rustix::fs::ftruncate(&fd, 0).is_err());
    }
}
