//! Session directories: where a daemon's socket, logs and spill files lie, and which daemons live.
//!
//! ```text
//! $HOPLO_TMPDIR or /tmp/hoplo-<uid>/        0700
//!   current -> session-...                  the head that `hoplo start --head` left
//!   session-<microseconds>-<pid>/
//!     lock          flock'ed by the daemon as long as it lives
//!     sock          its unix socket
//!     daemon.log    what it has to say
//!     logs/         worker-<pid>.out, worker-<pid>.err
//!     control/      of a head: the control store, which outlives it
//!     spill/        segment files of spilled objects
//! ```
//! A directory whose lock nobody holds is of a dead daemon: whoever starts next removes what it left. But the
//! control store of the last head stays, for the head that starts next to go on with; only `hoplo stop` ends it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, flock};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Dead sessions whose logs are kept.
const LOGS_KEPT: usize = 5;

/// A directory without a lock file is being made, for at most so long.
const MAKING: Duration = Duration::from_secs(60);

const CONTROL: &str = "control";

/// The session directory of this daemon, locked.
#[derive(Debug)]
pub struct SessionDir {
    base: PathBuf,
    path: PathBuf,
    _lock: File,
}

impl SessionDir {
    /// A new one under `base`, or exactly `path` if it is given.
    pub fn create(base: &Path, path: Option<&Path>) -> io::Result<Self> {
        let path = match path {
            Some(path) => path.to_path_buf(),
            None => {
                make_base(base)?;
                base.join(format!("session-{}-{}", micros(), std::process::id()))
            }
        };
        make_private(&path)?;
        let options =
            OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).clone();
        let lock = options.open(path.join("lock"))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|error| {
            let text = format!("{} belongs to another daemon: {error}", path.display());
            io::Error::new(io::ErrorKind::AlreadyExists, text)
        })?;
        // Of an earlier daemon; its objects went with it.
        let _ = fs::remove_dir_all(path.join("spill"));
        for folder in ["logs", "spill"] {
            make_private(&path.join(folder))?;
        }
        Ok(Self { base: base.to_path_buf(), path, _lock: lock })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn listen(&self) -> io::Result<OwnedFd> {
        let socket = stream_socket()?;
        let _ = fs::remove_file(self.path.join("sock"));
        with_address(&self.path, |address| rustix::net::bind(&socket, address))?;
        rustix::net::listen(&socket, 128)?;
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(socket)
    }

    /// Makes this the session that `address="auto"` finds.
    pub fn make_current(&self) -> io::Result<()> {
        make_base(&self.base)?;
        let fresh = self.base.join(format!("current-{}", std::process::id()));
        let _ = fs::remove_file(&fresh);
        std::os::unix::fs::symlink(&self.path, &fresh)?;
        fs::rename(&fresh, self.base.join("current"))
    }

    /// Where its control store lies, if it is a head.
    pub fn control(&self) -> PathBuf {
        self.path.join(CONTROL)
    }

    /// Removes everything but logs, and the directory too if there are none. With `stays` the control store is
    /// left to the next head.
    pub fn close(self, stays: bool) {
        if !stays {
            let _ = fs::remove_dir_all(self.control());
        }
        remove_remains(&self.path);
        if stays {
            return;
        }
        let current = self.base.join("current");
        if fs::read_link(&current).is_ok_and(|target| target == self.path) {
            let _ = fs::remove_file(current);
        }
    }
}

/// `$HOPLO_TMPDIR`, or a folder of this user's under `/tmp`.
pub fn base_dir() -> PathBuf {
    match std::env::var_os("HOPLO_TMPDIR") {
        Some(path) if !path.is_empty() => {
            std::path::absolute(&path).unwrap_or_else(|_| PathBuf::from(path))
        }
        _ => PathBuf::from(format!("/tmp/hoplo-{}", rustix::process::getuid().as_raw())),
    }
}

