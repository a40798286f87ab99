//! What workers printed: `hoplo logs`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use hoplo_base::AnyId;
use rustix::fs::inotify;
use serde_json::Value;

use crate::tool::{Tool, find_session};

#[derive(Args)]
pub(crate) struct LogsArgs {
    /// An actor's id or a worker's pid [default: all, and the daemon's own]
    of: Option<String>,
    /// Go on as they print
    #[arg(long, short)]
    follow: bool,
    /// This session instead of the head or the newest one
    #[arg(long, value_name = "DIR")]
    session: Option<PathBuf>,
}

pub(crate) fn logs(args: &LogsArgs) -> Result<()> {
    let session = find_session(args.session.as_deref())?;
    let pid = args.of.as_deref().map(|of| pid_of(&session, of)).transpose()?;
    let mut tail = Tail { session, pid, read: BTreeMap::new(), last: None };
    if !args.follow {
        return match tail.print_new()? {
            0 if tail.pid.is_some() => bail!("it has not printed anything"),
            _ => Ok(()),
        };
    }
    let watch = inotify::init(inotify::CreateFlags::CLOEXEC)?;
    let changes = inotify::WatchFlags::MODIFY | inotify::WatchFlags::CREATE;
    inotify::add_watch(&watch, tail.session.join("logs"), changes)?;
    inotify::add_watch(&watch, &tail.session, changes)?;
    let mut buffer = [MaybeUninit::uninit(); 4096];
    loop {
        tail.print_new()?;
        inotify::Reader::new(&watch, &mut buffer).next()?;
    }
}

/// Which files were read how far.
struct Tail {
    session: PathBuf,
    pid: Option<u64>,
    read: BTreeMap<PathBuf, u64>,
    /// The file that was printed from last.
    last: Option<PathBuf>,
}

impl Tail {
    /// Bytes that were printed.
    fn print_new(&mut self) -> Result<u64> {
        let mut total = 0;
        let mut out = std::io::stdout().lock();
        for path in self.files()? {
            let read = self.read.entry(path.clone()).or_insert(0);
            let mut file = File::open(&path)?;
            file.seek(SeekFrom::Start(*read))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            if bytes.is_empty() {
                continue;
            }
            if self.pid.is_none() && self.last.as_ref() != Some(&path) {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                writeln!(out, "==> {name} <==")?;
            }
            out.write_all(&bytes)?;
            *read += bytes.len() as u64;
            total += bytes.len() as u64;
            self.last = Some(path);
        }
        out.flush()?;
        Ok(total)
    }

    fn files(&self) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        let daemon = self.session.join("daemon.log");
        if self.pid.is_none() && daemon.exists() {
            files.push(daemon);
        }
        let logs = self.session.join("logs");
        let entries =
            fs::read_dir(&logs).with_context(|| format!("cannot read {}", logs.display()))?;
        let mut workers: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        workers.sort();
        workers.retain(|path| match (self.pid, path.file_stem().and_then(|stem| stem.to_str())) {
            (Some(pid), Some(stem)) => stem == format!("worker-{pid}"),
            (Some(_), None) => false,
            (None, _) => true,
        });
        files.extend(workers);
        Ok(files)
    }
}

/// A pid as it is, or that of the actor's worker.
fn pid_of(session: &Path, of: &str) -> Result<u64> {
    if let Ok(pid) = of.parse() {
        return Ok(pid);
    }
    let id: AnyId = of.parse()?;
    let actors = Tool::connect(session)?.query("actors", "")?;
    let named = |row: &&Value| {
        let actor: Option<AnyId> = row["actor_id"].as_str().and_then(|hex| hex.parse().ok());
        matches!(actor, Some(AnyId::Task(task)) if id.names_task(task))
    };
    let row = actors.as_array().and_then(|rows| rows.iter().find(named));
    let row = row.with_context(|| format!("{of} is no actor of this session"))?;
    row["pid"].as_u64().with_context(|| {
        format!("{of} has no process now ({}): give the pid of its worker", row["state"])
    })
}
