//! The thread that forces written bytes onto the disk behind their writer.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

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
    pub(super) file: Arc<File>,
    pub(super) path: PathBuf,
    /// All before this is in this file or was reported before.
    pub(super) upto: Position,
    /// Files that may go once it is done.
    pub(super) then_remove: Vec<PathBuf>,
}

#[derive(Debug)]
pub(super) struct Syncer {
    sender: Option<Sender<Dirty>>,
    thread: Option<JoinHandle<()>>,
}

impl Syncer {
    /// Syncs at most so long after the first of several reports.
    pub(super) fn start(every: Duration, synced: Arc<Synced>) -> io::Result<Self> {
        let (sender, inbox) = channel();
        let builder = std::thread::Builder::new().name("hoplo:sync".to_string());
        let thread = builder.spawn(move || work(&inbox, every, &synced))?;
        Ok(Self { sender: Some(sender), thread: Some(thread) })
    }

    pub(super) fn report(&self, dirty: Dirty) {
        let sender = self.sender.as_ref().expect("it is there until the drop");
        sender.send(dirty).expect("the thread ends after us");
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

fn work(inbox: &Receiver<Dirty>, every: Duration, synced: &Synced) {
    while let Ok(first) = inbox.recv() {
        let mut waiting = vec![first];
        let due = Instant::now() + every;
        // A closed inbox ends the wait, too.
        while let Ok(more) = next_before(inbox, due) {
            match waiting.last_mut() {
                Some(last) if Arc::ptr_eq(&last.file, &more.file) => {
                    last.upto = more.upto;
                    last.then_remove.extend(more.then_remove);
                }
                _ => waiting.push(more),
            }
        }
        for dirty in waiting {
            match dirty.file.sync_data() {
                Ok(()) => {
                    synced.advance(dirty.upto);
                    for path in dirty.then_remove {
                        // Left behind, it is only room: the next start reads it again and skips it.
                        let _ = std::fs::remove_file(path);
                    }
                }
                Err(error) => {
                    let path = dirty.path.display();
                    synced.fail(format!("{path}: what was written did not get to disk: {error}"));
                    return while inbox.recv().is_ok() {};
                }
            }
        }
    }
}

fn next_before(inbox: &Receiver<Dirty>, due: Instant) -> Result<Dirty, RecvTimeoutError> {
    inbox.recv_timeout(due.saturating_duration_since(Instant::now()))
}
