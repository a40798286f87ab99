//! What workers printed, on all nodes: `hoplo logs`.
//!
//! The files of the asked node are read here, so that it works for a node that has ended as well. Other nodes are asked through its
//! daemon: first which files they have, all at once, then for what is in them, one node at a time. So a node that does not answer
//! costs a second, and is asked no more. `--follow` repeats that.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::mem::MaybeUninit;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;
use hoplo_base::limits::{LOGS_ANSWER_BYTES, LOGS_ASKED_EVERY, LOGS_TAIL_BYTES};
use hoplo_base::{AnyId, Size, shown};
use hoplo_folders::SessionFolder;
use hoplo_node::logs::{self, Logs, Place, Told, Wanted};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::inotify;
use serde_json::Value;

use crate::table;
use crate::tool::{Tool, find_session, node_as_listed, warn};

#[derive(Args)]
pub(crate) struct LogsArgs {
    /// Show these only: actors by id or name, workers by pid, log files by name [default: all, and those of daemons]
    of: Vec<String>,
    /// Of this node only: its id as `hoplo status` shows it, or the name of its host [default: of all nodes]
    #[arg(long)]
    node: Option<String>,
    /// Show the last lines of each only
    #[arg(long, value_name = "LINES")]
    tail: Option<usize>,
    /// Do not end: also show what workers print from now on
    #[arg(long, short)]
    follow: bool,
    /// Say which log files there are, and how large they are
    #[arg(long, conflicts_with_all = ["tail", "follow"])]
    list: bool,
    /// Ask the node with this session folder [default: the head, else the node that started last]
    #[arg(long, value_name = "DIR")]
    session: Option<PathBuf>,
}

pub(crate) fn logs(args: &LogsArgs) -> Result<()> {
    let session = find_session(args.session.as_deref())?;
    let mut look = Look::begin(&session, args)?;
    if args.list {
        return look.list();
    }
    let printed = look.print_new(args.tail, true)?;
    if !args.follow {
        return if printed == 0 { look.nothing() } else { Ok(()) };
    }
    let watch = watch(&session)?;
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut ask_at = Instant::now() + LOGS_ASKED_EVERY;
    loop {
        let left = ask_at.saturating_duration_since(Instant::now());
        let left = left.try_into().expect("it is less than a year");
        let fd = &mut [PollFd::new(&watch, PollFlags::IN)];
        if poll(fd, look.asks_others().then_some(&left))? > 0 {
            inotify::Reader::new(&watch, &mut buffer).next()?;
        }
        // However often something changes here.
        let others = ask_at <= Instant::now();
        look.print_new(None, others)?;
        if others {
            ask_at = Instant::now() + LOGS_ASKED_EVERY;
        }
    }
}

/// Hears when the asked node's own files change.
fn watch(session: &SessionFolder) -> Result<std::os::fd::OwnedFd> {
    let logs = session.folder().child("logs");
    let logs = logs
        .with_context(|| format!("{} has no logs: its node has ended", session.path().display()))?;
    let watch = inotify::init(inotify::CreateFlags::CLOEXEC)?;
    let changes = inotify::WatchFlags::MODIFY | inotify::WatchFlags::CREATE;
    inotify::add_watch(&watch, logs.path(), changes)?;
    inotify::add_watch(&watch, session.path(), changes)?;
    Ok(watch)
}

/// No other node has this number.
const NOBODY: &str = "0";

/// Whose logs are looked at, and what of them was shown.
struct Look<'a> {
    session: &'a SessionFolder,
    /// Absent: its daemon cannot be asked.
    tool: Option<Tool>,
    /// The asked node's id; empty: its daemon cannot be asked.
    here: String,
    /// The only node whose logs are wanted.
    only: Option<String>,
    of: Vec<Of>,
    /// More nodes than one have logs: each is named.
    several: bool,
    /// What is of another file than what was printed before has a line that says of which.
    heads: bool,
    /// Of each node and file, how far it was shown.
    read: BTreeMap<(String, String), u64>,
    /// The file that was printed from last.
    last: Option<(String, String)>,
    /// What was said on stderr of nodes that did not answer.
    missing: BTreeSet<String>,
}

/// Whose logs.
struct Of {
    /// Absent: on whatever node it is.
    node: Option<String>,
    /// A worker's pid, or a file's name.
    name: String,
}

impl<'a> Look<'a> {
    fn begin(session: &'a SessionFolder, args: &LogsArgs) -> Result<Self> {
        let mut look = Self {
            session,
            tool: None,
            here: String::new(),
            only: None,
            of: Vec::new(),
            several: false,
            heads: false,
            read: BTreeMap::new(),
            last: None,
            missing: BTreeSet::new(),
        };
        match Tool::connect(session) {
            Ok(mut tool) => {
                let (own, _) = ask(&mut tool, NOBODY, &Wanted::Files(Vec::new()))?;
                if let [Told::Files { node, .. }] = &own[..] {
                    look.here.clone_from(node);
                }
                look.tool = Some(tool);
            }
            // What its node left behind can be read without it.
            Err(error) if args.node.is_none() => {
                eprintln!("hoplo: other nodes are not asked: {error:#}");
            }
            Err(error) => return Err(error),
        }
        if let Some(named) = &args.node {
            look.only = Some(look.node_named(named)?);
        }
        for of in &args.of {
            let named = look.named(of)?;
            look.of.extend(named);
        }
        Ok(look)
    }

