//! What the daemon remembers of what it did, and what it has to say: the story and `daemon.log`.

use std::collections::VecDeque;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hoplo_base::Instant;
use hoplo_base::limits::STORY_LINES_MAX;

static JOURNAL: Mutex<Journal> =
    Mutex::new(Journal { path: None, file: None, early: Vec::new(), story: VecDeque::new() });

/// Lines kept while no folder is known; a start that fails says why on standard error.
const EARLY_LINES_MAX: usize = 100;

/// One per process, so that a panic can tell the story.
#[derive(Debug)]
struct Journal {
    path: Option<PathBuf>,
    file: Option<File>,
    /// Said before the folder was known: what a head found lost at its start.
    early: Vec<String>,
    story: VecDeque<(Instant, String)>,
}

/// Messages go into this folder's `daemon.log` from now on, and those of before.
pub(crate) fn open(session: &Path) {
    let mut journal = lock();
    journal.path = Some(session.join("daemon.log"));
    journal.file = None;
    let early = std::mem::take(&mut journal.early);
    early.iter().for_each(|line| journal.write(line));
}

/// For people who look after the fact.
pub(crate) fn log(text: impl fmt::Display) {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    let seconds = now.tv_sec.rem_euclid(86400);
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let millis = now.tv_nsec / 1_000_000;
    let line = format!("{hours:02}:{minutes:02}:{seconds:02}.{millis:03}Z {text}");
    let mut journal = lock();
    if journal.path.is_some() {
        journal.write(&line);
    } else if journal.early.len() < EARLY_LINES_MAX {
        journal.early.push(line);
    }
}

impl Journal {
    /// Makes the file with the first line: a node with nothing to say leaves none.
    fn write(&mut self, line: &str) {
        if self.file.is_none()
            && let Some(path) = &self.path
        {
            let options = OpenOptions::new().create(true).append(true).mode(0o600).clone();
            self.file = options.open(path).ok();
        }
        if let Some(file) = &mut self.file {
            let _ = writeln!(file, "{line}");
        }
    }
}

/// One step of the node.
pub(crate) fn note(now: Instant, line: String) {
    let mut journal = lock();
    if journal.story.len() == STORY_LINES_MAX {
        journal.story.pop_front();
    }
    journal.story.push_back((now, line));
}

/// The lines that name `word`, oldest first, with milliseconds before `now`.
pub(crate) fn story(now: Instant, word: &str) -> Vec<String> {
    let journal = lock();
    let lines = journal.story.iter().filter(|(_, line)| line.contains(word));
    let lines = lines.map(|(at, line)| format!("{:>9} ms ago  {line}", now.since(*at).as_millis()));
    lines.collect()
}

/// A failed assertion is the end: what happened goes to the log, then the process aborts.
pub(crate) fn abort_on_panic() {
    std::panic::set_hook(Box::new(|info| {
        let backtrace = std::backtrace::Backtrace::force_capture();
        log(format_args!("PANIC: {info}\n{backtrace}"));
        let story: Vec<String> = {
            let journal = lock();
            journal.story.iter().rev().take(200).rev().map(|(_, line)| line.clone()).collect()
        };
        log(format_args!("the last steps:\n  {}", story.join("\n  ")));
        std::process::abort();
    }));
}

fn lock() -> MutexGuard<'static, Journal> {
    JOURNAL.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_story_is_found_by_a_word() {
        note(Instant(1), "a step about task:77-1".to_string());
        let lines = story(Instant(1_000_001), "task:77-1");
        assert_eq!(lines.len(), 1);
        assert!(lines[0].contains("1 ms ago"), "{}", lines[0]);
    }
}
