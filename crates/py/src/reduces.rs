//! Objects that are folded on their way to this node.

use hoplo_client::GivesUp;
use hoplo_wire::{FoldOp, NoReduce};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::python;
use crate::refs::ObjectRef;
use crate::session;

/// A ref of what all of these give together. Or why nodes cannot make it on their way, whether another try may help, and the places
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
        Ok(object) => Ok(ObjectRef::owning(py, session, object)?.into_any()),
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
