//! What a log asks of its folder: the system's files here, those of the simulation there, which lose what was not synced,
//! tear what was being written and damage what was.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hoplo_base::limits::LOG_LOCK_PATIENCE;
use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock};
use rustix::io::Errno;

use super::LogError;

/// One folder, which is used by nobody else as long as this is there. Names may begin with that of a folder in it.
pub trait Files: fmt::Debug + Send + Sync {
    fn names(&self) -> io::Result<Vec<String>>;
    fn open(&self, name: &str) -> io::Result<Arc<dyn LogFile>>;
    /// An empty one, in place of one that is there.
    fn create(&self, name: &str) -> io::Result<Arc<dyn LogFile>>;
    fn make_folder(&self, name: &str) -> io::Result<()>;
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Names are on disk.
    fn sync(&self) -> io::Result<()>;
    /// Four bytes, none of them zero, that nobody guesses.
    fn mark(&self) -> u32;
    /// Threads of the log's own may use it; else all is done in the caller's.
    fn has_threads(&self) -> bool;
}

#[allow(clippy::len_without_is_empty, reason = "nobody asks whether a file is empty")]
pub trait LogFile: fmt::Debug + Send + Sync {
    fn len(&self) -> io::Result<u64>;
    /// As much as there is.
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize>;
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()>;
    /// Makes it so long, with room on disk. `false`: it does not know how, or has not as much.
    fn reserve(&self, from: u64, upto: u64) -> io::Result<bool>;
    fn set_len(&self, bytes: u64) -> io::Result<()>;
    /// Its bytes are on disk.
    fn sync(&self) -> io::Result<()>;
}

#[derive(Debug)]
pub struct OsFiles {
    path: PathBuf,
    /// Locked.
    folder: File,
}

impl OsFiles {
    /// The folder is made if it is not there.
    pub fn open(path: &Path) -> Result<Self, LogError> {
        let named = |error| LogError::Io { path: path.to_path_buf(), error };
        std::fs::create_dir_all(path).map_err(named)?;
        let folder = File::open(path).map_err(named)?;
        // Who was killed, or starts another program at this moment, holds the lock a little longer than it wants.
        let patience = Instant::now() + LOG_LOCK_PATIENCE;
        loop {
            match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self { path: path.to_path_buf(), folder }),
                Err(Errno::WOULDBLOCK) if Instant::now() < patience => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(Errno::WOULDBLOCK) => return Err(LogError::InUse(path.to_path_buf())),
                Err(error) => return Err(named(error.into())),
            }
        }
    }
}

impl Files for OsFiles {
    fn names(&self) -> io::Result<Vec<String>> {
        let names = std::fs::read_dir(&self.path)?.map(|entry| Ok(entry?.file_name()));
        let names: Vec<_> = names.collect::<io::Result<_>>()?;
        Ok(names.into_iter().filter_map(|name| name.into_string().ok()).collect())
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn LogFile>> {
        let file = OpenOptions::new().read(true).write(true).open(self.path.join(name))?;
        Ok(Arc::new(file))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn LogFile>> {
        let mut options = OpenOptions::new();
        options.create(true).truncate(true).read(true).write(true).mode(0o600);
        Ok(Arc::new(options.open(self.path.join(name))?))
    }

    fn make_folder(&self, name: &str) -> io::Result<()> {
        std::fs::create_dir(self.path.join(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.path.join(name))
    }

    fn sync(&self) -> io::Result<()> {
        self.folder.sync_all()
    }

    fn mark(&self) -> u32 {
        let mut bytes = [0; 4];
        let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
        assert_eq!(got, Ok(bytes.len()), "the kernel gives four random bytes at once");
        u32::from_le_bytes(bytes.map(|byte| byte.max(1)))
    }

    fn has_threads(&self) -> bool {
        true
    }
}

impl LogFile for File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        let mut got = 0;
        while got < into.len() {
            match FileExt::read_at(self, &mut into[got..], at + got as u64) {
                Ok(0) => break,
                Ok(more) => got += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(got)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.write_all_at(bytes, at)
    }

    fn reserve(&self, from: u64, upto: u64) -> io::Result<bool> {
        match fallocate(self, FallocateFlags::empty(), from, upto - from) {
            Ok(()) => Ok(true),
            Err(Errno::OPNOTSUPP | Errno::NOSPC | Errno::FBIG | Errno::DQUOT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        File::set_len(self, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        // With its length.
        self.sync_data()
    }
}
