//! What the client tells at any moment, on threads of its own that must not wait for the GIL.
//!
//! Lines for the user go to a printer thread, which writes them with Python's `sys.stdout` and
//! `sys.stderr`, so that a notebook shows them in its cell.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use hoplo_base::TaskId;
use hoplo_base::limits::OUTPUT_BATCHES_MAX;
use hoplo_client::{Hooks, RunningCall};
use parking_lot::Mutex;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::errors;
use crate::python::Import;

struct Batch {
    stderr: bool,
    text: String,
}

struct Printer {
    batches: SyncSender<Batch>,
    thread: JoinHandle<()>,
}

static PRINTER: Mutex<Option<Printer>> = Mutex::new(None);

/// Of a driver.
pub(crate) struct DriverHooks {
    batches: SyncSender<Batch>,
}

impl DriverHooks {
    pub(crate) fn start() -> std::io::Result<DriverHooks> {
        let (batches, receiver) = sync_channel(OUTPUT_BATCHES_MAX);
        let thread = std::thread::Builder::new()
            .name("hoplo-output".to_string())
            .spawn(move || print_all(&receiver))?;
        *PRINTER.lock() = Some(Printer { batches: batches.clone(), thread });
        Ok(DriverHooks { batches })
    }

    fn print(&self, stderr: bool, text: String) {
        match self.batches.try_send(Batch { stderr, text }) {
            // Full: whoever prints so much reads the files of the session. Disconnected: shut down.
            Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
        }
    }
}

impl Hooks for DriverHooks {
    fn output(&self, pid: Option<u32>, title: &str, stderr: bool, lines: &[String]) {
        let pid = pid.map(|pid| format!(" pid={pid}")).unwrap_or_default();
        let mut text = String::new();
        for line in lines {
            text.push_str(&format!("({title}{pid}) {line}\n"));
        }
        self.print(stderr, text);
    }

    fn cancel(&self, _task: TaskId) {}

    fn warn(&self, line: &str) {
        self.print(true, format!("hoplo: {line}\n"));
    }

    fn exit(&self, _reason: &str) {}

    fn fail(&self, _reason: &str) {}

    fn running(&self) -> Vec<RunningCall> {
        Vec::new()
    }

    fn begun(&self) -> Option<Vec<(TaskId, Duration)>> {
        Some(Vec::new())
    }
}

fn print_all(batches: &Receiver<Batch>) {
    static BEGIN_NO_SESSION: Import = Import::new("hoplo._api", "begin_no_session_here");
    for batch in batches {
        let Batch { stderr, text } = batch;
        if stderr && text.is_empty() {
            return; // the last one, of `finish_printing`
        }
        let attached = Python::try_attach(|py| {
            // `shutdown` waits for this thread, and what the program has put in the place of its output may call
            // hoplo. Said each time: Python forgets what a thread that it did not start has said.
            let _ = BEGIN_NO_SESSION.get(py).and_then(|begin_no_session| begin_no_session.call0());
            let name = if stderr { intern!(py, "stderr") } else { intern!(py, "stdout") };
            // A program may have closed or replaced it by anything.
            let _ = py.import(intern!(py, "sys")).and_then(|sys| {
                let stream = sys.getattr(name)?;
                stream.call_method1(intern!(py, "write"), (text,))?;
                stream.call_method0(intern!(py, "flush"))
            });
        });
        if attached.is_none() {
            return; // the interpreter ends
        }
    }
}

/// Prints what has come so far; at shutdown, detached.
pub(crate) fn finish_printing() {
    let Some(printer) = PRINTER.lock().take() else { return };
    let last = Batch { stderr: true, text: String::new() };
    if printer.batches.send(last).is_ok() {
        // It does not panic; if it did, nothing more is printed.
        let _ = printer.thread.join();
    }
}

/// In the child of a fork: the thread stayed with the parent.
pub(crate) fn after_fork() {
    std::mem::forget(PRINTER.lock().take());
}

static RUNTIME: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Remembers what runs the calls of this process's actor.
pub(crate) fn remember_runtime(py: Python<'_>, runtime: &Bound<'_, PyAny>) {
    // A process becomes an actor once.
    let _ = RUNTIME.set(py, runtime.clone().unbind());
}

/// What runs the calls of this process's actor, if it is one.
pub(crate) fn runtime(py: Python<'_>) -> Option<&Py<PyAny>> {
    RUNTIME.get(py)
}

/// Cancels a call that a thread or an event loop of the actor runs or keeps waiting.
pub(crate) fn cancel_in_actor(task: TaskId) {
    let cancel = move || {
        Python::try_attach(|py| {
            let Some(runtime) = RUNTIME.get(py) else { return };
            let cancelled = runtime.call_method1(py, intern!(py, "cancel"), (errors::hex(task),));
            if let Err(error) = cancelled {
                error.write_unraisable(py, Some(runtime.bind(py)));
            }
        });
    };
    // Rare, and must not wait for the GIL here.
    if let Err(error) = std::thread::Builder::new().name("hoplo-cancel".to_string()).spawn(cancel) {
        eprintln!("hoplo: {task} cannot be cancelled: {error}");
    }
}
