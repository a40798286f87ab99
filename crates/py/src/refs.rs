//! `ObjectRef`: one Python object is one counted reference of this process.

use std::ffi::CStr;
use std::sync::{Arc, OnceLock};

use hoplo_base::ObjectId;
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyAttributeError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pyclass::CompareOp;
use pyo3::types::{PyBytes, PyCFunction, PyDict, PyList, PyTuple};

use crate::errors;
use crate::python::{self, Import};
use crate::session::{self, Session};
use crate::values::contained;

/// The name of an object that exists, or that will exist once its task has run.
///
/// `hoplo.get(ref)` and `await ref` give the value, or raise what the task raised. Refs of the same
/// object are equal. A ref may be passed to tasks and actors, returned from them, and stored inside
/// other objects; the object lives as long as any process holds a ref of it, or a living object
/// contains one. `ObjectRef[int]` is for annotations.
#[pyclass(frozen, generic, mapping, weakref, module = "hoplo._core", freelist = 1024)]
pub(crate) struct ObjectRef {
    id: ObjectId,
    /// Known where the call was made.
    of_method: bool,
    session: Arc<Session>,
}

impl ObjectRef {
    /// Takes over one reference of the client.
    pub(crate) fn owning(
        py: Python<'_>,
        session: Arc<Session>,
        id: ObjectId,
    ) -> PyResult<Bound<'_, ObjectRef>> {
        Bound::new(py, ObjectRef { id, of_method: false, session })
    }

    /// Of a result of a call made here.
    pub(crate) fn of_result(
        py: Python<'_>,
        session: Arc<Session>,
        id: ObjectId,
        of_method: bool,
    ) -> PyResult<Bound<'_, ObjectRef>> {
        Bound::new(py, ObjectRef { id, of_method, session })
    }

    /// Counts one more reference, in the live session.
    pub(crate) fn borrowed(py: Python<'_>, id: ObjectId) -> PyResult<Bound<'_, ObjectRef>> {
        let session = session::live().ok_or_else(python::not_initialized)?;
        session.client.add_ref(id);
        contained::note_read(id);
        Self::owning(py, session, id)
    }

    pub(crate) fn id(&self) -> ObjectId {
        self.id
    }

    /// Whether it is certainly the result of an actor's method.
    pub(crate) fn is_of_method(&self) -> bool {
        self.of_method
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// The id, for a call in `session`. Raises for a ref of another.
    pub(crate) fn id_in(&self, session: &Session) -> PyResult<ObjectId> {
        if self.session.number == session.number {
            return Ok(self.id);
        }
        Err(PyRuntimeError::new_err(format!(
            "ObjectRef({}) is of a session that was shut down; its object is gone",
            self.id.hex()
        )))
    }
}

/// How a ref is awaited. `awaiting` tells it: a ref knows nothing of the values that are read through it.
pub(crate) struct Ways {
    pub(crate) awaited: Way,
    pub(crate) future: Way,
}

type Way = for<'py> fn(&Bound<'py, ObjectRef>) -> PyResult<Bound<'py, PyAny>>;

static WAYS: OnceLock<Ways> = OnceLock::new();

pub(crate) fn set_ways(ways: Ways) {
    // A second time where a second interpreter imports the module.
    let _ = WAYS.set(ways);
}

fn ways() -> &'static Ways {
    WAYS.get().expect("set when the module was made, before there was a ref")
}

impl Drop for ObjectRef {
    fn drop(&mut self) {
        self.session.drop_ref(self.id);
    }
}

#[pymethods]
impl ObjectRef {
    /// The id, as hexadecimal text of 40 characters.
    fn hex(&self) -> String {
        self.id.hex()
    }

    /// The id, as 20 bytes.
    fn binary<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.id.to_bytes())
    }

    /// The id of the task that makes the object; of a `put`, the task that called it.
    fn task_id(&self) -> String {
        errors::hex(self.id.task)
    }

    /// A `concurrent.futures.Future` of the value. Cancelling it does not cancel the task.
    fn future<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        (ways().future)(slf)
    }

    fn __await__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.get().session.check()?;
        (ways().awaited)(slf)
    }

    fn __hash__(&self) -> u64 {
        let task = self.id.task;
        (task.seq ^ task.owner.0.rotate_left(32) ^ u64::from(self.id.index) << 48)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn __richcmp__(&self, other: &Bound<'_, PyAny>, op: CompareOp) -> PyResult<Py<PyAny>> {
        let py = other.py();
        let equal = match op {
            CompareOp::Eq => true,
            CompareOp::Ne => false,
            CompareOp::Lt | CompareOp::Le | CompareOp::Gt | CompareOp::Ge => {
                return Err(no_value("is neither more nor less than anything"));
            }
        };
        let Ok(other) = other.cast_exact::<ObjectRef>() else { return Ok(py.NotImplemented()) };
        ((self.id == other.get().id) == equal).into_py_any(py)
    }

    /// There is a `__len__` that raises, which Python would ask.
    fn __bool__(&self) -> bool {
        true
    }

    fn __repr__(&self) -> String {
        format!("ObjectRef({})", self.id.hex())
    }

    fn __iter__(&self) -> PyResult<Py<PyAny>> {
        Err(PyTypeError::new_err(
            "an ObjectRef is the name of one object and cannot be iterated: iterate over \
             hoplo.get(ref), or give the task num_returns=n to get n refs",
        ))
    }

    fn __getitem__(&self, _other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        Err(no_value("has no items"))
    }

    /// Python asks this for what is not there.
    fn __getattr__(&self, name: &str) -> PyResult<Py<PyAny>> {
        if name.starts_with("__") {
            return Err(PyAttributeError::new_err(format!("ObjectRef has no attribute {name:?}")));
        }
        Err(PyAttributeError::new_err(no_value_text(&format!("has no attribute {name:?}"))))
    }

    fn __copy__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __deepcopy__(slf: Py<Self>, _memo: &Bound<'_, PyAny>) -> Py<Self> {
        slf
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        static RESTORE: Import = Import::new("hoplo._core", "_restore_ref");
        let (py, this) = (slf.py(), slf.get());
        this.session.check()?;
        note_or_keep(&this.session, this.id, slf.as_any());
        let id = PyBytes::new(py, &this.id.to_bytes());
        (RESTORE.get(py)?, (id,)).into_pyobject(py)
    }
}

