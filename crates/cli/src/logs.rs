//! What workers printed: `hoplo logs`.

use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom, Write};
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use hoplo_base::{AnyId, shown};
use hoplo_folders::{Folder, FolderError, SessionFolder};
use rustix::fs::{OFlags, inotify};
use serde_json::Value;

use crate::tool::{Tool, find_session};

const DAEMON_LOG: &str = "daemon.log";

#[derive(Args)]
pub(crate) struct LogsArgs {
    /// Show one only: an actor's id, a worker's pid, or the name of a log file [default: all, and the daemon's own]
    of: Option<String>,
    /// Do not end: also show what workers print from now on
    #[arg(long, short)]
    follow: bool,
    /// Ask the node with this session folder [default: the head, else the node that started last]
    #[arg(long, value_name = "DIR")]
    session: Option<PathBuf>,
}

pub(crate) fn logs(args: &LogsArgs) -> Result<()> {
    let session = find_session(args.session.as_deref())?;
    let logs = match session.folder().child("logs") {
        Ok(logs) => Some(logs),
        // A session that was ended, of which nobody had printed anything.
        Err(FolderError::Missing(_)) => None,
        Err(error) => return Err(error.into()),
    };
    let of = args.of.as_deref().map(|of| Of::named(&session, of)).transpose()?;
    let mut tail = Tail { session, logs, of, read: BTreeMap::new(), last: None };
    if !args.follow {
        let printed = tail.print_new()?;
        return if printed == 0 { tail.nothing() } else { Ok(()) };
    }
    let watch = inotify::init(inotify::CreateFlags::CLOEXEC)?;
    let changes = inotify::WatchFlags::MODIFY | inotify::WatchFlags::CREATE;
    let logs = tail.logs.as_ref().with_context(|| {
        format!("{} has no logs: its node has ended", tail.session.path().display())
    })?;
    inotify::add_watch(&watch, logs.path(), changes)?;
    inotify::add_watch(&watch, tail.session.path(), changes)?;
    let mut buffer = [MaybeUninit::uninit(); 4096];
    loop {
        tail.print_new()?;
        inotify::Reader::new(&watch, &mut buffer).next()?;
    }
}

/// Whose logs.
enum Of {
    Worker(u64),
    /// A file as it is called.
    File(String),
}

/// Which files were read how far.
struct Tail {
    session: SessionFolder,
    logs: Option<Folder>,
    of: Option<Of>,
    read: BTreeMap<String, u64>,
    /// The file that was printed from last.
    last: Option<String>,
}

impl Of {
    /// A pid or a file's name as it is, or the pid of the actor's worker.
    fn named(session: &SessionFolder, of: &str) -> Result<Self> {
        if let Ok(pid) = of.parse() {
            return Ok(Self::Worker(pid));
        }
        if of.ends_with(".log") || of.ends_with(".out") || of.ends_with(".err") {
            return Ok(Self::File(of.to_string()));
        }
        let id: AnyId = of.parse().with_context(|| {
            format!("{of:?} is neither a worker's pid nor an actor's id nor the name of a log file")
        })?;
        let mut tool = Tool::connect(session)?;
        let actors = tool.query("actors", "")?;
        let named = |row: &&Value| {
            let actor: Option<AnyId> = row["actor_id"].as_str().and_then(|hex| hex.parse().ok());
            matches!(actor, Some(AnyId::Task(task)) if id.names_task(task))
        };
        let row = actors.as_array().and_then(|rows| rows.iter().find(named));
        let row = row.with_context(|| format!("{of} is no actor of this session"))?;
        let pid = row["pid"].as_u64().with_context(|| {
            format!("{of} has no process now ({}): give the pid of its worker", row["state"])
        })?;
        let nodes = tool.query("nodes", "")?;
        let node = nodes.as_array().into_iter().flatten();
        let mut node = node.filter(|node| node["NodeID"] == row["node"]);
        if let Some(folder) = node.next().and_then(|node| node["session_dir"].as_str())
            && Path::new(folder) != session.path()
        {
            bail!(
                "{of} is on node {}: what it printed is in the logs of that one. Ask there: hoplo logs {pid} --session \
                 {}",
                row["node"].as_str().unwrap_or_default(),
                shown(folder)
            );
        }
        Ok(Self::Worker(pid))
    }

    fn has(&self, file: &str) -> bool {
        match self {
            Self::Worker(pid) => {
                file == format!("worker-{pid}.out") || file == format!("worker-{pid}.err")
            }
            Self::File(name) => file == name,
        }
    }
}

impl Tail {
    /// Bytes that were printed.
    fn print_new(&mut self) -> Result<u64> {
        let mut total = 0;
        let mut out = std::io::stdout().lock();
        for name in self.files()? {
            let read = self.read.entry(name.clone()).or_insert(0);
            let folder = match &self.logs {
                Some(logs) if name != DAEMON_LOG => logs,
                Some(_) | None => self.session.folder(),
            };
            let mut file = folder.file(&name, OFlags::RDONLY)?;
            file.seek(SeekFrom::Start(*read))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            if bytes.is_empty() {
                continue;
            }
            if self.of.is_none() && self.last.as_ref() != Some(&name) {
                writeln!(out, "==> {name} <==")?;
            }
            out.write_all(&bytes)?;
            *read += bytes.len() as u64;
            total += bytes.len() as u64;
            self.last = Some(name);
        }
        out.flush()?;
        Ok(total)
    }

    /// Nothing was printed: why.
    fn nothing(&self) -> Result<()> {
        let Some(of) = &self.of else { return Ok(()) };
        let here = self.session.path().join("logs");
        match of {
            _ if !self.files()?.is_empty() => bail!("it has not printed anything"),
            Of::Worker(pid) => bail!(
                "process {pid} has printed nothing here, or is no worker of this node: `hoplo list workers` shows those \
                 that run; what others printed is in {}",
                here.display()
            ),
            Of::File(name) => bail!("there is no log {name:?}; the logs are in {}", here.display()),
        }
    }

    /// The daemon's first.
    fn files(&self) -> Result<Vec<String>> {
        let names = |folder: &Folder| -> Result<Vec<String>> {
            let names = folder.names()?;
            Ok(names.into_iter().filter_map(|name| name.into_string().ok()).collect())
        };
        let mut files = names(self.session.folder())?;
        files.retain(|name| name == DAEMON_LOG);
        if let Some(logs) = &self.logs {
            files.extend(names(logs)?);
        }
        files.retain(|name| self.of.as_ref().is_none_or(|of| of.has(name)));
        Ok(files)
    }
}
