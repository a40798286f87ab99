//! The thread that forces written bytes onto the disk behind their writer.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::files::{Files, LogFile};
use super::frame::Position;

/// Up to where the log is known to be on disk; grows only.
#[derive(Debug, Default)]
pub(super) struct Synced {
    position: AtomicU64,
    /// Bytes that the kernel may have lost: from then on nothing is certain.
    failed: Mutex<Option<String>>,
}

impl Synced {
    pub(super) fn position(&self) -> Position {
        // Pairs with `advance`: what the position covers was synced before.
        Position(self.position.load(Ordering::Acquire))
    }

    pub(super) fn advance(&self, to: Position) {
        self.position.fetch_max(to.0, Ordering::AcqRel);
    }

    pub(super) fn failed(&self) -> Option<String> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn fail(&self, why: String) {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
    }
}

/// What is to be forced onto the disk.
#[derive(Debug)]
pub(super) struct Dirty {
    pub(super) file: Arc<dyn LogFile>,
    pub(super) name: String,
    /// All before this is in this file or was reported before.
    pub(super) upto: Position,
    /// Files that may go once it is done.
    pub(super) then_remove: Vec<String>,
}

enum Work {
    Sync(Dirty),
    Other(Box<dyn FnOnce() + Send>),
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sync(dirty) => dirty.fmt(f),
            Self::Other(_) => f.write_str("other work"),
        }
    }
}

#[derive(Debug)]
pub(super) struct Syncer {
    sender: Option<Sender<Work>>,
    thread: Option<JoinHandle<()>>,
}

impl Syncer {
    /// Syncs at most so long after the first of several reports.
    pub(super) fn start(
        every: Duration,
        files: Arc<dyn Files>,
        synced: Arc<Synced>,
    ) -> io::Result<Self> {
        let (sender, inbox) = channel();
        let builder = std::thread::Builder::new().name("hoplo:sync".to_string());
        let thread = builder.spawn(move || work(&inbox, every, &*files, &synced))?;
        Ok(Self { sender: Some(sender), thread: Some(thread) })
    }

    pub(super) fn report(&self, dirty: Dirty) {
        self.send(Work::Sync(dirty));
    }

    /// What takes as long as a sync.
    pub(super) fn does(&self, work: Box<dyn FnOnce() + Send>) {
        self.send(Work::Other(work));
    }

    fn send(&self, work: Work) {
        let sender = self.sender.as_ref().expect("it is there until the drop");
        sender.send(work).expect("the thread ends after us");
    }
}

impl Drop for Syncer {
    /// What was reported is on disk afterwards.
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn work(inbox: &Receiver<Work>, every: Duration, files: &dyn Files, synced: &Synced) {
    let mut leaving = VecDeque::new();
    while let Ok(first) = inbox.recv() {
        let first = match first {
            Work::Sync(dirty) => dirty,
            Work::Other(work) => {
                work();
                continue;
            }
        };
        let (mut waiting, mut others) = (vec![first], Vec::new());
        let due = Instant::now() + every;
        // A closed inbox ends the wait, too.
        while let Ok(more) = next_before(inbox, due) {
            let more = match more {
                Work::Sync(dirty) => dirty,
                Work::Other(work) => {
                    others.push(work);
                    continue;
                }
            };
            match waiting.last_mut() {
                Some(last) if Arc::ptr_eq(&last.file, &more.file) => {
                    last.upto = more.upto;
                    last.then_remove.extend(more.then_remove);
                }
                _ => waiting.push(more),
            }
        }
        for dirty in waiting {
            match dirty.file.sync() {
                Ok(()) => {
                    synced.advance(dirty.upto);
                    leaving.extend(dirty.then_remove);
                    remove_in_order(files, &mut leaving);
                }
                Err(error) => {
                    let name = dirty.name;
                    synced.fail(format!("{name}: what was written did not get to disk: {error}"));
                    return while inbox.recv().is_ok() {};
                }
            }
        }
        others.into_iter().for_each(|work| work());
    }
}

/// Oldest first, and none behind one that stays: a log with a gap is damage. What stays is only room, which the
/// next start reads again and skips; it is tried again with the next ones.
fn remove_in_order(files: &dyn Files, leaving: &mut VecDeque<String>) {
    while let Some(name) = leaving.front() {
        match files.remove(name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return,
            Ok(()) | Err(_) => drop(leaving.pop_front()),
        }
    }
}

fn next_before(inbox: &Receiver<Work>, due: Instant) -> Result<Work, RecvTimeoutError> {
    inbox.recv_timeout(due.saturating_duration_since(Instant::now()))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::files::OsFiles;
    use super::*;

    #[test]
    fn a_file_that_cannot_be_removed_keeps_those_behind_it() {
        let folder = std::env::temp_dir().join(format!("hoplo-sync-{}", std::process::id()));
        let names: VecDeque<String> = ["1", "2", "3"].map(String::from).into();
        let paths: Vec<PathBuf> = names.iter().map(|name| folder.join(name)).collect();
        let files = OsFiles::open(&folder).unwrap();
        // Removing a folder like a file fails.
        std::fs::create_dir_all(&paths[1]).unwrap();
        std::fs::write(&paths[0], "").unwrap();
        std::fs::write(&paths[2], "").unwrap();
        let mut leaving = names;
        remove_in_order(&files, &mut leaving);
        assert!(!paths[0].exists() && paths[2].exists());
        std::fs::remove_dir(&paths[1]).unwrap();
        remove_in_order(&files, &mut leaving);
        assert!(!paths[2].exists() && leaving.is_empty());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
