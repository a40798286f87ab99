//! What workers print: to a file each, to their job's driver, and a few lines into an obituary.
//!
//! A line reaches the driver at once when it has been quiet, else within [`OUTPUT_PERIOD`]. A line that
//! several workers print within [`OUTPUT_FOLDED_WITHIN`] is shown once, and then once more with how often it came: the last
//! one, since lines that differ only in numbers count as one. Lines of bars are for the driver to fold.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use hoplo_base::Instant;
use hoplo_base::limits::{
    OBITUARY_LINES, OUTPUT_FOLDED_MAX, OUTPUT_FOLDED_WITHIN, OUTPUT_LINE_BYTES_MAX, OUTPUT_PERIOD,
};
use hoplo_wire::node::{BAR_MARK, ToClient, is_log_record};

/// One output of one worker.
#[derive(Debug)]
pub(crate) struct Pipe {
    fd: OwnedFd,
    /// Empty until it is known.
    path: PathBuf,
    unlogged: Vec<u8>,
    file: Option<File>,
    /// A line that has not ended yet.
    partial: Vec<u8>,
}

impl Pipe {
    pub(crate) fn new(fd: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        let (path, unlogged) = (PathBuf::new(), Vec::new());
        Ok(Self { fd, path, unlogged, file: None, partial: Vec::new() })
    }

    pub(crate) fn fd(&self) -> impl AsFd {
        &self.fd
    }

    /// Where it is logged, once that is known.
    pub(crate) fn name(&mut self, path: PathBuf) {
        self.path = path;
        let unlogged = std::mem::take(&mut self.unlogged);
        self.log(&unlogged);
    }

    /// Whether something lies in it.
    pub(crate) fn has_more(&self) -> bool {
        rustix::io::ioctl_fionread(&self.fd).is_ok_and(|bytes| bytes > 0)
    }

    /// What was written lately: whole lines, and whether there can be more.
    pub(crate) fn read(&mut self, scratch: &mut [u8]) -> (Vec<String>, bool) {
        let mut lines = Vec::new();
        // Bounded, so that one that prints without end does not keep the daemon to itself.
        for _ in 0..16 {
            match rustix::io::read(&self.fd, &mut *scratch) {
                Ok(0) => {
                    lines.extend(self.rest());
                    return (lines, false);
                }
                Ok(bytes) => self.take(&scratch[..bytes], &mut lines),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => break,
                Err(_) => return (lines, false),
            }
        }
        (lines, true)
    }

    /// The last line, if it did not end.
    pub(crate) fn rest(&mut self) -> Option<String> {
        let partial = std::mem::take(&mut self.partial);
        (!partial.is_empty()).then(|| text(&partial))
    }

    fn take(&mut self, bytes: &[u8], lines: &mut Vec<String>) {
        self.log(bytes);
        let mut parts = bytes.split(|byte| *byte == b'\n').peekable();
        while let Some(part) = parts.next() {
            self.partial.extend_from_slice(part);
            if parts.peek().is_some() || self.partial.len() > OUTPUT_LINE_BYTES_MAX {
                lines.push(text(&std::mem::take(&mut self.partial)));
            }
        }
    }

    /// A full disk loses log lines, nothing else.
    fn log(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if self.path.as_os_str().is_empty() {
            // Its pid comes with the next message of the zygote.
            return self.unlogged.extend_from_slice(bytes);
        }
        if self.file.is_none() {
            let options = OpenOptions::new().create(true).append(true).mode(0o600).clone();
            self.file = options.open(&self.path).ok();
        }
        if let Some(file) = &mut self.file {
            let _ = file.write_all(bytes);
        }
    }
}

fn text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.strip_suffix('\r').unwrap_or(&text).to_string()
}

/// The last lines of one worker, both outputs together.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastLines(VecDeque<String>);

impl LastLines {
    pub(crate) fn extend(&mut self, lines: &[String]) {
        let shown = lines.iter().map(|line| line.split(BAR_MARK).next().unwrap_or(line));
        self.0.extend(shown.map(str::to_string));
        let surplus = self.0.len().saturating_sub(OBITUARY_LINES);
        self.0.drain(..surplus);
    }

    pub(crate) fn to_vec(&self) -> Vec<String> {
        self.0.iter().cloned().collect()
    }
}

/// Who printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Printer {
    pub(crate) pid: u32,
    pub(crate) title: String,
    pub(crate) stderr: bool,
}

/// What goes to one driver.
#[derive(Debug, Default)]
pub(crate) struct Digest {
    waiting: Vec<(Printer, Vec<String>)>,
    sent_at: Option<Instant>,
    /// By what lines have in common.
    folded: BTreeMap<String, Fold>,
}

