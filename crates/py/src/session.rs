//! The process's place in hoplo: its client, and whether it may be used.
//!
//! ```text
//!   absent --init / worker_main--> live --shutdown--> absent
//!                                   |
//!                                   +--os.fork, in the child--> forked --init--> live
//! ```
//!
//! `CURRENT` is locked only while attached to the interpreter and never across a detach. A fork
//! happens attached as well, so the child never finds the lock held by a thread that it lacks.
//!
//! Between two states lie seconds, in which a daemon starts or ends. `hoplo._api` lets one thread at a time through
//! (`_Turns`), by a lock of Python's, whose wait Ctrl-C ends.
//!
//! Every ref and handle keeps its session. In a forked child the inherited ones are **stale**: the
//! client's threads and its place at the daemon belong to the parent, so nothing is told to it and
//! its destructor never runs there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use hoplo_base::ObjectId;
use hoplo_client::{Client, Waited};
use hoplo_wire::node::{JobConfig, RuntimeEnv};
use parking_lot::Mutex;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::python::{self, Import};

const PACK: &str = "HOPLO_PACK";

/// A live connection to a node.
pub(crate) struct Session {
    pub(crate) client: Arc<Client>,
    /// Which `fork` epoch made it.
    epoch: u32,
    /// Distinguishes sessions of one process; never 0.
    pub(crate) number: u32,
    pub(crate) is_worker: bool,
    /// A socket's path.
    pub(crate) address: String,
    /// Where names of actors are looked up.
    pub(crate) namespace: String,
    /// In a driver the job's own, in a worker what it was made with.
    pub(crate) env: Mutex<RuntimeEnv>,
    /// Folders of environments go as packages: other nodes do not have them.
    pub(crate) packs: bool,
    closed: AtomicBool,
    /// The daemon that this process started, to be waited for.
    pub(crate) daemon: Mutex<Option<std::process::Child>>,
}

enum State {
    Absent,
    Live(Arc<Session>),
    Forked,
}

static CURRENT: Mutex<State> = Mutex::new(State::Absent);
/// Counts the forks between the first process and this one; written in the child of a fork.
static EPOCH: AtomicU32 = AtomicU32::new(0);
static NUMBER: AtomicU32 = AtomicU32::new(1);

impl Session {
    pub(crate) fn new(client: Arc<Client>, is_worker: bool, job: JobConfig) -> Session {
        let address = format!("{}/sock", client.welcome().session_dir);
        // The variable is for tests, on a node alone.
        let packs =
            client.welcome().clustered || std::env::var_os(PACK).is_some_and(|it| it == "1");
        Session {
            client,
            epoch: EPOCH.load(Ordering::Relaxed),
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            is_worker,
            address,
            namespace: job.namespace,
            env: Mutex::new(job.env),
            packs,
            closed: AtomicBool::new(false),
            daemon: Mutex::new(None),
        }
    }

    /// False in a child that was forked after this session began.
    pub(crate) fn is_ours(&self) -> bool {
        self.epoch == EPOCH.load(Ordering::Relaxed)
    }

    pub(crate) fn drop_ref(&self, object: ObjectId) {
        if self.is_ours() {
            self.client.drop_ref(object);
        }
    }

    /// Raises where refs and handles of this session are of no more use.
    pub(crate) fn check(&self) -> PyResult<()> {
        if !self.is_ours() {
            return Err(forked());
        }
        if self.closed.load(Ordering::Relaxed) {
            return Err(PyRuntimeError::new_err(
                "this ref or handle is of a session that was shut down; its object is gone",
            ));
        }
        Ok(())
    }

    /// Waits while the daemon has so much to read that no more should be said to it.
    #[inline]
    pub(crate) fn make_room(&self, py: Python<'_>) -> PyResult<()> {
        while !self.client.has_room() {
            if py.detach(|| self.client.wait_for_room()) == Waited::Interrupted {
                py.check_signals()?;
            }
        }
        Ok(())
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.client.close();
    }
}

/// The session; the first API call of a program makes one.
pub(crate) fn current(py: Python<'_>) -> PyResult<Arc<Session>> {
    match live() {
        Some(session) => Ok(session),
        None => start_one(py),
    }
}

/// The session if there is one.
pub(crate) fn live() -> Option<Arc<Session>> {
    match &*CURRENT.lock() {
        State::Live(session) => Some(Arc::clone(session)),
        State::Absent | State::Forked => None,
    }
}

pub(crate) fn enter(session: Arc<Session>) {
    *CURRENT.lock() = State::Live(session);
}

pub(crate) fn leave() -> Option<Arc<Session>> {
    match std::mem::replace(&mut *CURRENT.lock(), State::Absent) {
        State::Live(session) => Some(session),
        State::Absent | State::Forked => None,
    }
}

/// In the child of a fork, first of all: every session is stale.
pub(crate) fn begin_epoch() {
    EPOCH.fetch_add(1, Ordering::Relaxed);
}

/// In the child of a fork, last.
pub(crate) fn after_fork() {
    let mut state = CURRENT.lock();
    if let State::Live(_) = &*state {
        // Its destructor would join threads that this process does not have.
        std::mem::forget(std::mem::replace(&mut *state, State::Forked));
    }
}

#[cold]
fn start_one(py: Python<'_>) -> PyResult<Arc<Session>> {
    static INITIALIZE_ONCE: Import = Import::new("hoplo._api", "initialize_once");
    if matches!(&*CURRENT.lock(), State::Forked) {
        return Err(forked());
    }
    // Threads that all make the program's first call: one starts it, the others wait there.
    INITIALIZE_ONCE.get(py)?.call0()?;
    live().ok_or_else(python::not_initialized)
}

fn forked() -> PyErr {
    PyRuntimeError::new_err(
        "this process was forked from one that uses hoplo and cannot share its session: \
         call hoplo.init() here first, and pass values instead of refs made before the fork",
    )
}