/// What Python calls where somebody takes the ref for the value, and what the ref lacks. `__getitem__` is no such entry:
/// it would make refs sequences, which numpy takes apart. Nor is `__call__`: `callable(ref)` would be true, and where
/// callables are called or taken for methods, refs would be.
const LACKS: [(&CStr, &str); 34] = [
    (c"__add__", "has no +"),
    (c"__radd__", "has no +"),
    (c"__sub__", "has no -"),
    (c"__rsub__", "has no -"),
    (c"__mul__", "has no *"),
    (c"__rmul__", "has no *"),
    (c"__truediv__", "has no /"),
    (c"__rtruediv__", "has no /"),
    (c"__floordiv__", "has no //"),
    (c"__rfloordiv__", "has no //"),
    (c"__mod__", "has no %"),
    (c"__rmod__", "has no %"),
    (c"__pow__", "has no **"),
    (c"__rpow__", "has no **"),
    (c"__matmul__", "has no @"),
    (c"__rmatmul__", "has no @"),
    (c"__and__", "has no &"),
    (c"__rand__", "has no &"),
    (c"__or__", "has no |"),
    (c"__ror__", "has no |"),
    (c"__neg__", "has no -"),
    (c"__pos__", "has no +"),
    (c"__invert__", "has no ~"),
    (c"__abs__", "has no abs()"),
    (c"__round__", "has no round()"),
    (c"__int__", "is no number"),
    (c"__float__", "is no number"),
    (c"__index__", "is no number"),
    (c"__len__", "has no length"),
    (c"__contains__", "contains nothing"),
    (c"__setitem__", "has no items"),
    (c"__delitem__", "has no items"),
    (c"__enter__", "is not for `with`"),
    (c"__exit__", "is not for `with`"),
];

/// Makes refs raise what to do instead. Only who asks for one of these pays for it.
pub(crate) fn refuse_values_work(py: Python<'_>) -> PyResult<()> {
    let refs = py.get_type::<ObjectRef>();
    for (name, what) in LACKS {
        let raises = move |_: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| {
            Err::<(), PyErr>(no_value(what))
        };
        let raises = PyCFunction::new_closure(py, Some(name), None, raises)?;
        refs.setattr(name.to_str().expect("it is ASCII"), raises)?;
    }
    Ok(())
}

/// For who takes the ref for the value.
#[cold]
fn no_value(what: &str) -> PyErr {
    PyTypeError::new_err(no_value_text(what))
}

fn no_value_text(what: &str) -> String {
    format!(
        "an ObjectRef {what}: it is the name of a value that may not be there yet. Read the value with \
         hoplo.get(ref), or pass the ref to a task, which is given the value"
    )
}

/// Tells whoever encodes a value that `object` lies in it, for which `reference` stands. When foreign code
/// pickles, nobody can tell how long the bytes will be kept: the object stays as long as this process does.
pub(crate) fn note_or_keep(session: &Session, object: ObjectId, reference: &Bound<'_, PyAny>) {
    if !contained::note_contained(object, reference) {
        session.client.add_ref(object);
        session.client.escape(object); // the node knows it, wherever the bytes go
    }
}

/// Whether one of `items` is a ref.
#[pyfunction]
pub(crate) fn _holds_ref(items: &Bound<'_, PyList>) -> bool {
    items.iter().any(|item| item.is_exact_instance_of::<ObjectRef>())
}

/// What a pickled ref calls when it is read.
#[pyfunction]
pub(crate) fn _restore_ref<'py>(
    py: Python<'py>,
    id: &Bound<'py, PyBytes>,
) -> PyResult<Bound<'py, ObjectRef>> {
    let id = <[u8; 20]>::try_from(id.as_bytes())
        .map_err(|_| PyValueError::new_err("a ref has an id of 20 bytes"))?;
    ObjectRef::borrowed(py, ObjectId::from_bytes(id))
}

/// The error to raise where `place` was given something else than a ref.
pub(crate) fn not_a_ref(value: &Bound<'_, PyAny>, place: &str) -> PyErr {
    static NOT_A_REF: Import = Import::new("hoplo._api", "not_a_ref");
    NOT_A_REF
        .get(value.py())
        .and_then(|make| make.call1((value, place)))
        .map_or_else(|error| error, PyErr::from_value)
}
