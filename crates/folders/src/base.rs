//! The folder of all sessions of a user: which it is, what lives in it, what dead daemons left.

use std::fmt;
use std::path::{Path, PathBuf};

use hoplo_base::limits::SESSION_LOGS_KEPT;

use crate::folder::{Folder, FolderError, me};
use crate::names::{CONTROL, CURRENT};
use crate::session::SessionFolder;

/// Where a base may lie, best first.
#[derive(Clone, Debug)]
pub struct Places(Vec<PathBuf>);

const INSTEAD: &str = ": name another one by HOPLO_TMPDIR or init(_temp_dir=...)";

/// A folder that was checked, for sessions.
#[derive(Debug)]
pub struct Base(Folder);

impl Places {
    /// As the environment says.
    pub fn of_environment() -> Self {
        let named = |name: &str| std::env::var_os(name).filter(|path| !path.is_empty());
        if let Some(path) = named("HOPLO_TMPDIR") {
            return Self::only(PathBuf::from(path));
        }
        let mut places = ["/tmp", "/var/tmp"].map(|path| own_name(Path::new(path))).to_vec();
        places.extend(named("XDG_RUNTIME_DIR").map(|path| PathBuf::from(path).join("hoplo")));
        Self(places)
    }

    /// This one, or a folder of our own in it if it is like `/tmp`.
    pub fn only(path: PathBuf) -> Self {
        use std::os::unix::fs::MetadataExt;
        const STICKY: u32 = 0o1000;
        let shared = std::fs::metadata(&path).is_ok_and(|found| found.mode() & STICKY != 0);
        Self(vec![if shared { own_name(&path) } else { path }])
    }

    /// The first one that is ours. An error says what is wrong with another one, if there is none.
    pub fn find(&self) -> Result<Option<Base>, FolderError> {
        let mut refused = None;
        for place in &self.0 {
            match Folder::open(place) {
                Ok(folder) => return Ok(Some(Base(folder))),
                Err(FolderError::Missing(_)) => {}
                Err(error) => refused = refused.or(Some(error.instead(INSTEAD))),
            }
        }
        refused.map_or(Ok(None), Err)
    }

    /// The first one that is ours, else the first that can be made.
    pub fn make(&self) -> Result<Base, FolderError> {
        if let Ok(Some(base)) = self.find() {
            return Ok(base);
        }
        let mut refused = None;
        for place in &self.0 {
            match Folder::make(place) {
                Ok(folder) => return Ok(Base(folder)),
                Err(error) => refused = refused.or(Some(error.instead(INSTEAD))),
            }
        }
        Err(refused.expect("there is a place at least"))
    }
}

/// As a message names them.
impl fmt::Display for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.0.iter().map(|path| path.display().to_string()).collect();
        f.write_str(&names.join(", nor "))
    }
}

fn own_name(folder: &Path) -> PathBuf {
    folder.join(format!("hoplo-{}", me()))
}

impl Base {
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn folder(&self) -> &Folder {
        &self.0
    }

    /// Sessions whose daemon lives, newest first.
    pub fn live(&self) -> Vec<SessionFolder> {
        let mut sessions = self.sessions();
        sessions.retain(SessionFolder::is_live);
        sessions.reverse();
        sessions
    }

    /// The head that `hoplo start --head` left, if it lives.
    pub fn current(&self) -> Option<SessionFolder> {
        self.newest_head().filter(SessionFolder::is_live)
    }

    /// Of programs whose node is their own and in no cluster, newest first. Such a node ends with its program.
    pub fn of_programs(&self) -> Vec<SessionFolder> {
        let mut sessions = self.live();
        sessions.retain(|session| !session.is_in_cluster());
        sessions
    }

    /// The session of the last head, if that is dead and left its control store.
    pub fn left(&self) -> Option<SessionFolder> {
        self.newest_head().filter(|session| has_control(session) && !session.is_live())
    }

    /// Removes what dead daemons left, but for the logs of the last few. It has a session's lock meanwhile (FOLDER-7).
    pub fn sweep(&self) {
        let mut dead = self.sessions();
        // Dead or not: a head that ends between two looks of ours leaves its control store too.
        dead.retain(|session| !self.is_kept(session) && !session.is_live());
        let old = dead.len().saturating_sub(SESSION_LOGS_KEPT);
        for (nth, session) in dead.iter().enumerate() {
            if nth >= old && !session.has_remains() {
                continue;
            }
            let Some(lock) = session.seize() else { continue };
            if self.is_kept(session) {
                continue; // it became the head, and died, since we looked
            }
            if nth < old {
                session.remove_all(lock);
            } else {
                session.remove_remains(lock);
            }
        }
    }

    /// The last head's, with a control store for the next one to go on with.
    fn is_kept(&self, session: &SessionFolder) -> bool {
        let head = self.newest_head().filter(has_control);
        head.is_some_and(|head| head.path() == session.path())
    }

    /// A session's folder that lies where and is called as we call ours, or that of the last head.
    pub(crate) fn made(&self, path: &Path) -> bool {
        let name = path.file_name().and_then(|name| name.to_str());
        let is_own_name = path.parent() == Some(self.path()) && name.is_some_and(is_session_name);
        is_own_name || self.0.link(CURRENT).as_deref() == Some(path)
    }

    fn newest_head(&self) -> Option<SessionFolder> {
        let path = self.0.link(CURRENT)?;
        let here = path.parent() == Some(self.path());
        match path.file_name().and_then(|name| name.to_str()) {
            Some(name) if here => self.0.child(name).map(SessionFolder::of).ok(),
            Some(_) | None => SessionFolder::open(&path).ok(),
        }
    }

    /// Oldest first: their names begin with the time. Other folders are no business of ours.
    fn sessions(&self) -> Vec<SessionFolder> {
        let names = self.0.names().unwrap_or_default();
        let names = names.iter().filter_map(|name| name.to_str());
        let sessions = names.filter(|name| is_session_name(name));
        sessions.filter_map(|name| self.0.child(name).map(SessionFolder::of).ok()).collect()
    }
}

/// `session-<microseconds>-<pid>`
fn is_session_name(name: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let parts = name.strip_prefix("session-").and_then(|rest| rest.split_once('-'));
    parts.is_some_and(|(micros, pid)| number(micros) && number(pid))
}

fn has_control(session: &SessionFolder) -> bool {
    session.folder().child(CONTROL).is_ok()
}