/// Sessions whose daemon lives, newest first.
pub fn live(base: &Path) -> Vec<PathBuf> {
    let mut sessions = sessions(base);
    sessions.retain(|path| is_live(path));
    sessions.reverse();
    sessions
}

/// The head that `hoplo start --head` left, if it lives.
pub fn current(base: &Path) -> Option<PathBuf> {
    let link = base.join("current");
    let ours = rustix::process::getuid().as_raw();
    if fs::symlink_metadata(&link).ok()?.uid() != ours {
        return None;
    }
    let path = fs::read_link(link).ok()?;
    is_live(&path).then_some(path)
}

/// The session of the last head, if that is dead and left its control store.
pub fn left(base: &Path) -> Option<PathBuf> {
    let link = base.join("current");
    let ours = rustix::process::getuid().as_raw();
    if fs::symlink_metadata(&link).ok()?.uid() != ours {
        return None;
    }
    let path = fs::read_link(link).ok()?;
    let meta = fs::symlink_metadata(path.join(CONTROL)).ok()?;
    (meta.is_dir() && meta.uid() == ours && !is_live(&path)).then_some(path)
}

/// Ends for good what a dead head left.
pub fn forget(base: &Path, session: &Path) -> io::Result<()> {
    fs::remove_dir_all(session.join(CONTROL))?;
    remove_remains(session);
    fs::remove_file(base.join("current"))
}

/// Connects to the daemon of a session.
pub fn connect(session: &Path) -> io::Result<OwnedFd> {
    let socket = stream_socket()?;
    with_address(session, |address| rustix::net::connect(&socket, address))?;
    Ok(socket)
}

/// Removes what dead daemons left, but for the logs of the last few.
pub fn sweep(base: &Path) {
    let mut dead = sessions(base);
    let left = left(base);
    dead.retain(|path| !is_live(path) && !is_being_made(path) && left.as_ref() != Some(path));
    let old = dead.len().saturating_sub(LOGS_KEPT);
    for path in &dead[..old] {
        let _ = fs::remove_dir_all(path);
    }
    for path in &dead[old..] {
        remove_remains(path);
    }
}

fn remove_remains(session: &Path) {
    for name in ["sock", "lock"] {
        let _ = fs::remove_file(session.join(name));
    }
    let _ = fs::remove_dir_all(session.join("spill"));
    // Both fail when there are logs.
    let _ = fs::remove_dir(session.join("logs"));
    let _ = fs::remove_dir(session);
}

/// Oldest first: their names begin with the time.
fn sessions(base: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(base) else { return Vec::new() };
    let entries = entries
        .flatten()
        .filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"session-"));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn is_live(session: &Path) -> bool {
    let Ok(lock) = File::open(session.join("lock")) else { return false };
    flock(&lock, FlockOperation::NonBlockingLockShared).is_err()
}

fn is_being_made(session: &Path) -> bool {
    let Ok(made) = fs::metadata(session).and_then(|meta| meta.modified()) else { return false };
    !session.join("lock").exists()
        && !session.join("logs").exists()
        && made.elapsed().is_ok_and(|age| age < MAKING)
}

/// Ours, or like `/tmp`: everybody may write there, and nobody can touch what is another's.
fn make_base(path: &Path) -> io::Result<()> {
    const STICKY: u32 = 0o1000;
    match fs::metadata(path) {
        Ok(meta) if meta.is_dir() && meta.mode() & STICKY != 0 => Ok(()),
        Ok(_) | Err(_) => make_private(path),
    }
}

/// A folder that only this user can enter.
fn make_private(path: &Path) -> io::Result<()> {
    let meta = (DirBuilder::new().recursive(true).mode(0o700).create(path))
        .and_then(|()| fs::symlink_metadata(path))
        .map_err(|error| {
            let text = format!("the folder {} cannot be made: {error}", path.display());
            io::Error::new(error.kind(), text)
        })?;
    let ours = meta.is_dir() && meta.uid() == rustix::process::getuid().as_raw();
    if !ours || meta.mode() & 0o022 != 0 {
        let text = format!(
            "{} must be a folder that belongs to you and that nobody else can write to: \
             remove it, or name another one by HOPLO_TMPDIR or init(_temp_dir=...)",
            path.display()
        );
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    Ok(())
}

fn stream_socket() -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    Ok(rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?)
}

