//! How an actor with checkpoints runs its calls (`core::worker::journal` decides), and becomes what it was.
//!
//! ```text
//!   constructor --> restore(state) --> calls of the log, one by one --> ActorStarted       (`Replaying`)
//!   a call --ran before--> its answer, once more
//!          --new--> arguments, log, run, wait for the log, reply --due--> checkpoint()
//! ```
//! A call is logged once its arguments are there, so that the refs inside them are known; one whose arguments failed changes nothing
//! and is not logged.

use std::sync::Arc;

use hoplo_base::limits::CHECKPOINT_BYTES_MAX;
use hoplo_client::{IncomingCall, Room};
use hoplo_wire::node::{Answer, Replay};
use hoplo_wire::{Failure, FailureKind};
use pyo3::exceptions::{PyRuntimeError, PySystemExit, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::args::ArgsError;
use crate::calls::{Fault, Invocation};
use crate::current;
use crate::errors;
use crate::exits::{exit_status, is_actor_exit};
use crate::get;
use crate::instance::Actor;
use crate::leaving::After;
use crate::lines;
use crate::python::Import;
use crate::refs::ObjectRef;
use crate::session::{self, Session};
use crate::values::{self, Contained};

/// Behind the constructor: the state of the checkpoint.
pub(crate) fn restore(
    py: Python<'_>,
    session: &Session,
    actor: &mut Actor,
    replay: &Replay,
) -> PyResult<()> {
    let Some(checkpoint) = &replay.checkpoint else { return Ok(()) };
    let state = values::load(&PyBytes::new(py, &checkpoint.state), None)?;
    actor.runtime.bind(py).call_method1(intern!(py, "restore"), (state,))?;
    for object in session.client.kept_answers() {
        actor.kept.0.push(ObjectRef::borrowed(py, object)?.unbind());
    }
    Ok(())
}

/// Then the calls since. `Some`: the process ends.
pub(crate) fn replay(
    py: Python<'_>,
    session: &Arc<Session>,
    actor: &mut Actor,
    replay: &Replay,
) -> Result<Option<After>, ArgsError> {
    for call in &replay.calls {
        let task = hoplo_wire::call::task_of(&call.frame).map_err(errors::malformed)?;
        let incoming =
            IncomingCall { caller: task.owner, tag: task.seq, frame: call.frame.clone() };
        let call_again =
            Invocation::of(Arc::clone(session), incoming, |header| actor.name_of(header.function));
        let call_again =
            call_again.ok_or_else(|| errors::malformed("a logged call cannot be read"))?;
        let method = actor.method(py, call_again.header.function)?;
        session.client.replay_call(call);
        current::set_main(Some(call_again.running(py, true)));
        session.client.set_running(Some(task));
        let result = call_again.arguments(py).map(|(args, kwargs)| {
            let result = method.call(args, kwargs.as_ref());
            lines::end(py);
            result
        });
        current::set_main(None);
        session.client.set_running(None);
        let result = result.map_err(|error| not_replayed(py, &call_again, error))?;
        if let Err(error) = &result
            && let Some(after) = ends(py, error)
        {
            return Ok(Some(after));
        }
        match call_again.answer(py, result)? {
            Ok(values) => session.client.answers_again(task, Answer::Values(values)),
            Err(value) => {
                // In a tuple, since it may be a ref.
                let kept = get::put(PyTuple::new(py, [value])?.as_any(), None)?;
                session.client.answers_again(task, Answer::Kept(kept.get().id()));
                actor.kept.0.push(kept.unbind());
            }
        }
    }
    actor.kept.prune(session);
    if session.client.log_room() != Room::Enough {
        actor.try_checkpoint(py, session);
    }
    Ok(None)
}

/// An argument that was there is there no more.
fn not_replayed(py: Python<'_>, call: &Invocation, error: ArgsError) -> ArgsError {
    let error = match error {
        ArgsError::Failed(failure) => errors::raised(py, &failure, None),
        ArgsError::Delayed => unreachable!("a method waits for its arguments"),
        ArgsError::Raised(error) => error,
    };
    let text =
        format!("{} ran before and cannot be replayed, since its arguments are gone", call.name);
    let made = PyRuntimeError::new_err(text);
    made.set_cause(py, Some(error));
    ArgsError::Raised(made)
}

/// What the same call did before, too.
fn ends(py: Python<'_>, error: &PyErr) -> Option<After> {
    if is_actor_exit(py, error) {
        return Some(After::ActorExit);
    }
    error.is_instance_of::<PySystemExit>(py).then(|| match exit_status(py, error) {
        0 => After::ActorExit,
        status => After::Exit(status),
    })
}

impl Actor {
    /// Runs a call that was taken, unless it ran before.
    pub(crate) fn logged_call(
        &mut self,
        py: Python<'_>,
        session: &Arc<Session>,
        call: &Invocation,
        method: &Bound<'_, PyAny>,
    ) -> After {
        let known = session.client.answer_of_known(call.task());
        if known.is_some() {
            py.detach(|| session.client.wait_until_logged());
        }
        match known {
            None => {}
            Some(Answer::Values(values)) => return call.answer_again(py, values),
            Some(Answer::Kept(object)) => {
                let kept = ObjectRef::borrowed(py, object);
                let value = kept.and_then(|kept| get::get(kept.as_any(), None));
                return match value.and_then(|value| value.get_item(0)) {
                    Ok(value) => call.finish(&value),
                    Err(error) => call.fail(py, Fault::Raised(error)),
                };
            }
            Some(Answer::Lost) => return call.fail(py, Fault::Raised(lost(call))),
        }
        if call.is_streaming() {
            let text = format!(
                "{} was called with num_returns='streaming': an actor with checkpoints replays its calls, and a stream \
                 cannot be replayed; return a list, or set checkpoint_every=0",
                call.name
            );
            return call.fail(py, Fault::Raised(PyValueError::new_err(text)));
        }
        if session.client.log_room() == Room::Full {
            return self.cannot_log(session, call);
        }
        let after = call.run_logged(py, method);
        if !self.kept.0.is_empty() {
            self.kept.prune(session);
        }
        if after == After::GoOn && session.client.log_room() != Room::Enough {
            self.try_checkpoint(py, session);
        }
        after
    }

    pub(crate) fn try_checkpoint(&mut self, py: Python<'_>, session: &Session) {
        if let Err(error) = self.checkpoint(py, session) {
            session.client.no_checkpoint();
            eprintln!(
                "hoplo: {} made no checkpoint. It is tried again; until then all calls since the last one are kept to be replayed",
                self.inlet.class_name
            );
            error.print(py);
        }
    }

    fn checkpoint(&mut self, py: Python<'_>, session: &Session) -> PyResult<()> {
        static DUMPS: Import = Import::new("hoplo._serialization", "dumps_in_band");
        let state = self.runtime.bind(py).call_method0(intern!(py, "checkpoint"))?;
        let mut contains = Contained::default();
        let dumps = DUMPS.get(py)?;
        let name = || format!("what {}.checkpoint() returned", self.inlet.class_name);
        let pickle = contains
            .collect(|| dumps.call1((&state,)))
            .map_err(|error| values::unpicklable(&state, &name(), error))?;
        let pickle = pickle.cast_into::<PyBytes>()?;
        let bytes = pickle.as_bytes();
        if bytes.len() > CHECKPOINT_BYTES_MAX {
            return Err(PyValueError::new_err(format!(
                "{} takes {} bytes, and a checkpoint may take {CHECKPOINT_BYTES_MAX}: put large parts of it with hoplo.put(), \
                 and return their refs",
                name(),
                bytes.len()
            )));
        }
        values::check_refs(contains.len())?;
        let bytes = bytes.to_vec();
        let (ids, kept) = contains.into_parts();
        py.detach(|| session.client.checkpoint(bytes, ids));
        drop(kept);
        self.kept.prune(session);
        Ok(())
    }

    /// Its `checkpoint()` has raised for too long.
    fn cannot_log(&self, session: &Session, call: &Invocation) -> After {
        let text = format!(
            "{} could not make a checkpoint for so long that no more calls can be kept to be replayed; see what its checkpoint() \
             raises above. The call of {} did not run",
            self.inlet.class_name, call.name
        );
        session.client.actor_failed(Failure::new(FailureKind::ActorDied, text));
        After::Exit(1)
    }
}

fn lost(call: &Invocation) -> PyErr {
    PyRuntimeError::new_err(format!(
        "{} ran once, and its result was lost with the node from which it was sent: it was large, or held refs. Its effects in the \
         actor stay",
        call.name
    ))
}

/// `hoplo.checkpoint()`.
#[pyfunction]
pub(crate) fn ask_for_checkpoint() -> bool {
    session::live().is_some_and(|session| session.client.ask_for_checkpoint())
}
