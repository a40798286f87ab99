//! `get`, `put`, `wait`: values in and out.
//!
//! `get` looks first and detaches from the interpreter only when something is missing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hoplo_base::ObjectId;
use hoplo_base::limits::INLINE_BYTES_MAX;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use crate::fetch::{one, put_large, timed_out, until, value_of};
use crate::python::Import;
use crate::refs::{ObjectRef, not_a_ref};
use crate::session::{self, Session};
use crate::stream::{self, ObjectRefGenerator};
use crate::values::{self, Contained, Encoded};

/// The value of a ref, or the list of the values of a list of refs. Waits until they are there.
///
/// If a task raised, `get` raises an error that is an instance of both `TaskError` and the type
/// that the task raised; of a list as soon as one of its refs has failed. After `timeout` seconds
/// it raises `GetTimeoutError`, whose text says what each missing result waits for. Arrays of 4 KiB
/// and more are read-only; those in the object store are not copied.
#[pyfunction]
#[pyo3(signature = (refs, *, timeout=None))]
pub(crate) fn get<'py>(
    refs: &Bound<'py, PyAny>,
    timeout: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = refs.py();
    let timeout = timeout.map(seconds).transpose()?;
    let deadline = deadline(timeout)?;
    if let Ok(reference) = refs.cast_exact::<ObjectRef>() {
        let reference = reference.get();
        let session = reference.session();
        session.check()?;
        let content = match session.client.read(reference.id()) {
            Some(content) => content,
            None => one(py, session, reference.id(), timeout, deadline)?,
        };
        return value_of(py, &content, reference.id());
    }
    let Some(refs) = sequence(refs) else { return Err(not_a_ref(refs, "get")) };
    let session = session::current(py)?;
    let ids = ids_of(&session, &refs, "get")?;
    Ok(PyList::new(py, all(py, &session, &ids, timeout, deadline)?)?.into_any())
}

/// Stores `value` as an object that all processes can read, and returns its ref.
///
/// In a cluster, `copies` is the number of nodes that are to have it. The others fetch it after
/// `put` has returned, and keep it as long as anybody has a ref: so it outlives the node of the
/// process that put it. With fewer nodes there are fewer copies, until more join; for each copy
/// that is lost with a node another one is made. `hoplo.experimental.wait_for_copies` waits until
/// there are so many.
///
/// Raises TypeError for a ref, SerializationError for a value that cannot be pickled, and
/// ObjectStoreFullError when neither memory nor disk has room for it.
#[pyfunction]
#[pyo3(signature = (value, *, copies=None), text_signature = "(value, *, copies=1)")]
pub(crate) fn put<'py>(
    value: &Bound<'py, PyAny>,
    copies: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, ObjectRef>> {
    static COPIES: Import = Import::new("hoplo._checks", "copies");
    let py = value.py();
    let copies = match copies {
        None => 1,
        Some(copies) => COPIES.get(py)?.call1(("copies", copies))?.extract()?,
    };
    if value.is_exact_instance_of::<ObjectRef>() {
        return Err(PyTypeError::new_err(
            "put() takes a value, not an ObjectRef: the object is in hoplo already. To put the \
             ref itself, wrap it in a list: hoplo.put([ref])",
        ));
    }
    let session = session::current(py)?;
    let object = if copies == 1 {
        put_value(&session, value, INLINE_BYTES_MAX)?
    } else {
        // Other nodes fetch what is stored.
        let object = put_value(&session, value, 0)?;
        session.client.put_copies(object, copies);
        object
    };
    ObjectRef::owning(py, session, object)
}

/// A value of more than `inline_max` bytes goes into the store.
fn put_value(session: &Session, value: &Bound<'_, PyAny>, inline_max: usize) -> PyResult<ObjectId> {
    if let Some(object) = values::put_in_place(session, value)? {
        return Ok(object);
    }
    let (mut bytes, mut contains) = (Vec::new(), Contained::default());
    let encoded = values::encode(value, inline_max, &mut bytes, &mut contains)
        .map_err(|error| values::unpicklable(value, "the value", error))?;
    match encoded {
        Encoded::Inline => Ok(session.client.put(&bytes, contains.ids())),
        Encoded::Large(large) => put_large(value.py(), session, &large, contains.ids()),
    }
}

