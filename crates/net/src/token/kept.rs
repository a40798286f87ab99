//! The file in which a head keeps a token for those who join.
//!
//! Heads of one user may share a home, and so the usual file. A head has the file that it uses locked as long as it lives, whoever else
//! may be head of the same cluster, too. So a file that nobody has locked is that of a head that is gone, or the user's.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};

use super::{Fingerprint, Token};
use crate::authority::make_folder;
use crate::tls::IdentityError;

/// While it lives, no head of another cluster replaces the file.
#[derive(Debug)]
pub struct Kept {
    path: PathBuf,
    _lock: File,
}

/// What lies there.
enum Found {
    Nothing,
    /// Of this cluster; locked with others of it.
    Ours(File, Token),
    /// Nobody uses it. While this lock is held nobody else finds that.
    Left(Option<File>),
    /// Of a cluster whose head lives.
    Taken,
}

impl Kept {
    /// The token that lies there if it is of this authority and `choose` takes it, else the new one that `choose` gives. Absent if the file
    /// is that of another head that lives.
    pub fn at<E: From<IdentityError>>(
        path: &Path,
        authority: Fingerprint,
        mut choose: impl FnMut(Option<&Token>) -> Result<Token, E>,
    ) -> Result<Option<(Self, Token)>, E> {
        let unwritable = |source| IdentityError::Unwritable { path: path.into(), source };
        path.parent().map_or(Ok(()), make_folder)?;
        let mut new = None;
        loop {
            let (found, lies) = match look(path, authority) {
                Found::Taken => return Ok(None),
                Found::Ours(lock, token) => (Some(lock), Some(token)),
                Found::Left(lock) => (lock, None),
                Found::Nothing => (None, None),
            };
            let is_there = found.is_some() || path.symlink_metadata().is_ok();
            let token = match (&lies, new.take()) {
                (None, Some(made)) => made,
                (lies, _) => choose(lies.as_ref())?,
            };
            if let (Some(lock), Some(lies)) = (found.as_ref(), &lies)
                && lies.id() == token.id()
            {
                let lock = lock.try_clone().map_err(unwritable)?;
                return Ok(Some((Self { path: path.into(), _lock: lock }, token)));
            }
            if let Some(lock) = write(path, &token, is_there).map_err(unwritable)? {
                return Ok(Some((Self { path: path.into(), _lock: lock }, token)));
            }
            // Somebody else was first.
            new = Some(token);
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn look(path: &Path, authority: Fingerprint) -> Found {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    // Some file systems lock only what may be written.
    let open = |write| OpenOptions::new().read(true).write(write).custom_flags(flags).open(path);
    let file = match open(true).or_else(|_| open(false)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Found::Nothing,
        // It is no file, or none that we may read: no head wrote it.
        Err(_) => return Found::Left(None),
    };
    let token = Token::read(path).ok();
    let found = match token {
        Some(token) if token.authority() == authority => {
            // Who looks whether it is left has it for a moment.
            match flock(&file, FlockOperation::LockShared) {
                Ok(()) => Found::Ours(file, token),
                Err(_) => Found::Taken,
            }
        }
        Some(_) | None => match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Found::Left(Some(file)),
            Err(_) => Found::Taken,
        },
    };
    match &found {
        // Replaced since it was opened.
        Found::Ours(file, _) | Found::Left(Some(file)) if !names(path, file) => {
            look(path, authority)
        }
        _ => found,
    }
}

/// That is the file of this name.
fn names(path: &Path, file: &File) -> bool {
    let id = |found: fs::Metadata| (found.dev(), found.ino());
    let there = path.symlink_metadata().map(id);
    there.is_ok() && there.ok() == file.metadata().map(id).ok()
}

/// Whole and locked, or not at all. Absent if a file is there by now and none was to be replaced.
fn write(path: &Path, token: &Token, replaces: bool) -> io::Result<Option<File>> {
    let mut own = [0; 8];
    rustix::rand::getrandom(&mut own, rustix::rand::GetRandomFlags::empty())?;
    let beside = path.with_extension(format!("{:016x}.new", u64::from_ne_bytes(own)));
    let place = || {
        let mut options = OpenOptions::new();
        let mut file = options.read(true).write(true).create_new(true).mode(0o600).open(&beside)?;
        // Without locks it is as if nobody lived there.
        let _ = flock(&file, FlockOperation::LockShared);
        writeln!(file, "{}", token.reveal())?;
        file.sync_all()?;
        if replaces {
            fs::rename(&beside, path)?;
            return Ok(Some(file));
        }
        match fs::hard_link(&beside, path) {
            Ok(()) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
            // Some file systems have no such links: there the last one has it.
            Err(_) => fs::rename(&beside, path).map(|()| Some(file)),
        }
    };
    let placed = place();
    let _ = fs::remove_file(&beside);
    placed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("hoplo-kept-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        dir
    }

    fn at(path: &Path, cluster: &[u8]) -> Option<(Kept, Token)> {
        let authority = Fingerprint::of(cluster);
        let kept = Kept::at(path, authority, |lies| match lies {
            Some(lies) => Ok(lies.clone()),
            None => Ok::<_, IdentityError>(Token::make(authority).unwrap()),
        });
        kept.unwrap()
    }

    #[test]
    fn a_second_head_with_one_home_replaced_the_token_of_the_first() {
        let dir = folder("second");
        let path = dir.join("token");
        let (kept, token) = at(&path, b"one").unwrap();
        assert!(at(&path, b"two").is_none());
        assert_eq!(Token::read(&path).unwrap().id(), token.id());
        // Another that may be head of the same cluster uses it as well.
        let (other, same) = at(&path, b"one").unwrap();
        assert_eq!(same.id(), token.id());
        drop(kept);
        assert!(at(&path, b"two").is_none());
        drop(other);
        // What a head left that is gone is nobody's.
        let (_kept, token) = at(&path, b"two").unwrap();
        assert_eq!(Token::read(&path).unwrap().id(), token.id());
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn what_is_no_token_is_replaced_and_nothing_lies_beside_it() {
        let dir = folder("other");
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join("token");
        fs::write(&path, "nonsense").unwrap();
        drop(at(&path, b"one").unwrap());
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/null", &path).unwrap();
        let (_kept, token) = at(&path, b"one").unwrap();
        assert_eq!(Token::read(&path).unwrap().id(), token.id());
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn heads_with_one_home_that_started_at_once_lost_each_others_token_file() {
        let dir = folder("at-once");
        let path = dir.join("token");
        for _ in 0..100 {
            let kept: Vec<_> = std::thread::scope(|scope| {
                let threads =
                    [b"1", b"2", b"3", b"4"].map(|cluster| scope.spawn(|| at(&path, cluster)));
                threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
            });
            let [(_, token)] = &kept[..] else { panic!("{} have it", kept.len()) };
            assert_eq!(Token::read(&path).unwrap().id(), token.id());
            assert_eq!(fs::read_dir(&dir).unwrap().count(), 1, "nothing lies beside it");
        }
        fs::remove_dir_all(&dir).unwrap();
    }
}
