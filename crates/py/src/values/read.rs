//! Bytes to values.

use std::sync::Arc;

use hoplo_client::{Content, Pinned};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::PyList;

use super::pickled::{self, Layout};
use super::{AlignedCopy, PICKLE, PlainReader, StoredBytes};
use crate::errors;
use crate::missing;

/// The value of a ready object; its arrays read the object's memory, if that is the store. `Err` for what failed.
pub(crate) fn read_content<'py>(py: Python<'py>, content: &Content) -> PyResult<Bound<'py, PyAny>> {
    match content {
        // These bytes begin anywhere: arrays are read from aligned copies, like those of a frame.
        Content::Inline(bytes) => read_value(py, bytes),
        Content::Stored(pinned) => read(py, pinned, Some(pinned)),
        Content::Failed(failure) => Err(errors::raised(py, failure, None)),
    }
}

/// The value of bytes that lie in a frame, or elsewhere outside of the store.
pub(crate) fn read_value<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    read(py, bytes, None)
}

impl<'py> PlainReader<'_, 'py> {
    /// The next value, plain or pickled.
    pub(crate) fn value(&mut self) -> PyResult<Bound<'py, PyAny>> {
        if self.peek() == Some(PICKLE) {
            let len = Layout::parse(self.rest())?.len()?;
            return read_value(self.py(), self.take(len)?);
        }
        self.plain()
    }
}

fn read<'py>(
    py: Python<'py>,
    bytes: &[u8],
    stored: Option<&Arc<Pinned>>,
) -> PyResult<Bound<'py, PyAny>> {
    if bytes.first() != Some(&PICKLE) {
        return PlainReader::new(py, bytes).keeping(stored).plain();
    }
    let layout = Layout::parse(bytes)?;
    if layout.places()?.is_empty() {
        return load(py, layout.pickle, None);
    }
    // What Python may go on reading needs an owner, and its place of alignment.
    let copy = stored.is_none().then(|| AlignedCopy::of(bytes));
    let whole = copy.as_deref().unwrap_or(bytes);
    let buffers = layout
        .places()?
        .into_iter()
        .map(|(offset, len)| {
            let piece = &whole[offset..offset + len];
            let bytes = match stored {
                Some(stored) => StoredBytes::new(stored.clone(), piece),
                None => {
                    let copy = copy.clone().expect("made above, since nothing is stored");
                    StoredBytes::in_copy(copy, piece)
                }
            };
            Bound::new(py, bytes)
        })
        .collect::<PyResult<Vec<_>>>()?;
    load(py, layout.pickle, Some(PyList::new(py, buffers)?.into_any()))
}

fn load<'py>(
    py: Python<'py>,
    pickle: &[u8],
    buffers: Option<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the memory outlives the view, which pickle.loads uses and does not keep.
    let view = unsafe {
        let view = pyo3::ffi::PyMemoryView_FromMemory(
            pickle.as_ptr().cast_mut().cast(),
            pickle.len() as isize,
            pyo3::ffi::PyBUF_READ,
        );
        Bound::from_owned_ptr_or_err(py, view)?
    };
    pickled::load(&view, buffers).map_err(|error| unreadable(py, error))
}

#[cold]
fn unreadable(py: Python<'_>, error: PyErr) -> PyErr {
    if !error.is_instance_of::<PyException>(py) {
        return error;
    }
    let made = errors::system_error(
        py,
        "DeserializationError",
        &format!(
            "a value arrived and cannot be unpickled here: {error}. A module that it needs must \
             be importable in this process; see runtime_env={{'py_modules': [...]}}{}",
            missing::why_missing(py, &error)
        ),
    );
    made.set_cause(py, Some(error));
    made
}
