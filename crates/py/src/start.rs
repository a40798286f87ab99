//! `init` and `shutdown`: a daemon of our own at the other end of a socket pair, or one that runs.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hoplo_client::Client;
use hoplo_folders::join::{self, JoinError, Joined};
use hoplo_folders::{Places, Wait};
use hoplo_wire::node::{JobConfig, Role, RuntimeEnv};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rustix::fs::MemfdFlags;

use crate::hooks::{self, DriverHooks};
use crate::options;
use crate::python;
use crate::session::{self, Session};

/// How long a daemon of our own may take to end once its driver is gone; then it is killed.
const DAEMON_END_MAX: Duration = Duration::from_secs(5);

/// The fields of `hoplo._api.InitConfig`.
#[derive(FromPyObject)]
pub(crate) struct InitConfig<'py> {
    address: Option<String>,
    num_cpus: Option<f64>,
    num_gpus: Option<f64>,
    memory: Option<f64>,
    resources: Bound<'py, PyAny>,
    object_store_memory: Option<u64>,
    namespace: Option<String>,
    log_to_driver: bool,
    runtime_env: Option<String>,
    temp_dir: Option<String>,
    daemon_program: String,
    python: String,
    sys_path: Vec<String>,
    cwd: Option<String>,
    argv0: String,
    preload: Vec<String>,
}

/// Starts or joins a node.
#[pyfunction]
pub(crate) fn init<'py>(py: Python<'py>, config: InitConfig<'py>) -> PyResult<Bound<'py, PyDict>> {
    if session::live().is_some() {
        return Err(pyo3::exceptions::PyRuntimeError::new_err("hoplo is initialized already"));
    }
    let (socket, daemon) = match &config.address {
        None => {
            let (socket, daemon) = start_daemon(py, &config)?;
            (socket, Some(daemon))
        }
        Some(address) => (join(py, address)?.socket, None),
    };
    let job = job_config(py, &config)?;
    let hooks = DriverHooks::start()
        .map_err(|error| python::connection_failed(py, &format!("no thread: {error}")))?;
    let connected =
        py.detach(|| Client::connect(socket, Role::Driver(job.clone()), Box::new(hooks)));
    let (client, daemon) = match (connected, daemon) {
        (Ok(client), daemon) => (client, daemon),
        (Err(error), None) => return Err(python::connect_error(py, &error)),
        (Err(error), Some(mut daemon)) => {
            let said = py.detach(|| daemon.last_words());
            let text = format!("{error}: {} {said}", config.daemon_program);
            return Err(python::connection_failed(py, &text));
        }
    };
    let session = Session::new(client, false, job);
    *session.daemon.lock() = daemon.map(|daemon| daemon.child);
    let welcome = session.client.welcome();
    let info = PyDict::new(py);
    info.set_item("address", &session.address)?;
    info.set_item("node_id", format!("{:016x}", welcome.node.0))?;
    info.set_item("job_id", format!("{:08x}", welcome.job.0))?;
    info.set_item("session_dir", &welcome.session_dir)?;
    info.set_item("namespace", &session.namespace)?;
    info.set_item("node_ip_address", "127.0.0.1")?;
    session::enter(Arc::new(session));
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
    /// Why it did not come up.
    fn last_words(&mut self) -> String {
        await_end(&mut self.child);
        let mut text = String::new();
        let read = self.stderr.seek(SeekFrom::Start(0));
        // Without its words there is still its status.
        let _ = read.and_then(|_| self.stderr.read_to_string(&mut text));
        let status = match self.child.try_wait() {
            Ok(Some(status)) => status.to_string(),
            _ => "no status".to_string(),
        };
        format!("({status}) {}", text.trim())
    }
}

/// The socket is its standard input, so that nothing else inherits it.
fn start_daemon(py: Python<'_>, config: &InitConfig<'_>) -> PyResult<(OwnedFd, Daemon)> {
    let failed = |error: std::io::Error| {
        let text = format!("{} cannot be started: {error}", config.daemon_program);
        python::connection_failed(py, &text)
    };
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    let stderr = rustix::fs::memfd_create("hoplo-daemon-stderr", MemfdFlags::CLOEXEC)
        .map(File::from)
        .map_err(|error| failed(error.into()))?;
    let mut command = Command::new(&config.daemon_program);
    command.arg("daemon").args(["--fd", "0", "--python", &config.python]);
    let number = |flag: &str, value: Option<f64>| {
        value.map(|value| [flag.to_string(), value.to_string()]).into_iter().flatten()
    };
    command.args(number("--num-cpus", config.num_cpus));
    command.args(number("--num-gpus", config.num_gpus));
    command.args(number("--memory", config.memory));
    if let Some(bytes) = config.object_store_memory {
        command.args(["--object-store-memory".to_string(), bytes.to_string()]);
    }
    if config.resources.len()? > 0 {
        let items = PyDict::new(py);
        items.update(config.resources.cast()?)?;
        let json: String = py.import("json")?.call_method1("dumps", (items,))?.extract()?;
        command.args(["--resources", &json]);
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

/// A node that runs. Signals are handled meanwhile.
fn join(py: Python<'_>, address: &str) -> PyResult<Joined> {
    let mut raised = None;
    let mut wanted = || raised_none(&mut raised);
    let mut wait = Wait::for_answer(&mut wanted);
    let joined = py.detach(|| {
        if address == "auto" {
            join_head(&mut wait)
        } else {
            join_at(Path::new(address), &mut wait)
        }
    });
    match raised {
        Some(error) => Err(error),
        None => joined.map_err(|text| python::connection_failed(py, &text)),
    }
}

/// False when a signal's handler raised: that is kept.
fn raised_none(raised: &mut Option<PyErr>) -> bool {
    *raised = raised.take().or_else(|| Python::attach(|py| py.check_signals()).err());
    raised.is_none()
}

fn join_head(wait: &mut Wait<'_>) -> Result<Joined, String> {
    let none = |why: String| {
        format!(
            "no node runs on this machine that `hoplo start --head` left ({why}); start one, or call init() without an \
             address for a node of this program's own"
        )
    };
    let places = Places::of_environment();
    let base = places.find().map_err(|error| error.to_string())?;
    let base = base.ok_or_else(|| none(format!("there is no {places}")))?;
    let head = base.current();
    let head = head.ok_or_else(|| none(format!("none in {}", base.path().display())))?;
    head.connect(wait).map_err(|error| format!("{}: {error}", head.path().display()))
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
        preload: config.preload.clone(),
        entrypoint: config.argv0.clone(),
        env,
    })
}

/// A namespace that nobody else has.
fn unique_name() -> String {
    use std::hash::{BuildHasher, Hasher, RandomState};
    let random = RandomState::new().build_hasher().finish();
    format!("anonymous-{random:016x}")
}

fn await_end(daemon: &mut Child) {
    let deadline = Instant::now() + DAEMON_END_MAX;
    let mut pause = Duration::from_micros(500);
    // An error means that somebody else has reaped it: it is gone.
    while let Ok(None) = daemon.try_wait() {
        if Instant::now() >= deadline {
            let _ = daemon.kill();
            let _ = daemon.wait();
            return;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}