#[derive(Debug)]
struct Fold {
    since: Instant,
    pids: BTreeSet<u32>,
    /// Times it was not shown.
    hidden: u32,
    /// The last one that was not shown, and who printed it.
    last: (Printer, String),
}

impl Digest {
    pub(crate) fn add(&mut self, now: Instant, printer: &Printer, lines: Vec<String>, folds: bool) {
        for line in lines {
            if !folds || self.is_shown(now, printer, &line) {
                self.push(printer, line);
            }
        }
    }

    /// The messages that are due.
    pub(crate) fn take_due(&mut self, now: Instant) -> Vec<ToClient> {
        self.unfold(now);
        match self.next_deadline() {
            Some(at) if at <= now && !self.waiting.is_empty() => self.take_waiting(now),
            Some(_) | None => Vec::new(),
        }
    }

    /// The lines that wait, due or not; folds go on.
    pub(crate) fn take_waiting(&mut self, now: Instant) -> Vec<ToClient> {
        self.sent_at = Some(now);
        let waiting = std::mem::take(&mut self.waiting).into_iter();
        let messages = waiting.map(|(printer, lines)| {
            let Printer { pid, title, stderr } = printer;
            ToClient::Output { pid, title, address: None, stderr, lines }
        });
        messages.collect()
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let batch = (!self.waiting.is_empty())
            .then(|| self.sent_at.map_or(Instant::ZERO, |sent_at| sent_at + OUTPUT_PERIOD));
        let hidden = self.folded.values().filter(|fold| fold.hidden > 0);
        batch.into_iter().chain(hidden.map(|fold| fold.since + OUTPUT_FOLDED_WITHIN)).min()
    }

    /// What one worker repeats is shown as often as it prints it; what others repeat is not.
    fn is_shown(&mut self, now: Instant, printer: &Printer, line: &str) -> bool {
        if line.trim().is_empty() || line.contains(BAR_MARK) || is_log_record(line) {
            return true;
        }
        let common = common(line);
        if let Some(fold) = self.folded.get_mut(&*common)
            && now.since(fold.since) < OUTPUT_FOLDED_WITHIN
        {
            fold.pids.insert(printer.pid);
            if fold.pids.len() == 1 {
                return true;
            }
            fold.hidden += 1;
            fold.last = (printer.clone(), line.to_string());
            return false;
        }
        self.unfold(now);
        if self.folded.len() < OUTPUT_FOLDED_MAX {
            let pids = BTreeSet::from([printer.pid]);
            let last = (printer.clone(), String::new());
            self.folded.insert(common.into_owned(), Fold { since: now, pids, hidden: 0, last });
        }
        true
    }

    fn unfold(&mut self, now: Instant) {
        let over: Vec<String> = self
            .folded
            .iter()
            .filter(|(_, fold)| now.since(fold.since) >= OUTPUT_FOLDED_WITHIN)
            .map(|(common, _)| common.clone())
            .collect();
        for common in over {
            let fold = self.folded.remove(&common).expect("it was just listed");
            if fold.hidden > 0 {
                let (printer, line) = fold.last;
                self.push(&printer, format!("{line} [repeated {}x]", fold.hidden));
            }
        }
    }

    fn push(&mut self, printer: &Printer, line: String) {
        match self.waiting.last_mut() {
            Some((last, lines)) if last == printer => lines.push(line),
            _ => self.waiting.push((printer.clone(), vec![line])),
        }
    }
}

