//! The node daemon: a shell around `hoplo_core::node`.
//!
//! Start reading at `daemon`. [`run`] is `hoplo daemon`: the daemon with a process of its own.

mod cage;
mod carrier;
mod children;
mod clock;
mod daemon;
mod descriptors;
mod environments;
mod error;
mod joining;
mod journal;
pub mod logs;
mod machine;
mod options;
mod output;
mod poll;
mod python;
mod spill;
mod store;
mod stream;
mod zygote;

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use hoplo_base::limits::{JOINS_AGAIN, JOINS_AGAIN_WITHIN};
use hoplo_control::net::cluster::Cluster;
use hoplo_control::net::head::Listening;
use hoplo_control::net::seat::{Candidate, SeatError};
use hoplo_folders::{FolderError, HeadError, JoinsAgain};
use hoplo_wire::PROTOCOL_VERSION;
use hoplo_wire::node::{Role, ToNode, encode};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use daemon::Seated;
pub use daemon::{Daemon, Ended};
pub use error::StartError;
pub use hoplo_folders as folders;
pub use joining::{Join, Listen};
pub use options::{Options, zygote_command};
pub use python::ask as ask_python;

/// What a process of its own gives the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a session of its own, with nothing of who started it: once it listens, it prints its
    /// session directory on one line, then what whoever starts it should know, and closes its standard streams.
    Background,
    /// In the terminal that it was started from: Ctrl-C stops it.
    Foreground,
}

/// What a tool says first to a daemon, which answers at once.
pub fn hello_of_tool() -> Vec<u8> {
    let hello = ToNode::Hello {
        protocol: PROTOCOL_VERSION,
        version: env!("CARGO_PKG_VERSION").to_string(),
        pid: std::process::id(),
        role: Role::Tool,
    };
    let mut bytes = Vec::new();
    encode(&hello, &mut bytes);
    bytes
}

/// Runs a daemon until it is stopped. `driver`: the socket of the one that started it.
pub fn run(options: Options, driver: Option<OwnedFd>, place: Place) -> ExitCode {
    hoplo_shm::signals::reset();
    if place == Place::Background {
        // Ctrl-C in the driver's terminal is not for us. Fails if we lead a session already.
        let _ = rustix::process::setsid();
    }
    let options = Options { descriptors_of_workers: descriptors::raise_limit(), ..options };
    let mut again = Options::clone(&options);
    let stopped = Arc::new(AtomicBool::new(false));
    let prepared = begin(&options, place, &stopped, None).and_then(|daemon| {
        let Some(mut daemon) = daemon else { return Ok(None) };
        let added = driver.map_or(Ok(()), |driver| daemon.add_master(driver));
        added.map_err(|error| format!("the node daemon cannot start: {error}"))?;
        let _ = std::env::set_current_dir("/");
        Ok(Some(daemon))
    });
    let daemon = match prepared {
        Ok(Some(daemon)) => daemon,
        Ok(None) => return ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hoplo: {error}");
            return ExitCode::FAILURE;
        }
    };
    journal::abort_on_panic();
    println!("{}", daemon.session_dir().display());
    if daemon.goes_on() {
        println!("It goes on with the tables of a head that ended without `hoplo stop`.");
    }
    if let Some(moved) = daemon.moved() {
        println!("{moved}");
    }
    if let Some(invitation) = daemon.invitation() {
        println!("{invitation}");
    }
    let _ = std::io::stdout().flush();
    if place == Place::Background {
        close_standard_streams();
    }
    note_signals(&stopped);
    let mut daemon = daemon;
    loop {
        // From before its session ends until it has another one, `hoplo stop` finds it by this.
        let mut found = None;
        let ended = daemon.run(|ended| {
            // Its driver has lost it.
            if *ended != Ended::Stopped && !again.of_driver {
                let base = again.base.make().map_err(Into::into);
                found = base.and_then(JoinsAgain::begin).ok();
            }
        });
        let Ended::Fenced { why, head } = ended else { return ExitCode::SUCCESS };
        if let Some(join) = &mut again.join {
            join.comes_to(head);
        }
        if again.of_driver {
            return ExitCode::FAILURE;
        }
        let next = match again.over() {
            Some(_) => {
                let next = begin(&again, Place::Foreground, &stopped, found);
                next.map_err(journal::log).ok().flatten()
            }
            None => join_again(&again, &why, &stopped, found),
        };
        match next {
            Some(next) => daemon = next,
            None => return ExitCode::FAILURE,
        }
    }
}

/// A head over control nodes waits until it can be head. Absent if it was stopped meanwhile. `found`: by what `hoplo stop` finds it.
fn begin(
    options: &Options,
    place: Place,
    stopped: &Arc<AtomicBool>,
    mut found: Option<JoinsAgain>,
) -> Result<Option<Daemon>, String> {
    let Some(file) = options.over() else { return prepare(options.clone()).map(Some) };
    let file = &file.to_path_buf();
    let mut told = found.is_some();
    let mut taken = None;
    loop {
        match Daemon::begin(options.clone(), taken.take()) {
            Ok(daemon) => {
                let daemon = furnish(daemon)?;
                if stopped.load(Ordering::Relaxed) {
                    // Meanwhile: now it can end in order.
                    let _ = signal_hook::low_level::raise(SIGTERM);
                }
                return Ok(Some(daemon));
            }
            // The control nodes may be away for a while.
            Err(StartError::Seat(SeatError::Store(_)) | StartError::NotTaken(_)) if told => {}
            Err(StartError::Seat(error)) if told || may_wait(options, &error) => {
                if found.is_none() {
                    let base = options.base.make().map_err(Into::into);
                    found = base.and_then(JoinsAgain::begin).ok();
                }
                if !told {
                    note_signals(stopped);
                    println!("{}", waits_for(&error));
                    let _ = std::io::stdout().flush();
                    if place == Place::Background {
                        close_standard_streams();
                    }
                    told = true;
                }
            }
            Err(error) => return Err(in_words(&error)),
        }
        taken = stand_by(options, file, stopped)?;
        if taken.is_none() {
            return Ok(None);
        }
    }
}

