//! Builders of environments: programs beside the daemon that make Pythons for workers, and what they made.
//!
//! ```text
//!   daemon --spawn: request on stdin--> builder --> pip, uv, or the user's own program
//!     ^  ^                                 |  |
//!     |  +-- lines for people (a pipe) ----+  +-- how a worker starts in it --> a file in memory
//!     +----- its end (a pidfd): 0, and that file is read; else the last lines say what is wrong
//! ```
//! What is built lies in `<base>/environments/KEY`, for all daemons of this user. KEY is a hash of what is wanted, of the
//! Python that builds it, of our version and of the machine's kind. The daemon opens `KEY.lock` and hands it to the
//! builder, which takes the lock shared: since the two have one open file, the daemon has the lock from then on. Who removes environments must
//! have that lock alone. So what is held here stays, and the daemon itself never waits for a lock.
//!
//! # Invariants
//! - BUILD-1: a builder leads a process group, and is killed with all of it.
//! - BUILD-2: nothing of a builder is read by waiting.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use hoplo_base::limits::{ENVIRONMENT_LAST_LINES, ENVIRONMENT_PROGRAM_BYTES_MAX};
use hoplo_folders::life::life;
use hoplo_wire::node::PythonEnv;
use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};

use crate::output::Pipe;
use crate::poll::{Poller, Source};

/// How a worker is started in an environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Program {
    /// What stands before the script of ours.
    argv: Vec<String>,
    /// To be set, over those of the daemon and under those of the task.
    variables: BTreeMap<String, String>,
    /// The packages of the driver are seen as well.
    inherits: bool,
}

#[derive(Debug)]
pub(crate) struct Environments {
    home: PathBuf,
    /// Of this node: it runs the builders.
    python: String,
    building: BTreeMap<u64, Building>,
    /// What a builder started may be our child since that ended, and nobody has looked.
    pub(crate) has_built: bool,
    held: BTreeMap<PythonEnv, Held>,
}

#[derive(Debug)]
struct Building {
    python: PythonEnv,
    child: Child,
    pipe: Pipe,
    /// Readable when it has ended.
    _life: OwnedFd,
    program: File,
    lock: Option<File>,
    last_lines: Vec<String>,
}

#[derive(Debug)]
struct Held {
    program: Program,
    /// Has the lock that keeps it from being removed; of a program of the user's own there is none.
    _lock: Option<File>,
}

#[derive(Serialize)]
struct Request<'a> {
    spec: &'a str,
    home: String,
    key: String,
}

impl Environments {
    /// `home`: where environments are kept; `python`: of this node.
    pub(crate) fn new(home: PathBuf, python: String) -> Self {
        Self { home, python, building: BTreeMap::new(), has_built: false, held: BTreeMap::new() }
    }

    /// Starts a builder. The error says what is wrong with this node.
    pub(crate) fn build(
        &mut self,
        poller: &Poller,
        ticket: u64,
        python: PythonEnv,
        logs: &Path,
    ) -> Result<(), String> {
        let key = self.key(&python);
        let lock = self.lock(&python, &key)?;
        let told = |error: io::Error| format!("its builder does not start: {error}");
        let request =
            Request { spec: &python.spec, home: self.home.display().to_string(), key: key.clone() };
        let request = serde_json::to_vec(&request).expect("strings always serialize");
        let mut stdin = in_memory("hoplo-request").map_err(told)?;
        stdin.write_all(&request).and_then(|()| stdin.rewind()).map_err(told)?;
        let program = in_memory("hoplo-program").map_err(told)?;
        let (output, print) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .map_err(|e| told(e.into()))?;
        let mut command = self.command();
        for inherited in [Some(&program), lock.as_ref()] {
            command.arg(inherited.map_or("-".to_string(), |file| file.as_raw_fd().to_string()));
        }
        command.stdin(stdin).stdout(print.try_clone().map_err(told)?).stderr(print);
        // The only thread that makes processes is this one: nobody else inherits them meanwhile.
        for file in [Some(&program), lock.as_ref()].into_iter().flatten() {
            rustix::io::fcntl_setfd(file, rustix::io::FdFlags::empty())
                .map_err(|e| told(e.into()))?;
        }
        let spawned = command.spawn();
        for file in [Some(&program), lock.as_ref()].into_iter().flatten() {
            rustix::io::fcntl_setfd(file, rustix::io::FdFlags::CLOEXEC)
                .map_err(|e| told(e.into()))?;
        }
        drop(command); // It has the pipe's other end.
        let mut child = spawned.map_err(|error| told(with_name(&self.python, &error)))?;
        let watched = life(child.id()).and_then(|life| {
            let mut pipe = Pipe::new(output)?;
            pipe.name(logs.join(format!("environment-{}.log", &key[..12])));
            poller.add(pipe.fd(), Source::BuilderOutput(ticket))?;
            poller.add(&life, Source::Builder(ticket))?;
            Ok((life, pipe))
        });
        match watched {
            Ok((life, pipe)) => {
                let last_lines = Vec::new();
                let building =
                    Building { python, child, pipe, _life: life, program, lock, last_lines };
                self.building.insert(ticket, building);
                Ok(())
            }
            Err(error) => {
                kill_group(child.id());
                let _ = child.wait();
                Err(told(error))
            }
        }
    }

