//! The actor that a worker process has become.

use std::sync::Arc;

use hoplo_base::{FunctionId, Map};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::event_loop::{Inlet, Turn};
use crate::interface::{unknown_method, unnamed};
use crate::refs::ObjectRef;
use crate::session::Session;

pub(crate) struct Actor {
    pub(crate) inlet: Arc<Inlet>,
    pub(crate) runtime: Py<PyAny>,
    pub(crate) manner: Manner,
    /// Of one with checkpoints.
    pub(crate) kept: Kept,
    /// Of an async actor.
    pub(crate) turn: Option<Py<Turn>>,
    pub(crate) methods: Map<FunctionId, Py<PyAny>>,
}

/// Who runs the methods of an actor.
#[derive(Clone, Copy)]
pub(crate) enum Manner {
    /// This loop, one by one.
    Inline,
    /// So, but each is logged before: it has checkpoints.
    Logged,
    /// `ActorRuntime`, in threads.
    Threads,
}

/// Results of replayed calls that are too large for the journal, or hold refs: they were put, and callers may ask for them.
#[derive(Default)]
pub(crate) struct Kept(pub(crate) Vec<Py<ObjectRef>>);

impl Kept {
    /// Those that nobody can ask for any more go.
    pub(crate) fn prune(&mut self, session: &Session) {
        let kept = session.client.kept_answers();
        self.0.retain(|reference| kept.contains(&reference.get().id()));
    }
}

impl Actor {
    pub(crate) fn name_of(&self, id: FunctionId) -> Arc<str> {
        match self.inlet.interface.by_id.get(&id) {
            Some(method) => method.full_name(),
            None => unnamed(),
        }
    }

    pub(crate) fn method<'py>(
        &mut self,
        py: Python<'py>,
        id: FunctionId,
    ) -> PyResult<Bound<'py, PyAny>> {
        if let Some(method) = self.methods.get(&id) {
            return Ok(method.bind(py).clone());
        }
        let known = self.inlet.interface.by_id.get(&id);
        let known = known.ok_or_else(|| unknown_method(&self.inlet.class_name))?;
        let name = PyString::new(py, &known.name);
        let method = self.runtime.bind(py).call_method1(intern!(py, "method"), (name,))?;
        self.methods.insert(id, method.clone().unbind());
        Ok(method)
    }
}