/// For another head to end; or for control nodes, one of which was begun here just now.
fn may_wait(options: &Options, error: &SeatError) -> bool {
    let begins = options.listen.as_ref().is_some_and(|listen| listen.with_control_node);
    match error {
        SeatError::Taken { .. } | SeatError::Restored => true,
        SeatError::Store(_) => begins,
    }
}

fn waits_for(error: &SeatError) -> String {
    let pid = std::process::id();
    match error {
        SeatError::Taken { address } => format!(
            "The head of this cluster is at {address}. This process (pid {pid}) waits to take its place."
        ),
        SeatError::Restored => {
            format!("No head begins yet: {error}. Meanwhile this process (pid {pid}) waits.")
        }
        SeatError::Store(why) => format!(
            "Too few control nodes run yet: start them on the other machines. Meanwhile this process (pid {pid}) waits, to be \
             head or to take the head's place ({why})."
        ),
    }
}

/// Until this process has the seat, and listens; absent if somebody stops it.
fn stand_by(
    options: &Options,
    file: &Path,
    stopped: &AtomicBool,
) -> Result<Option<(Listening, Seated)>, String> {
    let cluster = Cluster::load(file).map_err(|error| error.to_string())?;
    let listen = options.listen.as_ref().expect("who may be head listens");
    let mut candidate = Candidate::new(&cluster).map_err(|error| error.to_string())?;
    loop {
        // The control nodes answer when they can.
        while !candidate.look().unwrap_or(false) {
            candidate.waits();
            if stopped.load(Ordering::Relaxed) {
                return Ok(None);
            }
        }
        let listening = listen.listens(None).map_err(|error| error.to_string())?;
        match Seated::take(&mut candidate, listening.address()) {
            Ok(seated) => return Ok(Some((listening, seated))),
            // Another one was faster.
            Err(StartError::Seat(_)) => {}
            Err(error) => return Err(in_words(&error)),
        }
    }
}

fn note_signals(stopped: &Arc<AtomicBool>) {
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        // Fails for signals that nobody can handle.
        let _ = signal_hook::flag::register(signal, Arc::clone(stopped));
    }
}

fn prepare(options: Options) -> Result<Daemon, String> {
    Daemon::new(options).map_err(|error| in_words(&error)).and_then(furnish)
}

fn furnish(mut daemon: Daemon) -> Result<Daemon, String> {
    journal::open(daemon.session_dir());
    listen_to_signals(&mut daemon)
        .and_then(|()| daemon.adopt_orphans())
        .map_err(|error| format!("the node daemon cannot start: {error}"))?;
    Ok(daemon)
}

/// Under a new number; the old one is dead. Absent if the cluster is not to be reached for long, or somebody stops this process.
/// `_found`: by what `hoplo stop` finds it until then.
fn join_again(
    options: &Options,
    why: &str,
    stopped: &AtomicBool,
    _found: Option<JoinsAgain>,
) -> Option<Daemon> {
    let until = Instant::now() + JOINS_AGAIN_WITHIN;
    while Instant::now() < until && !stopped.load(Ordering::Relaxed) {
        match prepare(options.clone()) {
            Ok(daemon) => {
                journal::log(format_args!("joined again under a new number, since: {why}"));
                if stopped.load(Ordering::Relaxed) {
                    // Meanwhile: now it can end in order.
                    let _ = signal_hook::low_level::raise(SIGTERM);
                }
                return Some(daemon);
            }
            Err(error) => {
                journal::log(format_args!("cannot join again ({why}): {error}"));
                std::thread::sleep(JOINS_AGAIN);
            }
        }
    }
    None
}

fn in_words(error: &StartError) -> String {
    let remedy = if is_full(error) {
        ": the disk is full. Delete something there, or set HOPLO_TMPDIR to a folder on another one"
    } else {
        ""
    };
    match error {
        StartError::Head(
            error @ (HeadError::Runs { .. } | HeadError::NodeRuns { .. } | HeadError::Stuck { .. }),
        ) => error.to_string(),
        error => format!("the node daemon cannot start: {error}{remedy}"),
    }
}

/// The control store says itself what to do about its disk.
fn is_full(error: &StartError) -> bool {
    let (StartError::Io(error)
    | StartError::Folder(FolderError::Io { error, .. })
    | StartError::Head(HeadError::Io(error))) = error
    else {
        return false;
    };
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

fn listen_to_signals(daemon: &mut Daemon) -> std::io::Result<()> {
    let (reader, writer) = UnixStream::pair()?;
    // A write beyond a limit on file sizes is an error like any other, not our end.
    signal_hook::flag::register(rustix::process::Signal::XFSZ.as_raw(), Arc::default())?;
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::low_level::pipe::register(signal, writer.try_clone()?)?;
    }
    daemon.stop_on(reader)
}

fn close_standard_streams() {
    let null = OpenOptions::new().read(true).write(true).open("/dev/null");
    let Ok(null) = null else { return };
    let _ = rustix::stdio::dup2_stdin(&null);
    let _ = rustix::stdio::dup2_stdout(&null);
    let _ = rustix::stdio::dup2_stderr(&null);
}