/// `hoplo.wait`: of its checks, what needs a look at every ref is done here.
#[pyfunction]
pub(crate) fn wait<'py>(
    refs: &Bound<'py, PyAny>,
    num_returns: usize,
    timeout: Option<f64>,
    fetch_local: bool,
) -> PyResult<(Bound<'py, PyList>, Bound<'py, PyList>)> {
    let py = refs.py();
    let session = session::current(py)?;
    let Some(refs) = sequence(refs) else { return Err(not_a_ref(refs, "wait")) };
    let deadline = deadline(timeout)?;
    let done = if refs.iter().any(|one| one.is_exact_instance_of::<ObjectRefGenerator>()) {
        stream::wait_mixed(py, &session, &refs, num_returns, deadline)?
    } else {
        let ids = ids_of(&session, &refs, "wait")?;
        each_once(&ids)?;
        let client = &session.client;
        let look = || if fetch_local { client.ready_here(&ids) } else { client.ready(&ids) };
        let ready = look();
        if ready.iter().filter(|ready| **ready).count() >= num_returns {
            ready
        } else {
            let only = num_returns == ids.len() && deadline.is_none();
            until(py, &session, ("wait", &ids, only), || match fetch_local {
                true => client.wait_here(&ids, num_returns, deadline),
                false => client.wait_word(&ids, num_returns, deadline),
            })?;
            look()
        }
    };
    let (mut ready, mut rest) = (Vec::with_capacity(num_returns.min(refs.len())), Vec::new());
    for (one, done) in refs.into_iter().zip(done) {
        let list = if done && ready.len() < num_returns { &mut ready } else { &mut rest };
        list.push(one);
    }
    Ok((PyList::new(py, ready)?, PyList::new(py, rest)?))
}

/// Raises for a ref that is listed twice.
fn each_once(ids: &[ObjectId]) -> PyResult<()> {
    // The results of calls made in a row come in order, and then one look will do.
    if ids.is_sorted_by(|one, next| one < next) {
        return Ok(());
    }
    let mut sorted = ids.to_vec();
    sorted.sort_unstable();
    if sorted.is_sorted_by(|one, next| one < next) {
        return Ok(());
    }
    Err(PyValueError::new_err(
        "wait takes each ref once; write list(dict.fromkeys(refs)) to drop doubles",
    ))
}

/// Checked arguments of `hoplo.cancel`.
#[pyfunction]
pub(crate) fn cancel(target: &Bound<'_, PyAny>, force: bool, recursive: bool) -> PyResult<()> {
    let (session, object, of_method) = if let Ok(reference) = target.cast_exact::<ObjectRef>() {
        let reference = reference.get();
        (Arc::clone(reference.session()), reference.id(), reference.is_of_method())
    } else if let Ok(stream) = target.cast_exact::<ObjectRefGenerator>() {
        let stream = stream.get();
        (Arc::clone(stream.session()), stream.task().object(0), stream.is_of_method())
    } else {
        return Err(not_a_ref(target, "cancel"));
    };
    session.check()?;
    if force && of_method {
        return Err(PyValueError::new_err(
            "force=True ends a worker process, and this is a call of an actor's method: leave it \
             out, or end the actor with hoplo.kill(actor)",
        ));
    }
    session.client.cancel(object, force, recursive);
    Ok(())
}

/// `hoplo._api` reads what is no float of ours, or refuses it.
fn seconds(timeout: &Bound<'_, PyAny>) -> PyResult<f64> {
    static SECONDS: Import = Import::new("hoplo._api", "seconds");
    timeout.extract().or_else(|_| SECONDS.get(timeout.py())?.call1((timeout,))?.extract())
}

/// When a `timeout` in seconds that starts now is over.
pub(crate) fn deadline(timeout: Option<f64>) -> PyResult<Option<Instant>> {
    let Some(seconds) = timeout else { return Ok(None) };
    if seconds.is_nan() || seconds < 0.0 {
        return Err(PyValueError::new_err(format!(
            "timeout must be 0 or more seconds, not {seconds}; None waits for ever"
        )));
    }
    // Longer than a clock can hold is for ever.
    Ok(Duration::try_from_secs_f64(seconds).ok().and_then(|time| Instant::now().checked_add(time)))
}

fn all<'py>(
    py: Python<'py>,
    session: &Session,
    ids: &[ObjectId],
    timeout: Option<f64>,
    deadline: Option<Instant>,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let mut values = Vec::with_capacity(ids.len());
    let mut waited = false;
    for (at, id) in ids.iter().enumerate() {
        let content = loop {
            if let Some(content) = session.client.read(*id) {
                break content;
            }
            // At first for all that follow at once; later for one that had to be fetched again.
            let missing = if waited { &ids[at..=at] } else { &ids[at..] };
            waited = true;
            let what = ("get", missing, deadline.is_none());
            if !until(py, session, what, || session.client.wait_all(missing, deadline))? {
                return Err(timed_out(py, session, missing, timeout));
            }
            if let Some(failed) = session.client.first_failed(missing)
                && let Some(content) = session.client.read(failed)
            {
                value_of(py, &content, failed)?;
            }
        };
        values.push(value_of(py, &content, *id)?);
    }
    Ok(values)
}

fn sequence<'py>(refs: &Bound<'py, PyAny>) -> Option<Vec<Bound<'py, PyAny>>> {
    if let Ok(list) = refs.cast::<PyList>() {
        return Some(list.iter().collect());
    }
    refs.cast::<PyTuple>().ok().map(|tuple| tuple.iter().collect())
}

fn ids_of(session: &Session, refs: &[Bound<'_, PyAny>], place: &str) -> PyResult<Vec<ObjectId>> {
    refs.iter()
        .map(|one| match one.cast_exact::<ObjectRef>() {
            Ok(reference) => reference.get().id_in(session),
            Err(_) => Err(not_a_ref(one, place)),
        })
        .collect()
}
