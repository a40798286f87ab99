//! What code is told of where it runs: `get_runtime_context`, and who is the parent of what it submits.

use hoplo_base::TaskId;
use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::actor_call::ActorCall;
use crate::current::{self, Running};
use crate::errors;
use crate::options;
use crate::python::{self, Import};
use crate::session;

static CURRENT_CALL: Import = Import::new("hoplo._worker", "current_call");

/// In an actor that runs several calls at once: the one that this code belongs to, which is the parent of what
/// it submits. Elsewhere the client knows what runs.
pub(crate) fn parent(py: Python<'_>) -> PyResult<Option<TaskId>> {
    let Some(actor) = current::actor() else { return Ok(None) };
    if let Some(task) = current::task_here() {
        return Ok(Some(task));
    }
    if !actor.is_async {
        return Ok(None);
    }
    let call = CURRENT_CALL.get(py)?.call_method0(intern!(py, "get"))?;
    Ok(call.cast::<ActorCall>().ok().map(|call| call.get().task()))
}

pub(crate) fn running(py: Python<'_>) -> PyResult<Option<Running>> {
    if let Some(running) = current::here() {
        return Ok(Some(running));
    }
    if current::actor().is_some_and(|actor| actor.is_async) {
        let call = CURRENT_CALL.get(py)?.call_method0(intern!(py, "get"))?;
        if let Ok(call) = call.cast::<ActorCall>() {
            return Ok(Some(call.get().running(py)));
        }
    }
    Ok(current::main())
}

/// The GPUs granted to the current task or actor; in a driver, all of the node's.
#[pyfunction]
pub(crate) fn gpu_ids(py: Python<'_>) -> PyResult<Vec<u32>> {
    let session = session::current(py)?;
    if session.is_worker {
        return Ok(current::gpus());
    }
    let count = session.client.welcome().resources.units(hoplo_base::resources::GPU);
    Ok((0..count as u32).collect())
}

/// Whether the task or call that this code belongs to has been asked to stop.
#[pyfunction]
pub(crate) fn is_cancelled() -> PyResult<bool> {
    let session = session::live().ok_or_else(python::not_initialized)?;
    if !session.is_worker {
        let text = "is_canceled() is for tasks and actors, and this is a driver";
        return Err(PyRuntimeError::new_err(text));
    }
    if current::actor().is_some_and(|actor| actor.is_async) {
        let text =
            "is_canceled() is not for async actors: their calls are cancelled where they wait";
        return Err(PyRuntimeError::new_err(text));
    }
    let task = current::task_here().or_else(|| current::main().map(|running| running.task));
    Ok(task.is_some_and(|task| session.client.is_cancelled(task)))
}

/// Where this code runs.
#[pyfunction]
pub(crate) fn runtime_context(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let session = session::live().ok_or_else(python::not_initialized)?;
    let welcome = session.client.welcome();
    let running = running(py)?;
    let actor = current::actor();
    let context = PyDict::new(py);
    context.set_item("job_id", format!("{:016x}", welcome.job.0))?;
    context.set_item("node_id", format!("{:06x}", welcome.node.number()))?;
    context.set_item("worker_id", format!("{:016x}", welcome.process.0))?;
    context.set_item("worker_mode", if session.is_worker { "worker" } else { "driver" })?;
    context.set_item("namespace", &session.namespace)?;
    context.set_item("task_id", running.as_ref().map(|one| errors::hex(one.task)))?;
    context.set_item("task_name", running.as_ref().map(|one| &**one.title()))?;
    context.set_item("task_function_name", running.as_ref().map(|one| &*one.name))?;
    context.set_item("attempt", running.as_ref().map_or(0, |one| one.attempt))?;
    context.set_item("actor_id", actor.map(|one| one.spec.actor.hex()))?;
    let actor_name = actor.map(|one| &one.spec.name).filter(|name| !name.is_empty());
    context.set_item("actor_name", actor_name)?;
    context.set_item("reconstructed", actor.is_some_and(|one| one.incarnation > 0))?;
    let resources = PyDict::new(py);
    if let Some(actor) = actor {
        for (name, _) in actor.spec.held.iter() {
            resources.set_item(name, actor.spec.held.units(name))?;
        }
    }
    context.set_item("assigned_resources", resources)?;
    let env = options::runtime_env_json(py, &current::runtime_env(&session))?;
    context.set_item("runtime_env", env)?;
    let inside = current::runtime_env(&session).group;
    context.set_item("placement_group_id", inside.map(|inside| inside.group.hex()))?;
    context.set_item("captures", inside.is_some_and(|inside| inside.capture))?;
    context.set_item("address", &session.address)?;
    context.set_item("session_dir", &welcome.session_dir)?;
    Ok(context)
}
