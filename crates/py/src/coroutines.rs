//! The calls of an async actor, each a task of an event loop: of the main thread's, or of its group's own,
//! which runs in another thread, so that a call that blocks stops its group alone.
//!
//! ```text
//!   accept --its group has room--> started --step--> ended: replied; the next of the group starts
//!       \--group full--> waiting --room--/    \--suspends: yields what it waits for--> step ...
//! ```
//!
//! What the task runs is a `CallRun`: a coroutine that is not written in Python. Its first step decodes the
//! arguments and calls the method; what that returns is stepped from then on as the task is. A method
//! that never suspends is answered within the first step.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::exceptions::{PyRuntimeError, PyStopIteration};
use pyo3::ffi;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::actor_call::ActorCall;
use crate::leaving::{self, Outlook};
use crate::python::Import;
use crate::refs::ObjectRef;

/// What an async actor's calls share.
pub(crate) struct Coroutines {
    shared: Arc<Shared>,
    gates: HashMap<Option<String>, Arc<Gate>>,
}

struct Shared {
    event_loop: Py<PyAny>,
    task: Py<PyAny>,
    /// Of a method's name: the bound method.
    method_of: Py<PyAny>,
    /// Of a streaming call and what its method returned: the coroutine that sends the items.
    stream: Py<PyAny>,
    /// By the address of the name, which is interned and kept in here.
    methods: Mutex<HashMap<usize, Method>>,
}

struct Method {
    _name: Py<PyString>,
    bound: Py<PyAny>,
}

/// How many calls of one concurrency group run, and which wait.
struct Gate {
    limit: usize,
    /// Of a group with a loop of its own: takes a coroutine and its name, from any thread.
    starter: Option<Py<PyAny>>,
    line: Mutex<Line>,
}

#[derive(Default)]
struct Line {
    running: usize,
    waiting: VecDeque<Py<ActorCall>>,
}

static NO_SUCH_GROUP: Import = Import::new("hoplo._worker", "no_such_group");
static CANCELLED: Import = Import::new("hoplo._worker", "cancelled");
static CURRENT_CALL: Import = Import::new("hoplo._worker", "current_call");
static CANCELLED_ERROR: Import = Import::new("asyncio", "CancelledError");

impl Coroutines {
    pub(crate) fn new(
        event_loop: Bound<'_, PyAny>,
        limits: Bound<'_, PyDict>,
        starters: Bound<'_, PyDict>,
        method_of: Bound<'_, PyAny>,
        stream: Bound<'_, PyAny>,
    ) -> PyResult<Coroutines> {
        let mut gates = HashMap::new();
        for (name, limit) in limits {
            let starter = starters.get_item(&name)?.map(Bound::unbind);
            let gate = Gate { limit: limit.extract()?, starter, line: Mutex::default() };
            gates.insert(name.extract()?, Arc::new(gate));
        }
        let task = event_loop.py().import("asyncio")?.getattr("Task")?.unbind();
        let shared = Shared {
            event_loop: event_loop.unbind(),
            task,
            method_of: method_of.unbind(),
            stream: stream.unbind(),
            methods: Mutex::default(),
        };
        Ok(Coroutines { shared: Arc::new(shared), gates })
    }

    /// Starts the call, or lets it wait for its group.
    pub(crate) fn accept(&self, py: Python<'_>, call: Bound<'_, ActorCall>) -> PyResult<()> {
        let group = call.get().group_name();
        let gate = match group {
            None => self.gates.get(&None),
            Some(name) => self.gates.get(&Some(name.to_string())),
        };
        let Some(gate) = gate else {
            let error = NO_SUCH_GROUP.get(py)?.call1((group,))?;
            call.get().fail(&error);
            return Ok(());
        };
        {
            let mut line = gate.line.lock();
            if line.running >= gate.limit {
                line.waiting.push_back(call.unbind());
                return Ok(());
            }
            line.running += 1;
        }
        self.shared.start(call, gate);
        Ok(())
    }