    fn node_named(&mut self, named: &str) -> Result<String> {
        let nodes = self.query("nodes")?;
        let id = node_as_listed(named);
        let is_it = |row: &&Value| row["NodeID"] == *id || row["NodeManagerHostname"] == *named;
        let rows: Vec<&Value> = nodes.as_array().into_iter().flatten().filter(is_it).collect();
        let live: Vec<&Value> = rows.iter().copied().filter(|row| row["Alive"] == true).collect();
        match (&live[..], &rows[..]) {
            ([row], _) => Ok(row["NodeID"].as_str().unwrap_or_default().to_string()),
            ([], [row, ..]) => {
                let (host, folder) = (&row["NodeManagerHostname"], &row["session_dir"]);
                let text = |value: &Value| shown(value.as_str().unwrap_or_default()).to_string();
                bail!("{named} is dead: its logs are in {} on {}", text(folder), text(host))
            }
            ([], []) => {
                bail!("there is no node {named:?}: `hoplo status` shows those that there are")
            }
            _ => bail!(
                "{named:?} names several nodes: give the id of one, as `hoplo status` shows it"
            ),
        }
    }

    /// A pid or a file's name as it is, or the pid of an actor's worker at its node.
    fn named(&mut self, of: &str) -> Result<Vec<Of>> {
        let is_file = of.ends_with(".log") || of.ends_with(".out") || of.ends_with(".err");
        if is_file || of.parse::<u64>().is_ok() {
            return Ok(vec![Of { node: None, name: of.to_string() }]);
        }
        let id: Option<AnyId> = of.parse().ok();
        let actors = self.query("actors")?;
        let is_meant = |row: &&Value| {
            let actor: Option<AnyId> = row["actor_id"].as_str().and_then(|hex| hex.parse().ok());
            let is_id =
                matches!((actor, id), (Some(AnyId::Task(task)), Some(id)) if id.names_task(task));
            is_id || row["name"] == *of
        };
        let rows: Vec<&Value> = actors.as_array().into_iter().flatten().filter(is_meant).collect();
        if rows.is_empty() && id.is_none() {
            bail!(
                "{of:?} is neither a worker's pid nor an actor's id nor the name of a log file or actor"
            );
        }
        let with_pid = rows.iter().filter_map(|row| {
            let node = row["node"].as_str().map(str::to_string);
            Some(Of { node, name: row["pid"].as_u64()?.to_string() })
        });
        let found: Vec<Of> = with_pid.collect();
        match rows.first() {
            None => bail!("{of} is no actor of this session"),
            Some(row) if found.is_empty() => {
                bail!("{of} has no process now ({}): give the pid of its worker", row["state"])
            }
            Some(_) => Ok(found),
        }
    }

    fn query(&mut self, kind: &str) -> Result<Value> {
        let tool = self.tool.as_mut().with_context(|| {
            format!("the node of {} cannot be asked", self.session.path().display())
        })?;
        tool.query(kind, "")
    }

    fn asks_others(&self) -> bool {
        self.tool.is_some() && self.only.as_ref().is_none_or(|only| *only != self.here)
    }

    /// All files that are meant, with their ends: the asked node's first, and if `others`, those of the nodes that answer.
    fn files(&mut self, others: bool) -> Result<Vec<Place>> {
        let of: Vec<String> = self.of.iter().map(|of| of.name.clone()).collect();
        let mut files = Vec::new();
        if self.only.as_ref().is_none_or(|only| *only == self.here) {
            let own = Logs::of(self.session.folder())?.files(&of)?;
            let place = |(file, at)| Place { node: self.here.clone(), file, at };
            files.extend(own.into_iter().map(place));
        }
        if others && self.asks_others() {
            let whom = self.only.clone().unwrap_or_else(|| "all".to_string());
            for told in self.ask(&whom, &Wanted::Files(of))? {
                match told {
                    Told::Files { node, ends } if node != self.here => {
                        self.several = self.only.is_none();
                        files.extend(ends);
                    }
                    Told::Files { .. } | Told::Text { .. } => {}
                }
            }
        }
        let is_meant = |of: &Of, place: &Place| {
            let there = of.node.as_ref().is_none_or(|node| *node == place.node);
            there && logs::is_of(&place.file, &of.name)
        };
        files.retain(|place| self.of.is_empty() || self.of.iter().any(|of| is_meant(of, place)));
        Ok(files)
    }

