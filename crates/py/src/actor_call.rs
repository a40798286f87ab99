//! A method call as `hoplo._worker.ActorRuntime` gets it, to run it in a thread or a coroutine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hoplo_base::TaskId;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::args::{self, ArgsError, Arguments};
use crate::calls::{Fault, Invocation};
use crate::current::{self, Running};
use crate::errors;
use crate::leaving::{self, After};

/// One method call that waits in an actor's process to be run by `ActorRuntime`.
#[pyclass(frozen, module = "hoplo._core", freelist = 256)]
pub(crate) struct ActorCall {
    invocation: Arc<Invocation>,
    method: Py<PyString>,
    group: Option<Arc<str>>,
    /// It counts as running.
    begun: AtomicBool,
}

impl ActorCall {
    /// `group`: of the method; the call may ask for another.
    pub(crate) fn new(
        py: Python<'_>,
        invocation: Invocation,
        method: &str,
        group: Option<&Arc<str>>,
    ) -> PyResult<ActorCall> {
        let asked = args::decode_extras(py, invocation.view().args)?.group.map(Arc::from);
        Ok(ActorCall {
            group: asked.or_else(|| group.cloned()),
            invocation: Arc::new(invocation),
            method: PyString::intern(py, method).unbind(),
            begun: AtomicBool::new(false),
        })
    }

    /// As Python knows the task.
    pub(crate) fn id(&self) -> String {
        errors::hex(self.invocation.task())
    }

    pub(crate) fn task(&self) -> TaskId {
        self.invocation.task()
    }

    /// `Class.method`.
    pub(crate) fn name(&self) -> String {
        self.invocation.name.to_string()
    }

    pub(crate) fn began(&self) -> f64 {
        self.invocation.started_ns() as f64 / 1e9
    }

    pub(crate) fn method_name<'py>(&self, py: Python<'py>) -> &Bound<'py, PyString> {
        self.method.bind(py)
    }

    pub(crate) fn group_name(&self) -> Option<&str> {
        self.group.as_deref()
    }

    pub(crate) fn is_streaming(&self) -> bool {
        self.invocation.is_streaming()
    }

    /// The arguments. Raises what decoding them raises, or what an argument's task raised.
    pub(crate) fn decode<'py>(&self, py: Python<'py>) -> PyResult<Arguments<'py>> {
        self.invocation.arguments(py).map_err(|error| match error {
            ArgsError::Raised(error) => error,
            ArgsError::Failed(failure) => errors::raised(py, &failure, None),
            ArgsError::Delayed => unreachable!("a method waits for its arguments"),
        })
    }

    /// Marks the call as running; False when it is not to run: it was cancelled before, and is
    /// thereby ended, or the actor is leaving, and it is refused.
    pub(crate) fn begin(&self, py: Python<'_>) -> bool {
        let call = &self.invocation;
        if call.has_ended() {
            return false; // cancelled while it waited
        }
        if call.is_cancelled() {
            call.end_cancelled(py);
            return false;
        }
        if !leaving::may_begin() {
            call.refuse(py);
            return false;
        }
        call.start_clock();
        self.begun.store(true, Ordering::Relaxed);
        true
    }

    pub(crate) fn fail_with(&self, py: Python<'_>, error: PyErr) {
        if !self.invocation.session.is_ours() {
            return self.ended(After::Exit(1)); // a forked child came back: it has nobody to reply to
        }
        self.ended(self.invocation.fail(py, Fault::Raised(error)));
    }

    /// The actor has left: the call does not begin, or is not seen to its end.
    pub(crate) fn refuse(&self, py: Python<'_>) {
        self.invocation.refuse(py);
        self.ended(After::ActorExit);
    }

    pub(crate) fn running(&self, py: Python<'_>) -> Running {
        self.invocation.running(py, false)
    }
}

#[pymethods]
impl ActorCall {
    #[getter]
    fn task_id(&self) -> String {
        self.id()
    }

    #[getter]
    fn method<'py>(&self, py: Python<'py>) -> &Bound<'py, PyString> {
        self.method_name(py)
    }

    /// The concurrency group asked for at the call, else by the method; None: the default.
    #[getter]
    fn group(&self) -> Option<&str> {
        self.group_name()
    }

    /// Runs the whole call in this thread: arguments, generator, result, errors. Never raises.
    fn run(&self, method: &Bound<'_, PyAny>) {
        let py = method.py();
        if self.begin(py) {
            let call = &self.invocation;
            let after = current::in_thread(call.running(py, false), || call.run(py, method));
            leaving::ended(after);
        }
    }

    /// Stores the next value of a streaming call; False when the consumer wants a pause.
    fn item(&self, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.invocation.item(value)
    }

    /// Calls `callback` once, from any thread, when the consumer of a stream wants more.
    fn when_room(&self, callback: Py<PyAny>) -> PyResult<()> {
        let call = Arc::clone(&self.invocation);
        std::thread::Builder::new()
            .name("hoplo-room".to_string())
            .spawn(move || {
                call.wait_for_credit_detached();
                Python::try_attach(|py| {
                    if let Err(error) = callback.call0(py) {
                        error.write_unraisable(py, None);
                    }
                });
            })
            .map_err(|error| PyOSError::new_err(error.to_string()))?;
        Ok(())
    }

    /// Replies with the result; of a streaming call, with its end. Never raises.
    pub(crate) fn finish(&self, value: &Bound<'_, PyAny>) {
        if !self.invocation.session.is_ours() {
            return self.ended(After::Exit(0)); // a forked child came back: it has nobody to reply to
        }
        self.ended(self.invocation.finish(value));
    }

    /// Replies with the error, encoded as the user's own. Never raises.
    pub(crate) fn fail(&self, error: &Bound<'_, PyAny>) {
        self.fail_with(error.py(), PyErr::from_value(error.clone()));
    }
}

impl ActorCall {
    fn ended(&self, after: After) {
        if self.begun.swap(false, Ordering::Relaxed) {
            leaving::ended(after);
        }
    }
}