    /// Fails a call that waits for its group; false if none of that id does.
    pub(crate) fn cancel_waiting(&self, py: Python<'_>, task_id: &str) -> PyResult<bool> {
        for gate in self.gates.values() {
            let found = {
                let mut line = gate.line.lock();
                let at = line.waiting.iter().position(|call| call.get().id() == task_id);
                at.and_then(|at| line.waiting.remove(at))
            };
            if let Some(call) = found {
                let error = CANCELLED.get(py)?.call1((&call,))?;
                call.get().fail(&error);
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(crate) fn stop(&self, py: Python<'_>) -> PyResult<()> {
        self.shared.event_loop.call_method0(py, intern!(py, "stop")).map(drop)
    }
}

impl Shared {
    /// Makes the task of a call that counts as running in its group.
    fn start(self: &Arc<Self>, call: Bound<'_, ActorCall>, gate: &Arc<Gate>) {
        let mut next = Some(call);
        while let Some(call) = next.take() {
            // A loop that the user's code closed, or a task factory of theirs.
            if let Err(error) = self.make_task(&call, gate) {
                call.get().fail_with(call.py(), error);
                next = gate.next().map(|waiting| waiting.into_bound(call.py()));
            }
        }
    }

    fn make_task(self: &Arc<Self>, call: &Bound<'_, ActorCall>, gate: &Arc<Gate>) -> PyResult<()> {
        let py = call.py();
        let name = call.get().method_name(py).clone();
        let run = CallRun {
            call: call.clone().unbind(),
            shared: Arc::clone(self),
            gate: Arc::clone(gate),
            state: Mutex::new(State::New),
        };
        if let Some(starter) = &gate.starter {
            starter.call1(py, (run, name))?;
            return Ok(());
        }
        let event_loop = self.event_loop.bind(py);
        let factory = event_loop.call_method0(intern!(py, "get_task_factory"))?;
        if factory.is_none() {
            // What `create_task` does, without its frame.
            let named = PyDict::new(py);
            named.set_item(intern!(py, "loop"), event_loop)?;
            named.set_item(intern!(py, "name"), name)?;
            self.task.bind(py).call((run,), Some(&named))?;
        } else {
            event_loop.call_method1(intern!(py, "create_task"), (run,))?;
        }
        Ok(())
    }

    fn method<'py>(&self, name: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyAny>> {
        let key = name.as_ptr() as usize;
        if let Some(method) = self.methods.lock().get(&key) {
            return Ok(method.bound.bind(name.py()).clone());
        }
        let bound = self.method_of.bind(name.py()).call1((name,))?;
        let method = Method { _name: name.clone().unbind(), bound: bound.clone().unbind() };
        self.methods.lock().insert(key, method);
        Ok(bound)
    }
}

impl Gate {
    /// One has ended; the next, which counts as running.
    fn next(&self) -> Option<Py<ActorCall>> {
        let mut line = self.line.lock();
        let next = line.waiting.pop_front();
        line.running -= usize::from(next.is_none());
        next
    }
}

/// The coroutine of one call.
#[pyclass(frozen, module = "hoplo._core", freelist = 256)]
pub(crate) struct CallRun {
    call: Py<ActorCall>,
    shared: Arc<Shared>,
    gate: Arc<Gate>,
    state: Mutex<State>,
}

enum State {
    New,
    /// The method's coroutine, or the iterator of what else it returned to be awaited.
    Suspended(Py<PyAny>),
    /// In a step, which nothing may enter again.
    Running,
    Ended,
}

/// What a step gave.
enum Step<'py> {
    Yielded(Bound<'py, PyAny>),
    Returned(Bound<'py, PyAny>),
}

#[pymethods]
impl CallRun {
    #[getter]
    fn task_id(&self) -> String {
        self.call.get().id()
    }

    /// For `Task.get_stack`, which shows where the user's coroutine waits.
    #[getter]
    fn cr_frame(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let inner = match &*self.state.lock() {
            State::Suspended(inner) => inner.clone_ref(py),
            State::New | State::Running | State::Ended => return Ok(py.None()),
        };
        let frame = inner.bind(py).getattr_opt(intern!(py, "cr_frame"))?;
        Ok(frame.map_or_else(|| py.None(), Bound::unbind))
    }

    /// What the call's own coroutine is, for who follows awaits.
    #[getter]
    fn cr_await(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        match &*self.state.lock() {
            State::Suspended(inner) => Some(inner.clone_ref(py)),
            State::New | State::Running | State::Ended => None,
        }
    }

    #[getter]
    fn name(&self) -> String {
        self.call.get().name()
    }

    /// Seconds by `time.monotonic` when it began.
    #[getter]
    fn began(&self) -> f64 {
        self.call.get().began()
    }

    fn __await__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let state = std::mem::replace(&mut *self.state.lock(), State::Running);
        match state {
            State::New => {
                CURRENT_CALL.get(py)?.call_method1(intern!(py, "set"), (&self.call,))?;
                match self.begin(py) {
                    Ok(Some(inner)) => self.step(inner),
                    Ok(None) => {
                        self.end(py);
                        Ok(None)
                    }
                    Err(error) => self.fail(py, error),
                }
            }
            State::Suspended(inner) => self.step(inner.into_bound(py)),
            State::Running => Err(PyRuntimeError::new_err("the call is running already")),
            State::Ended => {
                *self.state.lock() = State::Ended;
                Ok(None)
            }
        }
    }

    fn send<'py>(&self, py: Python<'py>, value: Py<PyAny>) -> PyResult<Bound<'py, PyAny>> {
        drop(value); // tasks send nothing but None
        self.__next__(py)?.ok_or_else(|| PyStopIteration::new_err(()))
    }

