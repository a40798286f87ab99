//! What runs in this process and where it stands, for `hoplo why`.
//!
//! A wait is noted once it has lasted for [`SIGNALS_PERIOD`]: what is short costs nothing and interests nobody.
//! Where Python code is only Python can tell, and it may be busy: a thread asks it, and who waits for the
//! answer goes on without it after [`WHY_RUNNING_PATIENCE`].

use std::collections::BTreeMap;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use hoplo_base::limits::{
    SIGNALS_PERIOD, WAIT_OBJECTS_TOLD_MAX, WAITS_LOCK_PATIENCE, WHY_RUNNING_PATIENCE,
};
use hoplo_base::{AnyId, ObjectId, TaskId, shown};
use hoplo_client::{CallWaits, RunningCall};
use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::current;
use crate::hooks;
use crate::python::Import;

/// By thread.
static WAITS: Mutex<BTreeMap<u64, Wait>> = Mutex::new(BTreeMap::new());

struct Wait {
    operation: &'static str,
    objects: Vec<ObjectId>,
    only: bool,
    since: Instant,
}

/// Notes what this thread waits for, once it was asked to; forgets it when it is dropped.
pub(crate) struct Noted(Option<u64>);

impl Noted {
    pub(crate) fn not_yet() -> Self {
        Self(None)
    }

    /// Of a thread that has waited for `SIGNALS_PERIOD`. `only`: it needs all of them, however long it takes.
    pub(crate) fn note(
        &mut self,
        operation: &'static str,
        only: bool,
        missing: impl FnOnce() -> Vec<ObjectId>,
    ) {
        if self.0.is_some() {
            return;
        }
        let thread = current::thread();
        let mut objects = missing();
        objects.truncate(WAIT_OBJECTS_TOLD_MAX);
        let since = Instant::now().checked_sub(SIGNALS_PERIOD).unwrap_or_else(Instant::now);
        // In the child of a fork somebody who stayed with the parent may hold it for ever.
        if let Some(mut waits) = WAITS.try_lock_for(WAITS_LOCK_PATIENCE) {
            waits.insert(thread, Wait { operation, objects, only, since });
            self.0 = Some(thread);
        }
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        if let Some(thread) = self.0
            && let Some(mut waits) = WAITS.try_lock_for(WAITS_LOCK_PATIENCE)
        {
            waits.remove(&thread);
        }
    }
}

/// Every call that runs here, for people. Waits for the interpreter, at most for `WHY_RUNNING_PATIENCE`.
pub(crate) fn calls() -> Vec<RunningCall> {
    let threads = current::running();
    let idents: Vec<u64> = threads.iter().map(|(thread, _)| *thread).collect();
    let seen = look(idents);
    let busy =
        || "Python code that does not answer: it is busy, maybe outside of Python".to_string();
    let (places, awaiting) = match seen {
        Some(Seen { places, awaiting }) => (places.into_iter().map(Some).collect(), awaiting),
        None => (threads.iter().map(|_| Some(Some(busy()))).collect::<Vec<_>>(), Vec::new()),
    };
    let waits = WAITS.lock();
    let in_threads = threads.into_iter().zip(places).map(|((thread, running), at)| {
        let (task, name) = (running.task, shown(running.title()).into_owned());
        let ran = current::coarse_now().saturating_sub(running.since);
        let waits = waits.get(&thread).map(|wait| CallWaits {
            operation: wait.operation,
            objects: wait.objects.clone(),
            only: wait.only,
            waited: wait.since.elapsed(),
        });
        RunningCall { task, name, ran, at: at.flatten(), waits }
    });
    in_threads.chain(awaiting).collect()
}

/// Calls that have begun in threads; of an async actor `None`, whose event loop begins what it takes.
pub(crate) fn begun() -> Option<Vec<(TaskId, Duration)>> {
    if current::actor().is_some_and(|actor| actor.is_async) {
        return None;
    }
    let now = current::coarse_now();
    let begun = current::running().into_iter();
    Some(begun.map(|(_, call)| (call.task, now.saturating_sub(call.since))).collect())
}

struct Seen {
    /// Of each thread that was asked about.
    places: Vec<Option<String>>,
    /// Calls of an async actor.
    awaiting: Vec<RunningCall>,
}

/// A call of an async actor as `hoplo._introspect` tells it: id, name, seconds, place, refs it awaits.
type Awaiting = (String, String, f64, Option<String>, Vec<String>);

fn look(threads: Vec<u64>) -> Option<Seen> {
    static LOOK: Import = Import::new("hoplo._introspect", "look");
    let (answer, answered) = channel();
    let ask = move || {
        let seen = Python::try_attach(|py| -> PyResult<Seen> {
            let found = LOOK.get(py)?.call1((threads, hooks::runtime(py)))?;
            let (places, calls): (Vec<Option<String>>, Vec<Awaiting>) = found.extract()?;
            Ok(Seen { places, awaiting: calls.into_iter().filter_map(awaiting).collect() })
        });
        if let Some(Ok(seen)) = seen {
            // Who asked may have gone on.
            let _ = answer.send(seen);
        }
    };
    std::thread::Builder::new().name("hoplo-look".to_string()).spawn(ask).ok()?;
    answered.recv_timeout(WHY_RUNNING_PATIENCE).ok()
}

fn awaiting((task, name, ran, at, objects): Awaiting) -> Option<RunningCall> {
    let AnyId::Task(task): AnyId = task.parse().ok()? else { return None };
    let objects = objects.iter().filter_map(|id| match id.parse() {
        Ok(AnyId::Object(object)) => Some(object),
        _ => None,
    });
    let objects: Vec<ObjectId> = objects.collect();
    let ran = Duration::try_from_secs_f64(ran).unwrap_or_default();
    let waits = CallWaits { operation: "await", objects, only: true, waited: ran };
    let waits = (!waits.objects.is_empty()).then_some(waits);
    Some(RunningCall { task, name, ran, at, waits })
}
