//! Which task a line that a worker prints belongs to.
//!
//! The daemon cuts what comes through a worker's pipes into lines, under the title that the worker told
//! last. So before a task prints, its title is told (what two tasks print within a moment may still be shown under
//! one of their titles: pipes and socket are read one after the other); and the last line of a task is ended when the task ends
//! (`hoplo._worker.Printed`), or the next task's first line would be glued to it. Code that does not run in
//! the main thread (of actors with threads or an event loop) prints as it likes: there several calls run
//! at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::current;
use crate::python::Import;
use crate::session;

/// Something was printed since the last task ended, and not all of it ended with a line.
static OPEN: AtomicBool = AtomicBool::new(false);

/// What the daemon was told last.
static TITLE: Mutex<Option<Arc<str>>> = Mutex::new(None);

/// Called before a worker prints. `is_open`: the text does not end with a line.
#[pyfunction]
pub(crate) fn note_print(is_open: bool) {
    if !current::is_main_thread() {
        return;
    }
    if is_open {
        OPEN.store(true, Ordering::Relaxed);
    }
    if let Some(name) = current::main_task() {
        entitle(&name);
    }
}

/// What this worker runs from now on, unless it was told already.
pub(crate) fn entitle(name: &Arc<str>) {
    let mut title = TITLE.lock();
    if title.as_ref() != Some(name)
        && let Some(session) = session::live()
    {
        session.client.set_title(name);
        *title = Some(Arc::clone(name));
    }
}

/// Ends the lines that the task that ran in the main thread left open.
pub(crate) fn end(py: Python<'_>) {
    static END_LINES: Import = Import::new("hoplo._worker", "end_lines");
    if !OPEN.load(Ordering::Relaxed) || !current::is_main_thread() {
        return;
    }
    OPEN.store(false, Ordering::Relaxed);
    if let Err(error) = END_LINES.get(py).and_then(Bound::call0) {
        error.write_unraisable(py, None);
    }
}
