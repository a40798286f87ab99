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
use hoplo_wire::node::{BAR_MARK, is_log_record};
use parking_lot::Mutex;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::errors;
use crate::python::Import;

enum Batch {
    Text {
        stderr: bool,
        text: String,
    },
    /// Of a progress bar: who printed it, and the line.
    Bar {
        printer: String,
        line: String,
    },
    /// The last one.
    End,
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
        if !text.is_empty() {
            self.send(Batch::Text { stderr, text });
        }
    }

    fn send(&self, batch: Batch) {
        match self.batches.try_send(batch) {
            // Full: whoever prints so much reads the files of the session. Disconnected: shut down.
            Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
        }
    }
}

impl Hooks for DriverHooks {
    fn output(
        &self,
        pid: Option<u32>,
        title: &str,
        address: Option<&str>,
        stderr: bool,
        lines: &[String],
    ) {
        let pid = pid.map(|pid| format!(" pid={pid}")).unwrap_or_default();
        let ip = address.map(|address| format!(", ip={address}")).unwrap_or_default();
        let mut text = String::new();
        for line in lines {
            if line.contains(BAR_MARK) {
                // In the order in which they were printed.
                self.print(stderr, std::mem::take(&mut text));
                let (printer, line) = (format!("({title}{pid}{ip}) "), line.clone());
                self.send(Batch::Bar { printer, line });
            } else if stderr && is_log_record(line) {
                text.push_str(&format!("{line}\n"));
            } else {
                text.push_str(&format!("({title}{pid}{ip}) {line}\n"));
            }
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
        let ends = matches!(batch, Batch::End);
        let attached = Python::try_attach(|py| {
            // `shutdown` waits for this thread, and what the program has put in the place of its output may call
            // hoplo. Said each time: Python forgets what a thread that it did not start has said.
            let _ = BEGIN_NO_SESSION.get(py).and_then(|begin_no_session| begin_no_session.call0());
            // A program may have closed or replaced it by anything.
            let _ = match batch {
                Batch::Text { stderr, text } => print_text(py, stderr, &text),
                Batch::Bar { printer, line } => show_bar(py, &printer, &line),
                Batch::End => bars(py).map_or(Ok(()), |bars| bars.call_method0("close").map(drop)),
            };
        });
        if ends || attached.is_none() {
            return; // the session ends, or the interpreter
        }
    }
}

fn print_text(py: Python<'_>, stderr: bool, text: &str) -> PyResult<()> {
    let name = if stderr { intern!(py, "stderr") } else { intern!(py, "stdout") };
    let stream = py.import(intern!(py, "sys"))?.getattr(name)?;
    match bars(py) {
        Some(bars) => {
            bars.call_method1(intern!(py, "print_text"), (stream, text))?;
        }
        None => {
            stream.call_method1(intern!(py, "write"), (text,))?;
            stream.call_method0(intern!(py, "flush"))?;
        }
    }
    Ok(())
}

/// What shows bars, if it was ever asked to.
fn bars(py: Python<'_>) -> Option<Bound<'_, PyAny>> {
    let modules = py.import(intern!(py, "sys")).and_then(|sys| sys.getattr(intern!(py, "modules")));
    modules.and_then(|modules| modules.get_item(intern!(py, "hoplo._bars"))).ok()
}

fn show_bar(py: Python<'_>, printer: &str, line: &str) -> PyResult<()> {
    static TOLD: Import = Import::new("hoplo._bars", "told");
    TOLD.get(py)?.call1((printer, line))?;
    Ok(())
}

/// Prints what has come so far; at shutdown, detached.
pub(crate) fn finish_printing() {
    let Some(printer) = PRINTER.lock().take() else { return };
    if printer.batches.send(Batch::End).is_ok() {
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
