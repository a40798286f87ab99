//! The zygote process: a Python that has imported what workers need, and forks them.
//!
//! It is started with the daemon, again when it dies, and after [`ZYGOTE_DEATHS_MAX`] deaths without a single
//! fork between them only when a fork is asked for.
//!
//! # Invariants
//! - ZYGOTE-1: the descriptors of a worker go to one zygote only. One that died may have forked the
//!   worker and not said so; a second worker with the same socket would speak over the first one.
//! - ZYGOTE-2: of the forks that a dead zygote did not answer, the first one failed, since it was
//!   served when the zygote died. The others were not begun: they are asked for again, before it is.
//!
//! The messages are described in `python/hoplo/_zygote.py`.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;

use hoplo_base::Size;
use hoplo_base::limits::{ZYGOTE_DEATHS_MAX, ZYGOTE_LAST_LINES, ZYGOTE_MESSAGE_BYTES_MAX};
use hoplo_folders::life::life;
use hoplo_shm::fds;
use hoplo_wire::node::{JobConfig, RuntimeEnv};
use serde::{Deserialize, Serialize};

use crate::descriptors::lower_limit_of;
use crate::environments::Program;
use crate::poll::{Poller, Source};
use crate::stream::{Amount, Filled, Stream};

/// A fork that no zygote will answer any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// Nobody began it.
    Undone { id: u64 },
    /// The zygote died of it, for all we know.
    Failed { id: u64, reason: String },
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub(crate) enum FromZygote {
    Forked {
        id: u64,
        pid: u32,
    },
    Failed {
        id: u64,
        error: String,
    },
    /// Its runtime environment cannot be made.
    Refused {
        id: u64,
        error: String,
    },
    Exited {
        pid: u32,
        status: i32,
    },
}

#[derive(Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
enum ToZygote<'a> {
    Fork {
        id: u64,
        env: BTreeMap<&'a str, &'a str>,
        #[serde(skip_serializing_if = "str::is_empty")]
        cwd: &'a str,
        #[serde(skip_serializing_if = "<[String]>::is_empty")]
        sys_path: &'a [String],
        argv0: &'a str,
        /// The driver's, such as `3.12`.
        #[serde(skip_serializing_if = "str::is_empty")]
        python: &'a str,
        /// Folders of the driver may be missing here, and the worker says so.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        clustered: bool,
        runtime_env: &'a RuntimeEnv,
        /// Of an environment with a Python of its own.
        #[serde(skip_serializing_if = "Option::is_none")]
        program: Option<&'a Program>,
    },
    Preload {
        modules: &'a [String],
    },
}

#[derive(Debug)]
pub(crate) struct Zygote {
    command: Vec<String>,
    /// Where the daemon was started: relative entries of PYTHONPATH begin there.
    folder: PathBuf,
    /// Soft limit on its open files, and its workers'.
    descriptors: Option<u64>,
    /// Its workers may be of jobs of other nodes.
    clustered: bool,
    running: Option<Running>,
    /// Forks that the running zygote was asked for and did not answer.
    asked: BTreeSet<u64>,
    lost: Vec<Lost>,
    /// Modules that were asked for, for the next zygote as well.
    modules: Vec<String>,
    deaths: u32,
    has_died: bool,
    last_lines: Vec<String>,
}

#[derive(Debug)]
struct Running {
    child: Child,
    stream: Stream,
    /// Absent once it is closed.
    output: Option<OwnedFd>,
    /// Readable when it has ended, even if its children keep its socket open.
    _life: Option<OwnedFd>,
    wants_writing: bool,
}

impl Zygote {
    /// `command` gets the number of its descriptor as last argument.
    pub(crate) fn new(command: Vec<String>, descriptors: Option<u64>, clustered: bool) -> Self {
        Self {
            command,
            descriptors,
            clustered,
            folder: std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/")),
            running: None,
            asked: BTreeSet::new(),
            lost: Vec::new(),
            modules: Vec::new(),
            deaths: 0,
            has_died: false,
            last_lines: Vec::new(),
        }
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.running.as_ref().map(|running| running.child.id())
    }

    /// Starts it unless it runs.
    pub(crate) fn start(&mut self, poller: &Poller) -> io::Result<()> {
        if self.running.is_none() {
            let running = spawn(&self.command, &self.folder, poller)?;
            if self.descriptors.is_some() {
                lower_limit_of(running.child.id(), self.descriptors);
            }
            self.running = Some(running);
            let modules = std::mem::take(&mut self.modules);
            self.preload(modules);
        }
        Ok(())
    }

