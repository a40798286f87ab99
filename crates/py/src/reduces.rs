//! Objects that are folded on their way to this node.

use hoplo_client::{Allocation, GivesUp, Made};
use hoplo_wire::{FoldOp, NoReduce, Wish};
use parking_lot::Mutex;
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::refs::ObjectRef;
use crate::{context, python, session, values};

/// What nodes folded on its way to this one: a value that lies in the store, and is no object yet.
#[pyclass(frozen, module = "hoplo._core")]
pub(crate) struct Folded {
    made: Mutex<Option<Made>>,
    _looked_at: values::LookedAt,
}

#[pymethods]
impl Folded {
    /// Whether all its numbers can be divided; then they were, if that was asked for.
    fn divides(&self) -> bool {
        self.made.lock().as_mut().is_some_and(Made::divides)
    }

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
    /// A task returns it: once.
    pub(crate) fn take(&self) -> Option<Allocation> {
        self.made.lock().take().map(Made::into_result)
    }
}

/// What all of these give together. Or why nodes cannot make it on their way, whether another try may help, and the places
/// in the list of those that are lost. `op`: sum, prod, min, max or mean. `for_all`: the task that runs returns it, and nodes that
/// have members read that.
#[pyfunction]
pub(crate) fn fold_members<'py>(
    py: Python<'py>,
    op: &str,
    refs: Vec<PyRef<'py, ObjectRef>>,
    for_all: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let session = session::current(py)?;
    let divide_by = (op == "mean").then(|| u32::try_from(refs.len())).transpose()?;
    let op = match op {
        "sum" | "mean" => FoldOp::Sum,
        "prod" => FoldOp::Prod,
        "min" => FoldOp::Min,
        "max" => FoldOp::Max,
        other => return Err(PyValueError::new_err(format!("nodes do not fold by {other:?}"))),
    };
    let members = refs.iter().map(|one| one.id_in(&session)).collect::<PyResult<Vec<_>>>()?;
    drop(refs);
    let task = context::running(py)?.filter(|_| for_all).map(|running| running.task);
    let wish = Wish { op, divide_by, for_all: task.map(|task| task.object(0)) };
    let made = python::interruptible(py, |gives_up: GivesUp<'_>| {
        session.client.reduce(wish, members.clone(), gives_up)
    })?;
    match made {
        Ok(made) => {
            let made = Mutex::new(Some(made));
            let folded = Folded { made, _looked_at: values::LookedAt::begin() };
            Ok(Bound::new(py, folded)?.into_any())
        }
        Err(NoReduce { why, again, lost }) => {
            let places = (0..members.len()).filter(|at| lost.contains(&members[*at]));
            (why, again, places.collect::<Vec<_>>()).into_bound_py_any(py)
        }
    }
}

/// Whether this process knows that it has a value, which lies in the store of some node.
#[pyfunction]
pub(crate) fn is_stored(py: Python<'_>, r#ref: PyRef<'_, ObjectRef>) -> PyResult<bool> {
    let session = session::current(py)?;
    let object = r#ref.id_in(&session)?;
    Ok(session.client.are_stored(&[object]))
}