    /// What it prints.
    pub(crate) fn read_output(&mut self, poller: &Poller, ticket: u64, scratch: &mut [u8]) {
        let Some(building) = self.building.get_mut(&ticket) else { return };
        if !building.read(scratch) {
            poller.remove(building.pipe.fd());
        }
    }

    /// The kernel says that it has ended: whether it made the environment, and what it said last if not.
    /// Its descriptors are closed, and watched no more.
    pub(crate) fn ended(&mut self, ticket: u64, scratch: &mut [u8]) -> Option<Result<(), String>> {
        // Before it is waited for: until then its number is nobody else's.
        kill_group(self.building.get(&ticket)?.child.id());
        let mut building = self.building.remove(&ticket).expect("it was just looked up");
        let status = building.child.wait();
        self.has_built = true;
        // Bounded: what it left behind may print on.
        for _ in 0..8 {
            if !building.read(scratch) || !building.pipe.has_more() {
                break;
            }
        }
        building.last_lines.extend(building.pipe.rest());
        let said = building.last_lines.join("\n");
        let program = match status {
            Ok(status) if status.success() => building.program(),
            Ok(status) if said.is_empty() => Err(format!("its builder ended ({status})")),
            Ok(status) if status.code() == Some(1) => Err(said),
            Ok(status) => Err(format!("its builder ended ({status}):\n{said}")),
            Err(error) => Err(format!("how its builder ended is not known: {error}")),
        };
        Some(program.map(|program| {
            let held = Held { program, _lock: building.lock };
            self.held.insert(building.python, held);
        }))
    }

    /// Ends it, with what it started.
    pub(crate) fn stop(&mut self, ticket: u64) {
        if let Some(building) = self.building.get(&ticket) {
            kill_group(building.child.id());
        }
    }

    /// Others may remove it.
    pub(crate) fn let_go(&mut self, python: &PythonEnv) {
        self.held.remove(python);
    }

    pub(crate) fn program(&self, python: &PythonEnv) -> Option<&Program> {
        self.held.get(python).map(|held| &held.program)
    }

    /// Of builders, which are our children.
    pub(crate) fn pids(&self) -> impl Iterator<Item = u32> {
        self.building.values().map(|building| building.child.id())
    }

    /// Ends all builders, and waits for them.
    pub(crate) fn close(&mut self) {
        for building in self.building.values_mut() {
            kill_group(building.child.id());
            let _ = building.child.wait();
        }
        self.building.clear();
    }

    fn command(&self) -> Command {
        // As the zygote's: a random.py where the user happens to be is not the standard library's.
        let program = "from hoplo._build_environment import main; main()";
        let mut command = Command::new(&self.python);
        command.args(["-P", "-c", program]).process_group(0);
        command.env_remove(hoplo_net::token::VARIABLE);
        command
    }

    fn key(&self, python: &PythonEnv) -> String {
        let own = Path::new(&self.python).canonicalize().unwrap_or_default();
        let own = own.display().to_string();
        let parts =
            [&python.spec, &self.python, &own, env!("CARGO_PKG_VERSION"), std::env::consts::ARCH];
        blake3::hash(parts.join("\0").as_bytes()).to_hex()[..32].to_string()
    }

