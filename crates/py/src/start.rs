//! `init` and `shutdown`: a daemon of our own at the other end of a socket pair, or one that runs.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use hoplo_base::limits::DAEMON_END_PATIENCE;
use hoplo_client::Client;
use hoplo_folders::join::{self, JoinError, Joined};
use hoplo_folders::life::{first_ends, life};
use hoplo_folders::{Places, SessionFolder, Wait};
use hoplo_wire::node::{JobConfig, Role, RuntimeEnv};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rustix::fs::MemfdFlags;

use crate::errors;
use crate::hooks::{self, DriverHooks};
use crate::options;
use crate::packages;
use crate::session::{self, Session};

/// The fields of `hoplo._api.InitConfig`.
#[derive(FromPyObject)]
pub(crate) struct InitConfig<'py> {
    address: Option<String>,
    cluster: Option<String>,
    token_file: Option<OsString>,
    num_cpus: Option<f64>,
    num_gpus: Option<f64>,
    memory: Option<f64>,
    resources: Bound<'py, PyAny>,
    labels: Bound<'py, PyAny>,
    object_store_memory: Option<u64>,
    namespace: Option<String>,
    log_to_driver: bool,
    folds_output: bool,
    runtime_env: Option<String>,
    temp_dir: Option<OsString>,
    daemon_program: OsString,
    python: OsString,
    sys_path: Vec<String>,
    cwd: Option<String>,
    argv0: String,
    preload: Vec<String>,
    python_version: String,
    locality: bool,
    task_events: bool,
}

/// Starts or joins a node.
#[pyfunction]
pub(crate) fn init<'py>(py: Python<'py>, config: InitConfig<'py>) -> PyResult<Bound<'py, PyDict>> {
    if session::live().is_some() {
        return Err(pyo3::exceptions::PyRuntimeError::new_err("hoplo is initialized already"));
    }
    let job = job_config(py, &config)?;
    let mut signals = Signals::default();
    let joined = match (&config.address, &config.cluster) {
        (Some(address), _) => Some(join(py, address, &mut signals)?),
        (None, Some(cluster)) => join_here(py, cluster, &mut signals)?,
        (None, None) => None,
    };
    let (Joined { socket, pid }, daemon) = match joined {
        Some(joined) => (joined, None),
        None => {
            let (socket, daemon) = start_daemon(py, &config)?;
            (Joined { socket, pid: daemon.child.id() }, Some(daemon))
        }
    };
    let hooks = DriverHooks::start().map_err(|error| {
        errors::connection_failed(py, &format!("cannot start a thread: {error}"))
    })?;
    let connected = py.detach(|| {
        let mut wanted = || signals.none();
        let mut wait = match &daemon {
            Some(_) => Wait::for_start(&mut wanted),
            None => Wait::for_answer(&mut wanted),
        };
        wait.pid = pid;
        Client::connect(socket, Role::Driver, Some(job.clone()), Box::new(hooks), &mut wait)
    });
    let (client, daemon) = match (connected, daemon) {
        (Ok(client), daemon) => (client, daemon),
        (Err(error), daemon) => {
            // Its socket is closed: it ends.
            let said = daemon.and_then(|mut daemon| py.detach(|| daemon.last_words()));
            let text = said.unwrap_or_else(|| error.to_string());
            return Err(signals.raised.unwrap_or_else(|| errors::connection_failed(py, &text)));
        }
    };
    if !config.locality {
        client.ignore_where_arguments_lie();
    }
    if !config.task_events {
        client.tell_no_runs();
    }
    let session = Session::new(client, false, job);
    *session.daemon.lock() = daemon.map(|daemon| daemon.child);
    let welcome = session.client.welcome();
    let info = PyDict::new(py);
    info.set_item("address", &session.address)?;
    info.set_item("node_id", format!("{:06x}", welcome.node.number()))?;
    info.set_item("job_id", format!("{:016x}", welcome.job.0))?;
    info.set_item("session_dir", &welcome.session_dir)?;
    info.set_item("namespace", &session.namespace)?;
    info.set_item("node_ip_address", "127.0.0.1")?;
    session::enter(Arc::new(session));
    if let Some(json) = &config.runtime_env
        && let Err(error) = packages::enter_job(py, json)
    {
        shutdown(py);
        return Err(error);
    }
    Ok(info)
}

/// Leaves the session, and ends what `init` started. Does nothing when there is none.
#[pyfunction]
pub(crate) fn shutdown(py: Python<'_>) {
    let Some(session) = session::leave() else { return };
    let daemon = session.daemon.lock().take();
    py.detach(|| {
        session.close();
        if let Some(mut daemon) = daemon {
            await_end(&mut daemon);
        }
        hooks::finish_printing();
    });
}

