//! Who is connected, for what, and what its tasks need.

use std::collections::BTreeMap;

use hoplo_base::{JobId, NodeNumber, ProcessId, ResourceSet};
use serde::{Deserialize, Serialize};

use super::Inside;
use super::strategy::{LabelSelector, Strategy};

/// What a task needs, and where it may run: tasks of equal shape share leases.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Shape {
    pub resources: ResourceSet,
    pub env: RuntimeEnv,
    pub strategy: Strategy,
    /// Selectors in order of preference: it runs where the first one is met that any node meets. Empty: anywhere.
    pub labels: Vec<LabelSelector>,
}

impl Shape {
    /// So much, anywhere.
    pub fn of(resources: ResourceSet) -> Self {
        Self { resources, ..Self::default() }
    }
}

/// The parts of a runtime environment that are set in a worker. In a cluster `pkg:HASH:name` stands in place of a
/// path, for a package (see `python/hoplo/_packages.py`): its worker unpacks it, when it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RuntimeEnv {
    pub env_vars: BTreeMap<String, String>,
    /// Absolute path; the worker's current directory and first place to import from.
    pub working_dir: Option<String>,
    /// Absolute paths to import from.
    pub py_modules: Vec<String>,
    /// The placement group that the worker's code runs in.
    pub group: Option<Inside>,
    /// What runs the worker, if that is not the node's own Python.
    pub python: Option<Box<PythonEnv>>,
}

/// A Python of its own for workers. Each node makes it for itself (`python/hoplo/_build_environment.py`).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PythonEnv {
    /// What is to be made, as canonical JSON: `{"pip":{...}}`, `{"uv":{...}}` or `{"py_executable":"..."}`.
    pub spec: String,
    /// The same for people, such as `pip install numpy`.
    pub what: String,
    /// To make it may take so many seconds; 0: as long as it takes.
    pub patience_s: u32,
}

/// What a driver tells about its program; workers of the job take it over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobConfig {
    pub cwd: String,
    pub sys_path: Vec<String>,
    pub namespace: String,
    /// Lines that workers print come to the driver as `Output`.
    pub log_to_driver: bool,
    /// Those that several workers print are folded.
    pub folds_output: bool,
    /// Modules that the driver has imported and the zygote may import before it forks.
    pub preload: Vec<String>,
    /// What the program was started as, for `hoplo status`.
    pub entrypoint: String,
    /// Of its program, such as `3.12`: what it pickles is for workers of the same one. Empty: any.
    pub python: String,
    /// The job's own environment, with paths as its driver named them; a task's or actor's is laid over it by the client.
    pub env: RuntimeEnv,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// Tells its `Job` next.
    Driver,
    /// On the socket that the zygote handed over; the daemon knows which worker it is.
    Worker,
    /// The `hoplo` command: queries only.
    Tool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    pub process: ProcessId,
    pub node: NodeNumber,
    pub job: JobId,
    pub arena_bytes: u64,
    pub session_dir: String,
    /// The job's, for workers.
    pub config: JobConfig,
    /// First object-state slots.
    pub slots: Vec<u32>,
    /// What the node has in all.
    pub resources: ResourceSet,
    /// It is a head or has joined one: workers may run where the folders of this machine are not.
    pub clustered: bool,
}
