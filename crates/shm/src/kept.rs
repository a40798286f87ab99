//! A descriptor in a process whose code may close what it did not open.
//!
//! After `os.closerange` in user code our number may belong to nobody, or to a file that this code has opened since. To close
//! it then would close a stranger's file; to map from it would take the stranger's bytes for an object's. So a
//! descriptor that lives long knows which file it was opened for.
//!
//! # Invariants
//! - KEPT-1: what is closed, or handed out by [`Kept::checked`], is the file that it was made of.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};

use rustix::io::Errno;

/// Closed when it is dropped, if it is still the same file.
#[derive(Debug)]
pub struct Kept {
    /// Absent only within the drop.
    fd: Option<OwnedFd>,
    file: File,
}

/// What the kernel tells files apart by: device and inode.
type File = (u64, u64);

impl Kept {
    /// `EBADF` if it is closed already.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        match file_of(&fd) {
            Ok(file) => Ok(Self { fd: Some(fd), file }),
            Err(errno) => {
                let _ = fd.into_raw_fd(); // KEPT-1
                Err(errno.into())
            }
        }
    }

    /// `EBADF` if code of this process closed it.
    pub fn checked(&self) -> io::Result<BorrowedFd<'_>> {
        if file_of(self)? == self.file { Ok(self.as_fd()) } else { Err(Errno::BADF.into()) }
    }
}

fn file_of(fd: impl AsFd) -> rustix::io::Result<File> {
    rustix::fs::fstat(fd).map(|stat| (stat.st_dev, stat.st_ino))
}

impl AsFd for Kept {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_ref().expect("it is there until the drop").as_fd()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let ours = self.checked().is_ok();
        if let Some(fd) = self.fd.take().filter(|_| !ours) {
            let _ = fd.into_raw_fd(); // KEPT-1
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::ManuallyDrop;
    use std::os::fd::{AsRawFd, FromRawFd};

    fn memory(name: &str) -> OwnedFd {
        rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC).unwrap()
    }

    #[test]
    fn what_is_still_ours_is_closed() {
        let (ours, theirs) = crate::fds::socketpair().unwrap();
        let kept = Kept::new(ours).unwrap();
        kept.checked().unwrap();
        drop(kept);
        assert_eq!(crate::fds::receive(&theirs, &mut [0]).unwrap().bytes, 0, "its end is seen");
    }

    #[test]
    fn a_file_that_got_the_number_of_a_closed_descriptor_was_closed_with_it() {
        let kept = Kept::new(memory("ours")).unwrap();
        let number = kept.as_fd().as_raw_fd();
        let stranger = memory("a stranger's");
        // As `os.close` and `os.open` do in user code; in one step, since other tests open files meanwhile.
        // SAFETY: the number is open, and what is made of it here is not dropped.
        let mut place = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number) });
        rustix::io::dup2(&stranger, &mut place).unwrap();
        assert_eq!(kept.checked().unwrap_err().raw_os_error(), Some(Errno::BADF.raw_os_error()));
        drop(kept);
        let there = rustix::fs::stat(format!("/proc/self/fd/{number}")).unwrap();
        assert_eq!(there.st_ino, rustix::fs::fstat(&stranger).unwrap().st_ino);
    }
}