    /// Asks for one worker: `fds` are its socket, its stdout and its stderr.
    pub(crate) fn fork(
        &mut self,
        poller: &Poller,
        id: u64,
        config: &JobConfig,
        env: &RuntimeEnv,
        program: Option<&Program>,
        fds: Rc<[OwnedFd]>,
    ) -> Result<(), String> {
        let argv0 = config.entrypoint.split_whitespace().next().unwrap_or("");
        let json = encode(&ToZygote::Fork {
            id,
            env: BTreeMap::new(),
            cwd: &config.cwd,
            sys_path: &config.sys_path,
            argv0,
            python: &config.python,
            clustered: self.clustered,
            runtime_env: env,
            program,
        });
        if json.len() > ZYGOTE_MESSAGE_BYTES_MAX {
            return Err(format!(
                "what its worker is to find (runtime_env, sys.path, folder) takes {}, and may take {}: \
                 make sys.path shorter, or put large variables into a file",
                Size(json.len() as u64),
                Size(ZYGOTE_MESSAGE_BYTES_MAX as u64)
            ));
        }
        let started = self.start(poller);
        started.map_err(|error| format!("{}: {error}", self.command.join(" ")))?;
        self.push(Some(fds), &json);
        self.asked.insert(id);
        Ok(())
    }

    pub(crate) fn preload(&mut self, modules: Vec<String>) {
        if self.running.is_some() && !modules.is_empty() {
            self.push(None, &encode(&ToZygote::Preload { modules: &modules }));
        }
        self.modules.extend(modules);
    }

    /// Whether somebody should look at its socket for room to write.
    pub(crate) fn flush(&mut self, poller: &Poller) {
        let Some(running) = &mut self.running else { return };
        // An error shows as the end of its socket.
        let done = running.stream.flush().unwrap_or(true);
        if running.wants_writing == done {
            running.wants_writing = !done;
            poller.watch_writing(&running.stream, Source::Zygote, !done);
        }
    }

    /// What it says; `None` when it is dead.
    pub(crate) fn read(&mut self, scratch: &mut [u8]) -> Option<Vec<FromZygote>> {
        let Some(running) = &mut self.running else { return Some(Vec::new()) };
        let filled = running.stream.fill(scratch, Amount::WhatLies);
        let mut said = Vec::new();
        loop {
            match running.stream.take_frame() {
                Ok(Some(body)) => match serde_json::from_slice(body) {
                    Ok(message) => said.push(message),
                    Err(_) => return None,
                },
                Ok(None) => break,
                Err(_) => return None,
            }
        }
        for message in &said {
            if let FromZygote::Forked { id, .. }
            | FromZygote::Failed { id, .. }
            | FromZygote::Refused { id, .. } = message
            {
                self.asked.remove(id);
                self.deaths = 0;
            }
        }
        let dead = match filled {
            Ok(Filled::Closed) | Err(_) => true,
            Ok(_) => !matches!(running.child.try_wait(), Ok(None)),
        };
        // What it said last is handled first; it stays dead.
        if dead && said.is_empty() { None } else { Some(said) }
    }

    /// What it prints.
    pub(crate) fn read_output(&mut self, scratch: &mut [u8]) -> String {
        let Some(Running { output: Some(output), .. }) = &mut self.running else {
            return String::new();
        };
        let bytes = match rustix::io::read(output, &mut *scratch) {
            Ok(bytes @ 1..) => bytes,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return String::new(),
            Ok(0) | Err(_) => {
                self.running.as_mut().expect("it was just read").output = None;
                return String::new();
            }
        };
        let text = String::from_utf8_lossy(&scratch[..bytes]).into_owned();
        self.last_lines.extend(text.lines().map(str::to_string));
        let surplus = self.last_lines.len().saturating_sub(ZYGOTE_LAST_LINES);
        self.last_lines.drain(..surplus);
        text
    }

    /// It is dead: takes it away, and starts the next one unless too many died.
    pub(crate) fn bury(&mut self, poller: &Poller, scratch: &mut [u8]) -> String {
        while !self.read_output(scratch).is_empty() {}
        let Some(mut running) = self.running.take() else { return String::new() };
        let _ = running.child.kill();
        let status = running.child.wait();
        let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
        self.deaths += 1;
        self.has_died = true;
        let mut unanswered = std::mem::take(&mut self.asked).into_iter();
        let first = unanswered.next();
        self.lost.extend(unanswered.map(|id| Lost::Undone { id }));
        if let Some(id) = first {
            let lines = std::mem::take(&mut self.last_lines).join("\n");
            let command = self.command.join(" ");
            let reason = format!("workers cannot be forked: {command} ended ({status})\n{lines}");
            self.lost.push(Lost::Failed { id, reason });
        }
        let mut text = format!("the zygote died ({status}, {} in a row)", self.deaths);
        if self.deaths < ZYGOTE_DEATHS_MAX
            && let Err(error) = self.start(poller)
        {
            text.push_str(&format!("; the next one does not start: {error}"));
        }
        text
    }

    /// Forks that dead zygotes did not answer; the one that failed comes last (ZYGOTE-2).
    pub(crate) fn take_lost(&mut self) -> Vec<Lost> {
        std::mem::take(&mut self.lost)
    }

    /// Whether one did: then there may be workers that no zygote waits for.
    pub(crate) fn has_died(&self) -> bool {
        self.has_died
    }

