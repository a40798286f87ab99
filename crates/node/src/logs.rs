//! What workers printed, and the daemon's own log: which files a node has, and what is in them from a place on.
//!
//! A daemon answers other nodes with this, a bounded piece at a time. `hoplo logs` reads the files of its own node with it, so that it
//! works for a node that has ended, too.

use std::io::{self, Read, Seek, SeekFrom};

use hoplo_base::limits::LOGS_ANSWER_BYTES;
use hoplo_folders::{Folder, FolderError};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

/// Lies in the session's folder itself.
const DAEMON_LOG: &str = "daemon.log";

/// What is asked of a node.
#[derive(Debug, Serialize, Deserialize)]
pub enum Wanted {
    /// Which files there are: of these workers' pids, or called so; of none: all.
    Files(Vec<String>),
    /// What is in a file from there on.
    Text(Place),
}

/// A byte of a file of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    /// Its id.
    pub node: String,
    pub file: String,
    pub at: u64,
}

/// What a node answers.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Told {
    /// The end of each file.
    Files { node: String, ends: Vec<Place> },
    /// The next piece of the file, and how many of its bytes that is; none of a node that was not meant.
    Text { node: String, bytes: u64, text: String },
}

/// The logs of a node.
#[derive(Debug)]
pub struct Logs<'a> {
    session: &'a Folder,
    /// Absent: its session has ended, and nobody had printed anything.
    of_workers: Option<Folder>,
}

impl<'a> Logs<'a> {
    pub fn of(session: &'a Folder) -> Result<Self, FolderError> {
        let of_workers = match session.child("logs") {
            Ok(logs) => Some(logs),
            Err(FolderError::Missing(_)) => None,
            Err(error) => return Err(error),
        };
        Ok(Self { session, of_workers })
    }

    /// The daemon's first, and how many bytes each has.
    pub fn files(&self, of: &[String]) -> io::Result<Vec<(String, u64)>> {
        let names = |folder: &Folder| -> io::Result<Vec<String>> {
            let names = folder.names()?;
            Ok(names.into_iter().filter_map(|name| name.into_string().ok()).collect())
        };
        let mut files = names(self.session)?;
        files.retain(|name| name == DAEMON_LOG);
        if let Some(logs) = &self.of_workers {
            files.extend(names(logs)?);
        }
        files.retain(|name| of.is_empty() || of.iter().any(|of| is_of(name, of)));
        let ends = files.into_iter().map(|name| {
            let end = self.open(&name)?.metadata()?.len();
            Ok((name, end))
        });
        ends.collect()
    }

