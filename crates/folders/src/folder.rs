//! A folder that is ours alone, and the way to it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use hoplo_base::limits::PATH_LINKS_MAX;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

const PRIVATE: Mode = Mode::RWXU;
const OTHERS_WRITE: u32 = 0o002;
const GROUP_WRITES: u32 = 0o020;
const STICKY: u32 = 0o1000;

/// Open, ours, and writable by nobody else (FOLDER-1).
#[derive(Debug)]
pub struct Folder {
    fd: OwnedFd,
    path: PathBuf,
}

/// Why a folder is not used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    #[error("there is no folder {}", .0.display())]
    Missing(PathBuf),
    /// Somebody else made it, or could change it. `instead`: what to do, where that is known.
    #[error("{} must be a folder that belongs to you and that nobody else can write to, but {why}{instead}", path.display())]
    NotOurs { path: PathBuf, why: String, instead: &'static str },
    #[error("the folder {} cannot be made or opened: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
}

impl FolderError {
    fn io(path: &Path, error: impl Into<io::Error>) -> Self {
        Self::Io { path: path.to_path_buf(), error: error.into() }
    }

    /// Said by whoever knows who named the folder, and by which option.
    pub fn instead(mut self, remedy: &'static str) -> Self {
        if let Self::NotOurs { instead, .. } = &mut self {
            *instead = remedy;
        }
        self
    }
}

impl From<FolderError> for io::Error {
    fn from(error: FolderError) -> Self {
        let kind = match &error {
            FolderError::Missing(_) => io::ErrorKind::NotFound,
            FolderError::NotOurs { .. } => io::ErrorKind::PermissionDenied,
            FolderError::Io { error, .. } => error.kind(),
        };
        io::Error::new(kind, error.to_string())
    }
}

impl Folder {
    pub fn open(path: &Path) -> Result<Self, FolderError> {
        Self::walk(path, false)
    }

    /// Opens it; what is missing on the way is made, for us alone.
    pub fn make(path: &Path) -> Result<Self, FolderError> {
        loop {
            match Self::walk(path, true) {
                Err(FolderError::Missing(_)) => {} // somebody removed it as soon as it was made
                made => return made,
            }
        }
    }

    /// Absolute, as it was named.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// One in this one.
    pub fn child(&self, name: &str) -> Result<Self, FolderError> {
        let path = self.path.join(name);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(&self.fd, name, flags, Mode::empty()) {
            Ok(fd) => Self::check(fd, path),
            Err(Errno::NOENT) => Err(FolderError::Missing(path)),
            Err(Errno::NOTDIR | Errno::LOOP) => not_ours(&path, "it is no folder"),
            Err(errno) => Err(FolderError::io(&path, errno)),
        }
    }