#[pyfunction]
pub(crate) fn is_initialized() -> bool {
    session::live().is_some()
}

struct Daemon {
    child: Child,
    stderr: File,
}

impl Daemon {
    /// Why it did not come up, if it ended by itself.
    fn last_words(&mut self) -> Option<String> {
        await_end(&mut self.child);
        let mut text = String::new();
        let read = self.stderr.seek(SeekFrom::Start(0));
        // Without its words there is still its status.
        let _ = read.and_then(|_| self.stderr.read_to_string(&mut text));
        let text = text.trim().trim_start_matches("hoplo: ");
        match self.child.try_wait() {
            Ok(Some(status)) if !status.success() && status.code().is_some() => {
                Some(if text.is_empty() {
                    format!("the node daemon ended at once ({status})")
                } else {
                    text.to_string()
                })
            }
            _ => None,
        }
    }
}

/// The socket is its standard input, so that nothing else inherits it.
fn start_daemon(py: Python<'_>, config: &InitConfig<'_>) -> PyResult<(OwnedFd, Daemon)> {
    let failed = |error: std::io::Error| {
        let text = format!("{} cannot be started: {error}", config.daemon_program.display());
        errors::connection_failed(py, &text)
    };
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    let stderr = rustix::fs::memfd_create("hoplo-daemon-stderr", MemfdFlags::CLOEXEC)
        .map(File::from)
        .map_err(|error| failed(error.into()))?;
    let mut command = Command::new(&config.daemon_program);
    command.args(["daemon", "--fd", "0", "--python"]).arg(&config.python);
    let number = |flag: &str, value: Option<f64>| {
        value.map(|value| [flag.to_string(), value.to_string()]).into_iter().flatten()
    };
    command.args(number("--num-cpus", config.num_cpus));
    command.args(number("--num-gpus", config.num_gpus));
    command.args(number("--memory", config.memory));
    if let Some(bytes) = config.object_store_memory {
        command.args(["--object-store-memory".to_string(), bytes.to_string()]);
    }
    let labels = PyDict::new(py);
    labels.update(config.labels.cast()?)?;
    hoplo_base::labels::check(&labels.extract()?)
        .map_err(|error| PyValueError::new_err(format!("init(labels): {error}")))?;
    for (flag, given) in [("--resources", &config.resources), ("--labels", &config.labels)] {
        if given.len()? > 0 {
            let items = PyDict::new(py);
            items.update(given.cast()?)?;
            let json: String = py.import("json")?.call_method1("dumps", (items,))?.extract()?;
            command.args([flag, &json]);
        }
    }
    if let Some(cluster) = &config.cluster {
        // Nothing runs on it but this program.
        command.args(["--address", cluster, "--num-cpus", "0", "--num-gpus", "0"]);
    }
    if let Some(file) = &config.token_file {
        command.arg("--token-file").arg(file);
    }
    if let Some(folder) = &config.temp_dir {
        command.env("HOPLO_TMPDIR", folder);
    }
    command
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(stderr.try_clone().map_err(failed)?)
        .process_group(0); // a Ctrl-C at the terminal is for the driver
    let child = py.detach(|| command.spawn()).map_err(failed)?;
    Ok((OwnedFd::from(ours), Daemon { child, stderr }))
}

/// Signals that came while we wait.
#[derive(Default)]
struct Signals {
    /// What a handler raised.
    raised: Option<PyErr>,
}

impl Signals {
    /// Runs handlers; whether none has raised.
    fn none(&mut self) -> bool {
        let check = || Python::attach(|py| py.check_signals()).err();
        self.raised = self.raised.take().or_else(check);
        self.raised.is_none()
    }
}

/// A node that runs.
fn join(py: Python<'_>, address: &str, signals: &mut Signals) -> PyResult<Joined> {
    let joined = py.detach(|| {
        let mut wanted = || signals.none();
        let mut wait = Wait::for_answer(&mut wanted);
        match address {
            "auto" => join_any(&mut wait),
            path => join_at(Path::new(path), &mut wait),
        }
    });
    match (joined, signals.raised.take()) {
        (_, Some(error)) => Err(error),
        (Ok(joined), None) => Ok(joined),
        (Err(text), None) => Err(errors::connection_failed(py, &text)),
    }
}

