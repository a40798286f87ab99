//! Objects that are folded on their way to this node.

use hoplo_base::ObjectId;
use hoplo_client::{Allocation, GivesUp, Made, Reducing};
use hoplo_wire::{FoldOp, NoReduce, Wish};
use parking_lot::Mutex;
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::refs::ObjectRef;
use crate::session::{self, Session};
use crate::{context, python, values};

/// What nodes folded on its way to this one, or brought together here: a value that lies in the store, and is no object yet.
#[pyclass(frozen, module = "hoplo._core")]
pub(crate) struct Folded {
    made: Mutex<Option<Made>>,
    _looked_at: values::LookedAt,
}

#[pymethods]
impl Folded {
    /// A ref of the value.
    fn put<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, ObjectRef>> {
        let taken = self.made.lock().take();
        let made = taken.ok_or_else(|| PyValueError::new_err("it is an object already"))?;
        let session = session::current(py)?;
        let object = session.client.put_allocated(made.into_other(), &[]);
        ObjectRef::owning(py, session, object)
    }
}

impl Folded {
    pub(crate) fn new(py: Python<'_>, made: Made) -> PyResult<Bound<'_, Self>> {
        let made = Mutex::new(Some(made));
        Bound::new(py, Self { made, _looked_at: values::LookedAt::begin() })
    }

    /// A task returns it: once.
    pub(crate) fn take(&self) -> Option<Allocation> {
        self.made.lock().take().map(Made::into_result)
    }
}

/// What all of these give together. Or why nodes cannot make it on their way, whether another try may help, and the places
/// in the list of those that are lost. `op`: sum, prod, min, max or mean. `for_all`: the task that runs returns it, and nodes that
/// have members read that. `come_again` is called with such places while nodes keep what they have, and says whether those members are
/// there again. None, or if not: it is given up.
#[pyfunction]
#[pyo3(signature = (op, refs, for_all, come_again = None))]
pub(crate) fn fold_members<'py>(
    py: Python<'py>,
    op: &str,
    refs: Vec<PyRef<'py, ObjectRef>>,
    for_all: bool,
    come_again: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let session = session::current(py)?;
    let wish = wish(py, op, refs.len(), for_all)?;
    let members = ids(&session, &refs)?;
    drop(refs);
    let places = |lost: &[ObjectId]| -> Vec<usize> {
        (0..members.len()).filter(|at| lost.contains(&members[*at])).collect()
    };
    let mut raised = None;
    let made = python::interruptible(py, |gives_up: GivesUp<'_>| {
        session.client.reduce(wish, members.clone(), gives_up, &mut |lost| {
            let Some(come_again) = &come_again else { return false };
            let called = Python::attach(|py| {
                come_again.call1(py, (places(lost),)).and_then(|come| come.extract::<bool>(py))
            });
            called.unwrap_or_else(|error| {
                raised = Some(error);
                false
            })
        })
    })?;
    match (made, raised) {
        (_, Some(error)) => Err(error),
        (Ok(made), None) => Ok(Folded::new(py, made)?.into_any()),
        (Err(NoReduce { why, again, lost, .. }), None) => {
            (why, again, places(&lost)).into_bound_py_any(py)
        }
    }
}

/// What `count` members give together that come one after the other, for the task that runs, which returns it, and for nodes that have
/// members. `batches` gives lists of refs whose members are there, and whether others come. None: nodes did not make it, or
/// `batches` ended before the last member came.
#[pyfunction]
pub(crate) fn fold_as_they_come<'py>(
    py: Python<'py>,
    op: &str,
    count: usize,
    batches: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, Folded>>> {
    let session = session::current(py)?;
    let wish = wish(py, op, count, true)?;
    let mut reducing: Option<Reducing> = None;
    for batch in batches.try_iter()? {
        let said = batch.and_then(|batch| {
            let (refs, more): (Vec<PyRef<'py, ObjectRef>>, bool) = batch.extract()?;
            Ok((ids(&session, &refs)?, more))
        });
        let (members, more) = match said {
            Ok(said) => said,
            Err(error) => {
                py.detach(|| reducing.map(Reducing::give_up));
                return Err(error);
            }
        };
        match &reducing {
            Some(reducing) => reducing.add(members, more),
            None => match session.client.begin_reduce(wish, members, more) {
                Ok(begun) => reducing = Some(begun),
                Err(_) => return Ok(None),
            },
        }
        if !more {
            let reducing = reducing.take().expect("it has begun");
            // What comes one after the other is no chain that goes on.
            let made = python::interruptible(py, |gives_up: GivesUp<'_>| {
                reducing.made(gives_up, &mut |_| false)
            })?;
            return made.ok().map(|made| Folded::new(py, made)).transpose();
        }
    }
    py.detach(|| reducing.map(Reducing::give_up));
    Ok(None)
}

fn wish(py: Python<'_>, op: &str, count: usize, for_all: bool) -> PyResult<Wish> {
    let divide_by = (op == "mean").then(|| u32::try_from(count)).transpose()?;
    let op = match op {
        "sum" | "mean" => FoldOp::Sum,
        "prod" => FoldOp::Prod,
        "min" => FoldOp::Min,
        "max" => FoldOp::Max,
        other => return Err(PyValueError::new_err(format!("nodes do not fold by {other:?}"))),
    };
    let task = context::running(py)?.filter(|_| for_all).map(|running| running.task);
    Ok(Wish { op, divide_by, for_all: task.map(|task| task.object(0)) })
}

fn ids(session: &Session, refs: &[PyRef<'_, ObjectRef>]) -> PyResult<Vec<ObjectId>> {
    refs.iter().map(|one| one.id_in(session)).collect()
}

/// Whether this process knows that it has a value, which lies in the store of some node.
#[pyfunction]
pub(crate) fn is_stored(py: Python<'_>, r#ref: PyRef<'_, ObjectRef>) -> PyResult<bool> {
    let session = session::current(py)?;
    let object = r#ref.id_in(&session)?;
    Ok(session.client.are_stored(&[object]))
}

/// Whether this process knows that it has a value, which lies in the store of another node.
#[pyfunction]
pub(crate) fn is_elsewhere(py: Python<'_>, r#ref: PyRef<'_, ObjectRef>) -> PyResult<bool> {
    let session = session::current(py)?;
    let object = r#ref.id_in(&session)?;
    Ok(session.client.is_elsewhere(object))
}