    /// One in this one, made if it is missing.
    pub fn make_child(&self, name: &str) -> Result<Self, FolderError> {
        loop {
            match rustix::fs::mkdirat(&self.fd, name, PRIVATE) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(FolderError::io(&self.path.join(name), errno)),
            }
            match self.child(name) {
                Err(FolderError::Missing(_)) => {} // somebody removed it as soon as it was made
                made => return made,
            }
        }
    }

    /// A plain file in it; `flags` say for what (FOLDER-4). An error names it.
    pub fn file(&self, name: impl AsRef<Path>, flags: OFlags) -> io::Result<File> {
        let name = name.as_ref();
        plain_file(&self.fd, name, flags).map_err(|error| self.names_it(name, error))
    }

    /// An error of something in it, with where that is.
    pub(crate) fn names_it(
        &self,
        name: impl AsRef<Path>,
        error: impl Into<io::Error>,
    ) -> io::Error {
        let (path, error) = (self.path.join(name), error.into());
        io::Error::new(error.kind(), format!("{}: {error}", path.display()))
    }

    /// What a link in it says, if the link is ours.
    pub(crate) fn link(&self, name: &str) -> Option<PathBuf> {
        let found = rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        if found.st_uid != me() {
            return None;
        }
        let target = rustix::fs::readlinkat(&self.fd, name, Vec::new()).ok()?;
        Some(PathBuf::from(OsString::from_vec(target.into_bytes())))
    }

    /// It has a file of that name, and that is this one.
    pub(crate) fn names_this(&self, name: &str, file: &File) -> io::Result<bool> {
        let ours = rustix::fs::fstat(file)?;
        let there = rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW);
        Ok(there.is_ok_and(|there| (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)))
    }

    /// Something of that name is in it, and it is no plain file.
    pub(crate) fn has_no_file(&self, name: &str) -> bool {
        let there = rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW);
        there.is_ok_and(|there| FileType::from_raw_mode(there.st_mode) != FileType::RegularFile)
    }

    /// Names in it, in order.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        names(&self.fd)
    }

    /// A file, a link, or a folder with all that is in it; nothing if it is not there (FOLDER-3).
    pub fn remove(&self, name: impl AsRef<Path>) -> io::Result<()> {
        Ok(remove(self.fd.as_fd(), name.as_ref())?)
    }

    /// A folder in it, if that is empty.
    pub(crate) fn remove_empty(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR)?)
    }

    fn check(fd: OwnedFd, path: PathBuf) -> Result<Self, FolderError> {
        let found = rustix::fs::fstat(&fd).map_err(|errno| FolderError::io(&path, errno))?;
        if FileType::from_raw_mode(found.st_mode) != FileType::Directory {
            return not_ours(&path, "it is no folder");
        }
        if found.st_uid != me() {
            return not_ours(&path, &format!("it belongs to user {}", found.st_uid));
        }
        if found.st_mode & (OTHERS_WRITE | GROUP_WRITES) != 0 {
            let mode = found.st_mode & 0o7777;
            return not_ours(&path, &format!("its mode is {mode:o}"));
        }
        Ok(Self { fd, path })
    }

    /// Step by step from `/`. Each step holds the folder that it came to, and looks at what it opened.
    fn walk(wanted: &Path, make: bool) -> Result<Self, FolderError> {
        let wanted = std::path::absolute(wanted).map_err(|error| FolderError::io(wanted, error))?;
        let failed = |errno: Errno| FolderError::io(&wanted, errno);
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = || rustix::fs::open("/", flags, Mode::empty()).map_err(failed);
        let (mut here, mut at) = (root()?, PathBuf::from("/"));
        let mut ahead = steps(&wanted);
        let mut links = 0;
        while let Some(name) = ahead.pop() {
            check_way(&here, &at, &wanted)?;
            let mut opened = rustix::fs::openat(&here, &name, flags, Mode::empty());
            if make && matches!(opened, Err(Errno::NOENT)) {
                match rustix::fs::mkdirat(&here, &name, PRIVATE) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(errno) => return Err(failed(errno)),
                }
                opened = rustix::fs::openat(&here, &name, flags, Mode::empty());
            }
            let opened = match opened {
                Ok(opened) => opened,
                Err(Errno::NOENT) => return Err(FolderError::Missing(wanted)),
                Err(errno) => return Err(failed(errno)),
            };
            let found = rustix::fs::fstat(&opened).map_err(failed)?;
            if FileType::from_raw_mode(found.st_mode) != FileType::Symlink {
                if name == ".." {
                    at.pop()
                } else {
                    at.push(&name);
                    true
                };
                here = opened;
                continue;
            }
            links += 1;
            if links > PATH_LINKS_MAX {
                return Err(failed(Errno::LOOP));
            }
            if !is_trusted(&found) {
                let why =
                    format!("{} is a link of user {}", at.join(&name).display(), found.st_uid);
                return not_ours(&wanted, &why);
            }
            let target = rustix::fs::readlinkat(&opened, "", Vec::new()).map_err(failed)?;
            let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
            if target.is_absolute() {
                (here, at) = (root()?, PathBuf::from("/"));
            }
            ahead.extend(steps(&target));
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::openat(&here, ".", flags, Mode::empty()) {
            Ok(fd) => Self::check(fd, wanted),
            Err(Errno::NOTDIR) => not_ours(&wanted, "it is no folder"),
            // Whose it is says more than that it cannot be read.
            Err(Errno::ACCESS) => Self::check(here, wanted),
            Err(errno) => Err(failed(errno)),
        }
    }
}