    /// At most so many bytes from there on.
    pub fn read(&self, file: &str, at: u64, bytes_max: u64) -> io::Result<Vec<u8>> {
        let mut open = self.open(file)?;
        open.seek(SeekFrom::Start(at))?;
        let mut bytes = Vec::new();
        open.take(bytes_max).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn open(&self, file: &str) -> io::Result<std::fs::File> {
        let folder = match &self.of_workers {
            Some(logs) if file != DAEMON_LOG => logs,
            Some(_) | None => self.session,
        };
        folder.file(file, OFlags::RDONLY)
    }

    /// What a daemon says of its own node to others, whose words these are: nothing but files that are listed is read.
    pub(crate) fn told(&self, node: &str, wanted: &str) -> Result<Told, String> {
        let wanted: Wanted =
            serde_json::from_str(wanted).map_err(|error| format!("not about logs: {error}"))?;
        let place = |file: String, at: u64| Place { node: node.to_string(), file, at };
        match wanted {
            Wanted::Files(of) => {
                let ends = self.files(&of).map_err(|error| error.to_string())?;
                let ends = ends.into_iter().map(|(file, end)| place(file, end)).collect();
                Ok(Told::Files { node: node.to_string(), ends })
            }
            Wanted::Text(place) => {
                let listed = |file: &str| self.files(&[file.to_string()]);
                let mut read = Vec::new();
                if place.node == node
                    && !listed(&place.file).map_err(|error| error.to_string())?.is_empty()
                {
                    read = self
                        .read(&place.file, place.at, LOGS_ANSWER_BYTES)
                        .map_err(|error| error.to_string())?;
                    read.truncate(whole_characters(&read));
                }
                let text = String::from_utf8_lossy(&read).into_owned();
                Ok(Told::Text { node: node.to_string(), bytes: read.len() as u64, text })
            }
        }
    }
}

/// By its name, or by the pid of the worker that printed it.
pub fn is_of(file: &str, of: &str) -> bool {
    let worker = file.strip_prefix("worker-").and_then(|rest| rest.split_once('.'));
    file == of || worker.is_some_and(|(pid, _)| pid == of)
}

/// How many of the bytes end with a whole character: the rest of the last one comes with the next piece. What is no
/// text is taken as it is.
fn whole_characters(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Ok(_) => bytes.len(),
        Err(error) if error.error_len().is_none() && error.valid_up_to() > 0 => error.valid_up_to(),
        Err(_) => bytes.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_meant_by_its_name_and_by_the_pid_of_its_worker() {
        assert!(is_of("worker-12.out", "12") && is_of("worker-12.err", "12"));
        assert!(is_of("worker-12.out", "worker-12.out") && is_of("daemon.log", "daemon.log"));
        for other in ["1", "2", "worker-12.err", "12.out", ""] {
            assert!(!is_of("worker-12.out", other), "{other}");
        }
    }

    #[test]
    fn a_piece_ends_with_a_whole_character_and_what_is_no_text_is_shown_anyway() {
        assert_eq!(whole_characters("gr\u{fc}n".as_bytes()), 5);
        assert_eq!(whole_characters(&"gr\u{fc}".as_bytes()[..3]), 2);
        assert_eq!(whole_characters(&[0xc3]), 1);
        assert_eq!(whole_characters(&[b'a', 0xff, b'b']), 3);
    }

    #[test]
    fn pieces_are_bounded_go_on_where_the_last_one_ended_and_are_of_listed_files_only() {
        let path = std::env::temp_dir().join(format!("hoplo-test-logs-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        let session = Folder::make(&path).unwrap();
        let of_workers = session.make_child("logs").unwrap();
        let long = "0123456789abcdef".repeat(LOGS_ANSWER_BYTES as usize / 16) + "the end";
        std::fs::write(path.join("logs/worker-7.out"), &long).unwrap();
        std::fs::write(path.join("daemon.log"), "began\n").unwrap();
        std::fs::write(path.join("secret"), "no log").unwrap();
        let logs = Logs { session: &session, of_workers: Some(of_workers) };
        let ask = |wanted: Wanted| logs.told("a", &serde_json::to_string(&wanted).unwrap());
        let place = |node: &str, file: &str, at: usize| Place {
            node: node.to_string(),
            file: file.to_string(),
            at: at as u64,
        };
        let ends = vec![place("a", "daemon.log", 6), place("a", "worker-7.out", long.len())];
        let files = ask(Wanted::Files(vec![])).unwrap();
        assert_eq!(files, Told::Files { node: "a".to_string(), ends });
        let piece = |place: Place| match ask(Wanted::Text(place)).unwrap() {
            Told::Text { node, bytes, text } if node == "a" => (bytes, text),
            other => panic!("{other:?}"),
        };
        let mut read = String::new();
        for _ in 0..2 {
            let (bytes, text) = piece(place("a", "worker-7.out", read.len()));
            assert_eq!(bytes, text.len() as u64);
            assert!(bytes <= LOGS_ANSWER_BYTES);
            read.push_str(&text);
        }
        assert_eq!(read, long);
        for (node, file) in [("b", "worker-7.out"), ("a", "secret"), ("a", "../secret")] {
            assert_eq!(piece(place(node, file, 0)), (0, String::new()), "{node} {file}");
        }
        assert!(logs.told("a", "rubbish").is_err());
        std::fs::remove_dir_all(&path).unwrap();
    }
}