    /// How many bytes were printed. `tail`: only the last lines of each file.
    fn print_new(&mut self, tail: Option<usize>, others: bool) -> Result<u64> {
        let files = self.files(others)?;
        let of_one_node = files.iter().all(|file| file.node == files[0].node);
        self.heads |= self.of.len() != 1 || !of_one_node;
        let (mut total, mut silent) = (0, BTreeSet::new());
        for end in files {
            if silent.contains(&end.node) {
                continue;
            }
            let begin = tail.map_or(0, |_| end.at.saturating_sub(LOGS_TAIL_BYTES));
            let at = *self.read.entry((end.node.clone(), end.file.clone())).or_insert(begin);
            let mut place = Place { at, ..end.clone() };
            let mut last_lines = Vec::new();
            while place.at < end.at {
                let Some((bytes, read)) = self.piece(&place)? else {
                    silent.insert(place.node.clone());
                    break;
                };
                if read == 0 {
                    break;
                }
                place.at += read;
                match tail {
                    Some(_) => last_lines.extend(bytes),
                    None => total += self.print(&place, &bytes)?,
                }
            }
            if let Some(lines) = tail {
                total += self.print(&place, from_line(&last_lines, lines))?;
            }
            self.read.insert((place.node, place.file), place.at);
        }
        Ok(total)
    }

    /// What is in a file from there on, and how much of it that is; absent: its node did not answer.
    fn piece(&mut self, place: &Place) -> Result<Option<(Vec<u8>, u64)>> {
        if place.node == self.here {
            let logs = Logs::of(self.session.folder())?;
            let bytes = logs.read(&place.file, place.at, LOGS_ANSWER_BYTES)?;
            let read = bytes.len() as u64;
            return Ok(Some((bytes, read)));
        }
        let told = self.ask(&place.node, &Wanted::Text(place.clone()))?;
        let text = told.into_iter().find_map(|told| match told {
            Told::Text { node, bytes, text } if node == place.node => Some((text, bytes)),
            Told::Text { .. } | Told::Files { .. } => None,
        });
        Ok(text.map(|(text, bytes)| (text.into_bytes(), bytes)))
    }

    fn print(&mut self, place: &Place, bytes: &[u8]) -> Result<u64> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let mut out = std::io::stdout().lock();
        let file = (place.node.clone(), place.file.clone());
        if self.heads && self.last.as_ref() != Some(&file) {
            let node = if self.several { format!("{} ", place.node) } else { String::new() };
            writeln!(out, "==> {node}{} <==", shown(&place.file))?;
        }
        out.write_all(bytes)?;
        out.flush()?;
        self.last = Some(file);
        Ok(bytes.len() as u64)
    }

    fn list(&mut self) -> Result<()> {
        let files = self.files(true)?;
        let row =
            |file: &Place| vec![file.node.clone(), file.file.clone(), Size(file.at).to_string()];
        Ok(table::print(&["node", "file", "size"], &files.iter().map(row).collect::<Vec<_>>())?)
    }

    /// Nothing was printed: why.
    fn nothing(&mut self) -> Result<()> {
        let Some(of) = self.of.first() else { return Ok(()) };
        let name = of.name.clone();
        let here = self.session.path().join("logs");
        if !self.files(true)?.is_empty() {
            bail!("it has not printed anything");
        }
        match name.parse::<u64>() {
            Ok(pid) => bail!(
                "process {pid} has printed nothing, or is no worker: `hoplo list workers` shows those that run; what others \
                 printed here is in {}",
                here.display()
            ),
            Err(_) => {
                bail!("there is no log {name:?}; the logs of this node are in {}", here.display())
            }
        }
    }

    /// What these nodes say; who does not answer is named on stderr, once.
    fn ask(&mut self, whom: &str, wanted: &Wanted) -> Result<Vec<Told>> {
        let Some(tool) = &mut self.tool else { return Ok(Vec::new()) };
        let (told, missing) = ask(tool, whom, wanted)?;
        let new: Vec<String> =
            missing.iter().filter(|line| !self.missing.contains(*line)).cloned().collect();
        warn(&new);
        self.missing.extend(missing);
        Ok(told)
    }
}

/// The asked node's own words are among them.
fn ask(tool: &mut Tool, whom: &str, wanted: &Wanted) -> Result<(Vec<Told>, Vec<String>)> {
    let question = format!("{whom} {}", serde_json::to_string(wanted)?);
    let (answer, missing) = tool.ask("logs", &question)?;
    Ok((serde_json::from_value(answer)?, missing))
}

/// So many lines at the end.
fn from_line(bytes: &[u8], lines: usize) -> &[u8] {
    let ends = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let breaks = ends.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n');
    match lines.checked_sub(1) {
        None => &[],
        Some(more) => breaks.map(|(at, _)| &bytes[at + 1..]).nth(more).unwrap_or(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_whole_ones_and_the_last_one_may_have_no_end() {
        let last = |text: &'static str, lines| from_line(text.as_bytes(), lines);
        assert_eq!(last("a\nb\nc\n", 2), b"b\nc\n");
        assert_eq!(last("a\nb\nc", 2), b"b\nc");
        assert_eq!(last("a\nb\n", 3), b"a\nb\n");
        assert_eq!(last("a\n\n", 1), b"\n");
        assert_eq!(last("a\n", 0), b"");
        assert_eq!(last("", 1), b"");
    }
}