/// A node of that cluster which runs on this machine, if one does.
fn join_here(py: Python<'_>, cluster: &str, signals: &mut Signals) -> PyResult<Option<Joined>> {
    let found = py.detach(|| {
        let base = Places::of_environment().find().map_err(|error| error.to_string())?;
        let wanted: Vec<SocketAddr> = addresses(cluster);
        let is_of_it = |session: &SessionFolder| {
            let its = session.cluster();
            its.is_some_and(|its| {
                its == cluster || addresses(&its).iter().any(|at| wanted.contains(at))
            })
        };
        let live = base.map(|base| base.live()).unwrap_or_default();
        Ok(live.into_iter().find(is_of_it))
    });
    let session = found.map_err(|text: String| errors::connection_failed(py, &text))?;
    let Some(session) = session else { return Ok(None) };
    let joined = py.detach(|| {
        let mut wanted = || signals.none();
        session.connect(&mut Wait::for_answer(&mut wanted))
    });
    match (joined, signals.raised.take()) {
        (_, Some(error)) => Err(error),
        (Ok(joined), None) => Ok(Some(joined)),
        // It ended just now.
        (Err(JoinError::Io(_)), None) => Ok(None),
        (Err(error), None) => {
            let text = format!("{}: {error}", session.path().display());
            Err(errors::connection_failed(py, &text))
        }
    }
}

/// Of one, or of several with commas between. Whoever cannot be resolved is found by its name alone.
fn addresses(named: &str) -> Vec<SocketAddr> {
    let named = named.split(',').map(str::trim);
    named.flat_map(|one| one.to_socket_addrs().into_iter().flatten()).collect()
}

/// The one that `hoplo start` left; else that of the program which began last.
fn join_any(wait: &mut Wait<'_>) -> Result<Joined, String> {
    let none = |why: String| {
        format!(
            "no node runs on this machine ({why}): start one by `hoplo start --head`, or call init() without an \
             address for a node of this program's own"
        )
    };
    let places = Places::of_environment();
    let base = places.find().map_err(|error| error.to_string())?;
    let base = base.ok_or_else(|| none(format!("there is no {places}")))?;
    let at = |session: &SessionFolder, error: JoinError| {
        format!("{}: {error}", session.path().display())
    };
    if let Some(head) = base.current() {
        return head.connect(wait).map_err(|error| at(&head, error));
    }
    for session in base.of_programs() {
        match session.connect(wait) {
            Err(JoinError::Io(_)) => {} // it ends just now
            joined => return joined.map_err(|error| at(&session, error)),
        }
    }
    Err(none(format!("none in {}", base.path().display())))
}

fn join_at(path: &Path, wait: &mut Wait<'_>) -> Result<Joined, String> {
    join::named(path, wait).map_err(|error| match error {
        JoinError::Io(error) => format!("no node answers at {}: {error}", path.display()),
        error => format!("{}: {error}", path.display()),
    })
}

fn job_config(py: Python<'_>, config: &InitConfig<'_>) -> PyResult<JobConfig> {
    let env = match &config.runtime_env {
        Some(json) => options::runtime_env(py, json)?,
        None => RuntimeEnv::default(),
    };
    if config.namespace.as_ref().is_some_and(|name| name.contains('\0')) {
        return Err(PyValueError::new_err("a namespace cannot hold a zero byte"));
    }
    Ok(JobConfig {
        cwd: config.cwd.clone().unwrap_or_default(),
        sys_path: config.sys_path.clone(),
        namespace: config.namespace.clone().unwrap_or_else(unique_name),
        log_to_driver: config.log_to_driver,
        folds_output: config.folds_output,
        preload: config.preload.clone(),
        entrypoint: config.argv0.clone(),
        python: config.python_version.clone(),
        env,
    })
}

/// A namespace that nobody else has.
fn unique_name() -> String {
    use std::hash::{BuildHasher, Hasher, RandomState};
    let random = RandomState::new().build_hasher().finish();
    format!("anonymous-{random:016x}")
}

/// It ends because we have left it; one that takes too long is killed. The descriptor for that is opened here: one
/// that was kept could be closed by the program's code meanwhile, and its number another file's.
fn await_end(daemon: &mut Child) {
    let deadline = Instant::now() + DAEMON_END_PATIENCE;
    // An error means that somebody else has reaped it: it is gone.
    if let Ok(None) = daemon.try_wait() {
        let ends = life(daemon.id()).and_then(|life| first_ends(&[life], deadline));
        if ends.is_ok_and(|ended| ended[0]) {
            let _ = daemon.try_wait();
        } else {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}
