//! Objects that are folded on their way to this node.

use hoplo_client::{Allocation, GivesUp};
use hoplo_wire::{FoldOp, NoReduce};
use parking_lot::Mutex;
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::python;
use crate::refs::ObjectRef;
use crate::{session, values};

/// What nodes folded on its way to this one: a value that lies in the store, and is no object yet.
#[pyclass(frozen, module = "hoplo._core")]
pub(crate) struct Folded {
    allocation: Mutex<Option<Allocation>>,
    _looked_at: values::LookedAt,
}

#[pymethods]
impl Folded {
    /// Divides all its numbers, if they are floating or complex; false if they are not, and stay as they are.
    fn divide(&self, py: Python<'_>, count: u32) -> bool {
        py.detach(|| self.allocation.lock().as_mut().is_some_and(|it| it.divide(count)))
    }

    /// A ref of the value.
    fn put<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, ObjectRef>> {
        let taken = self.take().ok_or_else(|| PyValueError::new_err("it is an object already"))?;
        let session = session::current(py)?;
        let object = session.client.put_allocated(taken, &[]);
        ObjectRef::owning(py, session, object)
    }
}

impl Folded {
    /// Once.
    pub(crate) fn take(&self) -> Option<Allocation> {
        self.allocation.lock().take()
    }
}

/// What all of these give together. Or why nodes cannot make it on their way, whether another try may help, and the places
/// in the list of those that are lost. `op`: sum, prod, min or max.
#[pyfunction]
pub(crate) fn fold_members<'py>(
    py: Python<'py>,
    op: &str,
    refs: Vec<PyRef<'py, ObjectRef>>,
) -> PyResult<Bound<'py, PyAny>> {
    let session = session::current(py)?;
    let op = match op {
        "sum" => FoldOp::Sum,
        "prod" => FoldOp::Prod,
        "min" => FoldOp::Min,
        "max" => FoldOp::Max,
        other => return Err(PyValueError::new_err(format!("nodes do not fold by {other:?}"))),
    };
    let members = refs.iter().map(|one| one.id_in(&session)).collect::<PyResult<Vec<_>>>()?;
    drop(refs);
    let made = python::interruptible(py, |gives_up: GivesUp<'_>| {
        session.client.reduce(op, members.clone(), gives_up)
    })?;
    match made {
        Ok(allocation) => {
            let allocation = Mutex::new(Some(allocation));
            let folded = Folded { allocation, _looked_at: values::LookedAt::begin() };
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