    /// Whether it will tell how the workers that it forked end.
    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Closes its socket, which makes it exit, and waits for it.
    pub(crate) fn stop(&mut self) {
        if let Some(Running { mut child, stream, .. }) = self.running.take() {
            drop(stream);
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn push(&mut self, fds: Option<Rc<[OwnedFd]>>, json: &[u8]) {
        let running = self.running.as_mut().expect("the caller looked");
        running.stream.push(fds, |out| {
            out.extend_from_slice(&(json.len() as u32).to_le_bytes());
            out.extend_from_slice(json);
        });
    }
}

fn encode(message: &ToZygote<'_>) -> Vec<u8> {
    serde_json::to_vec(message).expect("strings and numbers always serialize")
}

fn spawn(command: &[String], folder: &Path, poller: &Poller) -> io::Result<Running> {
    let (ours, theirs) = fds::socketpair()?;
    let (output, print) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    // The only thread that makes processes is this one: nobody else inherits it meanwhile.
    rustix::io::fcntl_setfd(&theirs, rustix::io::FdFlags::empty())?;
    let (program, arguments) = command.split_first().expect("a command has a program");
    let folder = if folder.is_dir() { folder } else { Path::new("/") };
    let child = Command::new(program)
        .current_dir(folder)
        .args(arguments)
        // What runs here may not let others join.
        .env_remove(hoplo_net::token::VARIABLE)
        .arg(theirs.as_fd().as_raw_fd().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::from(print.try_clone()?))
        .stderr(Stdio::from(print))
        .spawn()?;
    rustix::io::ioctl_fionbio(&output, true)?;
    let stream = Stream::new(ours, ZYGOTE_MESSAGE_BYTES_MAX)?;
    poller.add(&stream, Source::Zygote)?;
    poller.add(&output, Source::ZygoteOutput)?;
    let life = life(child.id()).ok();
    if let Some(life) = &life {
        poller.add(life, Source::Zygote)?;
    }
    Ok(Running { child, stream, output: Some(output), _life: life, wants_writing: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_those_of_the_python_side() {
        let modules = vec!["numpy".to_string()];
        let text = String::from_utf8(encode(&ToZygote::Preload { modules: &modules })).unwrap();
        assert_eq!(text, r#"{"op":"preload","modules":["numpy"]}"#);
        let env = RuntimeEnv::default();
        let fork = ToZygote::Fork {
            id: 3,
            env: BTreeMap::new(),
            cwd: "/w",
            sys_path: &modules,
            argv0: "x.py",
            python: "",
            clustered: false,
            runtime_env: &env,
            program: None,
        };
        assert_eq!(
            String::from_utf8(encode(&fork)).unwrap(),
            r#"{"op":"fork","id":3,"env":{},"cwd":"/w","sys_path":["numpy"],"argv0":"x.py","runtime_env":{"env_vars":{},"working_dir":null,"py_modules":[],"group":null,"python":null}}"#
        );
        let exited: FromZygote =
            serde_json::from_str(r#"{"op":"exited","pid":4242,"status":-9}"#).unwrap();
        assert_eq!(exited, FromZygote::Exited { pid: 4242, status: -9 });
        assert!(serde_json::from_str::<FromZygote>(r#"{"op":"boom"}"#).is_err());
    }

    /// A zygote that reads for ever and answers nothing.
    fn mute() -> (Zygote, Poller) {
        let command = ["/bin/sh", "-c", "exec sleep 1000"].map(str::to_string);
        let (mut zygote, poller) =
            (Zygote::new(command.to_vec(), Some(512), false), Poller::new().unwrap());
        zygote.start(&poller).unwrap();
        (zygote, poller)
    }

    fn fds() -> Rc<[OwnedFd]> {
        let (read, write) = rustix::pipe::pipe().unwrap();
        vec![read, write].into()
    }

    #[test]
    fn a_dead_zygotes_descriptors_went_to_the_next_one_as_well() {
        let (mut zygote, poller) = mute();
        let (config, env) = (JobConfig::default(), RuntimeEnv::default());
        for id in 1..=3 {
            zygote.fork(&poller, id, &config, &env, None, fds()).unwrap();
        }
        let text = zygote.bury(&poller, &mut [0; 64]);
        assert!(text.contains("1 in a row"), "{text}");
        assert!(zygote.is_running() && zygote.asked.is_empty());
        let lost = zygote.take_lost();
        assert_eq!(lost[..2], [Lost::Undone { id: 2 }, Lost::Undone { id: 3 }]);
        assert!(
            matches!(&lost[2], Lost::Failed { id: 1, reason } if reason.contains("sleep 1000"))
        );
        assert_eq!(zygote.take_lost(), []);
        zygote.stop();
    }

    #[test]
    fn a_fork_with_too_large_an_environment_killed_the_zygote() {
        let (mut zygote, poller) = mute();
        let mut env = RuntimeEnv::default();
        env.env_vars.insert("A".to_string(), "x".repeat(ZYGOTE_MESSAGE_BYTES_MAX));
        let refused =
            zygote.fork(&poller, 1, &JobConfig::default(), &env, None, fds()).unwrap_err();
        assert!(refused.contains("1.0 MiB"), "{refused}");
        assert!(zygote.asked.is_empty());
        zygote.stop();
    }
}