/// A socket's address has room for 107 bytes; a long path is reached through its open folder.
fn with_address(
    session: &Path,
    act: impl FnOnce(&SocketAddrUnix) -> rustix::io::Result<()>,
) -> io::Result<()> {
    let folder = File::open(session)?;
    let path = format!("/proc/self/fd/{}/sock", folder.as_fd().as_raw_fd());
    Ok(act(&SocketAddrUnix::new(path)?)?)
}

/// Since 1970.
fn micros() -> u128 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_micros())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that goes with its test; its name is too long for a socket's address.
    struct Folder(PathBuf);

    impl Folder {
        fn new(test: &str) -> Self {
            let name = format!("hoplo-test-{test}-{}-{}", std::process::id(), "x".repeat(100));
            let path = std::env::temp_dir().join(name);
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_folder_that_others_can_write_to_is_refused() {
        let base = Folder::new("shared");
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(&base.0, fs::Permissions::from_mode(0o777)).unwrap();
        let error = SessionDir::create(&base.0, None).unwrap_err();
        assert!(error.to_string().contains("HOPLO_TMPDIR"), "{error}");
        // A folder like /tmp will do.
        fs::set_permissions(&base.0, fs::Permissions::from_mode(0o1777)).unwrap();
        SessionDir::create(&base.0, None).unwrap();
    }

    #[test]
    fn what_dead_daemons_left_is_swept_and_living_ones_are_found() {
        let base = Folder::new("sweep");
        let living = SessionDir::create(&base.0, None).unwrap();
        let listener = living.listen().unwrap();
        living.make_current().unwrap();
        for number in 0..8 {
            let path = base.0.join(format!("session-1-{number}"));
            fs::create_dir_all(path.join("logs")).unwrap();
            fs::create_dir_all(path.join("spill")).unwrap();
            for file in ["sock", "lock", "spill/0", "logs/worker-1.out"] {
                fs::write(path.join(file), "x").unwrap();
            }
        }
        sweep(&base.0);
        assert_eq!(live(&base.0), [living.path().to_path_buf()]);
        assert_eq!(current(&base.0).as_deref(), Some(living.path()));
        assert!(connect(living.path()).is_ok());
        let left = sessions(&base.0);
        assert_eq!(left.len(), 1 + LOGS_KEPT);
        for path in &left[..LOGS_KEPT] {
            let names: Vec<_> =
                fs::read_dir(path).unwrap().map(|e| e.unwrap().file_name()).collect();
            assert_eq!(names, ["logs"]);
        }
        drop(listener);
        let path = living.path().to_path_buf();
        living.close(false);
        assert!(!path.exists() && current(&base.0).is_none());
    }

    #[test]
    fn the_store_of_a_dead_head_stays_until_it_is_ended() {
        let base = Folder::new("left");
        let head = SessionDir::create(&base.0, None).unwrap();
        head.make_current().unwrap();
        fs::create_dir(head.control()).unwrap();
        let path = head.path().to_path_buf();
        assert_eq!(left(&base.0), None, "it lives");
        drop(head); // Killed: its lock is gone, nothing else.
        sweep(&base.0);
        assert_eq!(left(&base.0), Some(path.clone()));
        let again = SessionDir::create(&base.0, left(&base.0).as_deref()).unwrap();
        again.close(true);
        assert_eq!(left(&base.0), Some(path.clone()), "stopped by a signal");
        forget(&base.0, &path).unwrap();
        assert_eq!(left(&base.0), None);
        assert!(!path.join("control").exists());
    }

    #[test]
    fn two_daemons_cannot_have_one_folder() {
        let base = Folder::new("two");
        let first = SessionDir::create(&base.0, None).unwrap();
        let error = SessionDir::create(&base.0, Some(first.path())).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    }
}