    /// The file whose lock the builder takes; what is not built needs none.
    fn lock(&self, python: &PythonEnv, key: &str) -> Result<Option<File>, String> {
        if python.spec.starts_with("{\"py_executable\":") {
            return Ok(None);
        }
        let place = &self.home;
        let told = |error: io::Error| {
            format!(
                "{} cannot be written: {error}. Set HOPLO_TMPDIR to a folder that can, and start the node again",
                place.display()
            )
        };
        DirBuilder::new().recursive(true).mode(0o700).create(place).map_err(told)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        options.open(place.join(format!("{key}.lock"))).map(Some).map_err(told)
    }
}

impl Building {
    /// Whether there may be more.
    fn read(&mut self, scratch: &mut [u8]) -> bool {
        let (lines, more) = self.pipe.read(scratch);
        self.last_lines.extend(lines);
        let surplus = self.last_lines.len().saturating_sub(ENVIRONMENT_LAST_LINES);
        self.last_lines.drain(..surplus);
        more
    }

    fn program(&mut self) -> Result<Program, String> {
        let mut text = Vec::new();
        let read = self.program.rewind().and_then(|()| {
            let mut some = (&mut self.program).take(ENVIRONMENT_PROGRAM_BYTES_MAX as u64);
            some.read_to_end(&mut text)
        });
        read.map_err(|error| format!("what its builder made cannot be read: {error}"))?;
        serde_json::from_slice(&text)
            .map_err(|error| format!("what its builder made cannot be understood: {error}"))
    }
}

fn in_memory(name: &str) -> io::Result<File> {
    Ok(rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC)?.into())
}

fn with_name(program: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{program}: {error}"))
}

/// Its leader was not waited for yet.
fn kill_group(leader: u32) {
    if let Some(leader) = i32::try_from(leader).ok().and_then(Pid::from_raw) {
        // Nobody in it is left.
        let _ = rustix::process::kill_process_group(leader, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(spec: &str) -> PythonEnv {
        PythonEnv { spec: spec.to_string(), what: "pip install a".to_string(), patience_s: 0 }
    }

    const PIP: &str = "{\"pip\":{\"packages\":[\"a\"]}}";
    const EXECUTABLE: &str = "{\"py_executable\":\"p\"}";

    /// What becomes of an environment whose builder is run by this program.
    fn built_by(program: &str) -> Result<(), String> {
        let folder = std::env::temp_dir().join(format!("hoplo-build-{}", std::process::id()));
        let mut environments = Environments::new(folder.clone(), program.to_string());
        let mut poller = Poller::new().unwrap();
        environments.build(&poller, 1, asked(EXECUTABLE), &folder)?;
        assert_eq!(environments.pids().count(), 1);
        loop {
            let ready = poller.wait(None).unwrap();
            let has = |source: Source| ready.iter().any(|it| it.source == source);
            if has(Source::BuilderOutput(1)) {
                environments.read_output(&poller, 1, &mut [0; 64]);
            }
            if has(Source::Builder(1)) {
                return environments.ended(1, &mut [0; 64]).expect("it is known");
            }
        }
    }

    #[test]
    fn a_builder_that_ends_without_a_word_is_told_with_its_status() {
        assert_eq!(built_by("false"), Err("its builder ended (exit status: 1)".to_string()));
        let text = built_by("true").unwrap_err();
        assert!(text.contains("what its builder made cannot be understood"), "{text}");
        let text = built_by("/nowhere/python").unwrap_err();
        assert!(text.contains("its builder does not start: /nowhere/python: No such"), "{text}");
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named_and_what_is_not_built_needs_none() {
        let environments = Environments::new(PathBuf::from("/proc/none"), "python3".to_string());
        assert!(environments.lock(&asked(EXECUTABLE), "k").unwrap().is_none());
        let text = environments.lock(&asked(PIP), "k").unwrap_err();
        assert!(text.contains("/proc/none cannot be written") && text.contains("HOPLO_TMPDIR"));
    }

    #[test]
    fn what_is_installed_and_by_which_python_make_the_key() {
        let of = |python: &str, spec: &str| {
            Environments::new(PathBuf::new(), python.to_string()).key(&asked(spec))
        };
        assert_eq!(of("python3", PIP), of("python3", PIP));
        assert_ne!(of("python3", PIP), of("python3.12", PIP));
        assert_ne!(of("python3", PIP), of("python3", EXECUTABLE));
    }
}