impl AsRef<Folder> for Folder {
    fn as_ref(&self) -> &Folder {
        self
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Names to go along, the last one first.
fn steps(path: &Path) -> Vec<OsString> {
    let names = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_os_string()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    let mut names: Vec<OsString> = names.collect();
    names.reverse();
    names
}

/// A folder on the way: nobody but us and root can put something else in the place of what we find in it. In
/// a sticky one others can make things, but what is ours or root's stays, and nothing else is taken.
fn check_way(folder: &OwnedFd, at: &Path, wanted: &Path) -> Result<(), FolderError> {
    let found = rustix::fs::fstat(folder).map_err(|errno| FolderError::io(wanted, errno))?;
    if FileType::from_raw_mode(found.st_mode) != FileType::Directory {
        return not_ours(wanted, &format!("{} is no folder", at.display()));
    }
    if !is_trusted(&found) {
        let why = format!("{} belongs to user {}", at.display(), found.st_uid);
        return not_ours(wanted, &why);
    }
    if found.st_mode & OTHERS_WRITE != 0 && found.st_mode & STICKY == 0 {
        let at = at.display();
        return not_ours(wanted, &format!("everybody can write to {at}, which is not sticky"));
    }
    Ok(())
}

/// Ours, or the system's.
fn is_trusted(found: &Stat) -> bool {
    found.st_uid == me() || found.st_uid == 0 || is_outside(found.st_uid)
}

/// In a user namespace (a sandbox, a container without root) the system's files belong to nobody.
fn is_outside(uid: u32) -> bool {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let nobody = read("/proc/sys/kernel/overflowuid").trim().parse().unwrap_or(65534);
    if uid != nobody {
        return false;
    }
    let map = read("/proc/self/uid_map");
    let mapped = map.lines().any(|line| {
        let mut numbers = line.split_whitespace().map(str::parse::<u64>);
        match (numbers.next(), numbers.nth(1)) {
            (Some(Ok(first)), Some(Ok(count))) => {
                (first..first.saturating_add(count)).contains(&u64::from(uid))
            }
            (_, _) => false,
        }
    });
    !map.is_empty() && !mapped
}

fn not_ours<T>(path: &Path, why: &str) -> Result<T, FolderError> {
    Err(FolderError::NotOurs { path: path.to_path_buf(), why: why.to_string(), instead: "" })
}

/// Opens without waiting for whoever would be at the other end of a FIFO, then looks at what it is.
fn plain_file(folder: impl AsFd, name: &Path, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(folder, name, flags, Mode::RUSR | Mode::WUSR)?;
    let found = rustix::fs::fstat(&fd)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no plain file"));
    }
    Ok(File::from(fd))
}

fn names(folder: impl AsFd) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name != "." && name != ".." {
            names.push(name.to_os_string());
        }
    }
    names.sort();
    Ok(names)
}

fn remove(folder: BorrowedFd<'_>, name: &Path) -> rustix::io::Result<()> {
    match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(errno) => return Err(errno),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let inner = rustix::fs::openat(folder, name, flags, Mode::empty())?;
    let found = names(&inner).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    for name in found {
        remove(inner.as_fd(), Path::new(&name))?;
    }
    rustix::fs::unlinkat(folder, name, AtFlags::REMOVEDIR)
}

/// The user whose files and processes are ours.
pub(crate) fn me() -> u32 {
    rustix::process::geteuid().as_raw()
}