    #[pyo3(signature = (error, value=None, traceback=None))]
    fn throw<'py>(
        &self,
        error: Bound<'py, PyAny>,
        value: Option<Bound<'py, PyAny>>,
        traceback: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = error.py();
        let state = std::mem::replace(&mut *self.state.lock(), State::Running);
        let yielded = match state {
            State::Suspended(inner) => self.throw_into(inner.bind(py), error, value, traceback)?,
            // Cancelled before its first step.
            State::New => self.fail(py, PyErr::from_value(value.unwrap_or(error)))?,
            State::Running | State::Ended => {
                return Err(PyRuntimeError::new_err("the call is running, or has ended"));
            }
        };
        yielded.ok_or_else(|| PyStopIteration::new_err(()))
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let state = std::mem::replace(&mut *self.state.lock(), State::Ended);
        if let State::Suspended(inner) = state
            && let Some(close) = inner.bind(py).getattr_opt(intern!(py, "close"))?
        {
            close.call0()?;
        }
        Ok(())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // Held by a step that is about to replace it: then it is not garbage.
        if let Some(state) = self.state.try_lock()
            && let State::Suspended(inner) = &*state
        {
            visit.call(inner)?;
        }
        visit.call(&self.call)
    }
}

impl CallRun {
    /// Calls the method. What is to be awaited; `None`: it is answered.
    fn begin<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let call = self.call.get();
        if !call.begin(py) {
            return Ok(None);
        }
        let (args, kwargs) = call.decode(py)?;
        let method = self.shared.method(call.method_name(py))?;
        let result = method.call(args, kwargs.as_ref())?;
        if call.is_streaming() {
            return self.shared.stream.bind(py).call1((&self.call, result)).map(Some);
        }
        // SAFETY: attached; a live object.
        if unsafe { ffi::PyCoro_CheckExact(result.as_ptr()) } != 0 {
            return Ok(Some(result));
        }
        if result.is_instance_of::<ObjectRef>() || !result.hasattr(intern!(py, "__await__"))? {
            call.finish(&result);
            return Ok(None);
        }
        result.call_method0(intern!(py, "__await__")).map(Some)
    }

    /// Goes on with the coroutine, up to where it suspends next.
    fn step<'py>(&self, inner: Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = inner.py();
        let mut given = std::ptr::null_mut();
        // SAFETY: attached; `inner` is a coroutine or an iterator; `given` is a new reference unless it
        // is an error.
        let step = unsafe {
            match ffi::PyIter_Send(inner.as_ptr(), ffi::Py_None(), &mut given) {
                ffi::PySendResult::PYGEN_NEXT => {
                    Ok(Step::Yielded(Bound::from_owned_ptr(py, given)))
                }
                ffi::PySendResult::PYGEN_RETURN => {
                    Ok(Step::Returned(Bound::from_owned_ptr(py, given)))
                }
                ffi::PySendResult::PYGEN_ERROR => Err(PyErr::fetch(py)),
            }
        };
        self.stepped(py, inner, step)
    }

    fn throw_into<'py>(
        &self,
        inner: &Bound<'py, PyAny>,
        error: Bound<'py, PyAny>,
        value: Option<Bound<'py, PyAny>>,
        traceback: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = inner.py();
        let step = match inner.getattr_opt(intern!(py, "throw"))? {
            Some(throw) if value.is_none() && traceback.is_none() => throw.call1((error,)),
            Some(throw) => throw.call1((error, value, traceback)),
            None => Err(PyErr::from_value(value.unwrap_or(error))),
        };
        let step = match step {
            Ok(yielded) => Ok(Step::Yielded(yielded)),
            Err(error) if error.is_instance_of::<PyStopIteration>(py) => {
                error.value(py).getattr(intern!(py, "value")).map(Step::Returned)
            }
            Err(error) => Err(error),
        };
        self.stepped(py, inner.clone(), step)
    }

    fn stepped<'py>(
        &self,
        py: Python<'py>,
        inner: Bound<'py, PyAny>,
        step: PyResult<Step<'py>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        match step {
            Ok(Step::Yielded(waits_for)) => {
                *self.state.lock() = State::Suspended(inner.unbind());
                Ok(Some(waits_for))
            }
            Ok(Step::Returned(value)) => {
                self.call.get().finish(&value);
                self.end(py);
                Ok(None)
            }
            Err(error) => self.fail(py, error),
        }
    }

    /// Any error ends the call, not the task: what SystemExit means is decided where calls end.
    fn fail<'py>(&self, py: Python<'py>, error: PyErr) -> PyResult<Option<Bound<'py, PyAny>>> {
        let call = self.call.get();
        let cancelled = error.matches(py, CANCELLED_ERROR.get(py)?)?;
        if cancelled && leaving::outlook() != Outlook::Stays {
            call.refuse(py); // its time was over
        } else if cancelled {
            call.fail(&CANCELLED.get(py)?.call1((&self.call,))?);
        } else {
            call.fail_with(py, error);
        }
        self.end(py);
        Ok(None)
    }

    /// Its group has room for another.
    fn end(&self, py: Python<'_>) {
        *self.state.lock() = State::Ended;
        if let Some(next) = self.gate.next() {
            self.shared.start(next.into_bound(py), &self.gate);
        }
    }
}