/// The line without its numbers, such as `12`, `3.5e7`, `0x7f` and `12ms`. A line of numbers alone is what somebody wants to
/// see: it stays what it is.
fn common(line: &str) -> Cow<'_, str> {
    let is_digit = |character: char| character.is_ascii_digit();
    let is_behind = |character: char| !character.is_alphanumeric() && character != '.';
    let (mut without, mut rest) = (String::new(), line);
    while let Some(at) = rest.find(is_digit) {
        without.push_str(&rest[..at]);
        without.push('0');
        let number = &rest[at..];
        rest = &number[number.find(is_behind).unwrap_or(number.len())..];
    }
    without.push_str(rest);
    if without.contains(char::is_alphabetic) { Cow::Owned(without) } else { Cow::Borrowed(line) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn printer(pid: u32) -> Printer {
        Printer { pid, title: "f".to_string(), stderr: false }
    }

    fn lines(messages: Vec<ToClient>) -> Vec<String> {
        let lines = messages.into_iter().flat_map(|message| match message {
            ToClient::Output { lines, .. } => lines,
            other => panic!("{other:?}"),
        });
        lines.collect()
    }

    fn at(millis: u64) -> Instant {
        Instant(1) + Duration::from_millis(millis)
    }

    #[test]
    fn the_first_line_comes_at_once_and_the_next_ones_together() {
        let mut digest = Digest::default();
        digest.add(at(0), &printer(1), vec!["a".to_string()], true);
        assert_eq!(lines(digest.take_due(at(0))), ["a"]);
        digest.add(at(1), &printer(1), vec!["b".to_string()], true);
        digest.add(at(2), &printer(1), vec!["c".to_string()], true);
        assert_eq!(lines(digest.take_due(at(2))), [""; 0]);
        assert_eq!(digest.next_deadline(), Some(at(20)));
        let messages = digest.take_due(at(20));
        assert_eq!(messages.len(), 1);
        assert_eq!(lines(messages), ["b", "c"]);
        assert_eq!(digest.next_deadline(), None);
    }

    #[test]
    fn what_many_workers_print_is_folded_and_what_one_repeats_is_not() {
        let mut digest = Digest::default();
        for pid in 0..38 {
            let printed = vec!["loading".to_string(), String::new()];
            digest.add(at(pid), &printer(pid as u32), printed, true);
        }
        digest.add(at(40), &printer(1), vec!["x".to_string(), "x".to_string()], true);
        let shown = lines(digest.take_due(at(60)));
        let count = |text: &str| shown.iter().filter(|line| *line == text).count();
        assert_eq!((count("loading"), count("x"), count("")), (1, 2, 38));
        assert_eq!(lines(digest.take_due(at(1000))), ["loading [repeated 37x]"]);
        assert_eq!(digest.next_deadline(), None);
    }

    #[test]
    fn lines_that_differ_only_in_numbers_are_folded_and_the_last_one_is_shown() {
        let mut digest = Digest::default();
        for pid in 0..4 {
            let printed = vec![
                format!("worker{pid} read {}.5 MB at 0x7f{pid} in {pid}ms", 10 * pid),
                format!("{pid}, {pid}.5"),
                format!("left {pid}{BAR_MARK}of a bar"),
            ];
            digest.add(at(u64::from(pid)), &printer(pid), printed, true);
        }
        let shown = lines(digest.take_due(at(60)));
        let count = |text: &str| shown.iter().filter(|line| line.contains(text)).count();
        assert_eq!((count("MB"), count(", "), count("of a bar")), (1, 4, 4), "{shown:?}");
        assert_eq!(shown[0], "worker0 read 0.5 MB at 0x7f0 in 0ms");
        let last = "worker3 read 30.5 MB at 0x7f3 in 3ms [repeated 3x]";
        assert_eq!(lines(digest.take_due(at(1000))), [last]);
    }

    #[test]
    fn log_records_as_json_are_not_folded() {
        let mut digest = Digest::default();
        let record = r#"{"asctime": "2026-01-01 10:00:00,000", "message": "hello"}"#.to_string();
        digest.add(at(0), &printer(1), vec![record.clone()], true);
        digest.add(at(1), &printer(2), vec![record.clone()], true);
        assert_eq!(lines(digest.take_waiting(at(2))), [record.clone(), record]);
    }

    #[test]
    fn a_job_may_have_all_lines() {
        let mut digest = Digest::default();
        for pid in 0..3 {
            digest.add(at(0), &printer(pid), vec!["loading".to_string()], false);
        }
        assert_eq!(lines(digest.take_due(at(60))), ["loading"; 3]);
        assert_eq!(digest.next_deadline(), None);
    }

    #[test]
    fn lines_are_put_together_and_logged_and_the_last_ones_kept() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        let path = std::env::temp_dir().join(format!("hoplo-test-output-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let mut pipe = Pipe::new(read).unwrap();
        let mut scratch = [0; 64];
        rustix::io::write(&write, b"one\r\ntw").unwrap();
        assert_eq!(pipe.read(&mut scratch), (vec!["one".to_string()], true));
        pipe.name(path.clone());
        rustix::io::write(&write, b"o\n\xff").unwrap();
        drop(write);
        let (lines, more) = pipe.read(&mut scratch);
        assert_eq!(
            (lines.as_slice(), more),
            (["two".to_string(), "\u{fffd}".to_string()].as_slice(), false)
        );
        assert_eq!(std::fs::read(&path).unwrap(), b"one\r\ntwo\n\xff");
        std::fs::remove_file(&path).unwrap();

        let mut last = LastLines::default();
        last.extend(&(0..30).map(|number| number.to_string()).collect::<Vec<_>>());
        assert_eq!(last.to_vec().len(), OBITUARY_LINES);
        assert_eq!(last.to_vec().last().map(String::as_str), Some("29"));
        last.extend(&[format!("files 1/3{BAR_MARK}{{}}")]);
        assert_eq!(last.to_vec().last().map(String::as_str), Some("files 1/3"));
    }
}
