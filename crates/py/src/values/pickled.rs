//! What is not plain: pickle protocol 5, its large buffers beside the pickle.

use hoplo_base::limits::OBJECT_ALIGN;
use pyo3::exceptions::PyRecursionError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use super::large::{BufferView, Owner};
use super::{Contained, Large, PICKLE};
use crate::errors::malformed;
use crate::python::{self, Import};

pub(super) const FIXED_BYTES: usize = 16;
const ENTRY_BYTES: usize = 16;

/// A value after `dumps`.
pub(super) struct Pickled<'py> {
    pub(super) pickle: Bound<'py, PyBytes>,
    pub(super) buffers: Vec<BufferView>,
}

pub(super) fn dump<'py>(
    value: &Bound<'py, PyAny>,
    contains: &mut Contained,
) -> PyResult<Pickled<'py>> {
    static BY_NAME: Import = Import::new("hoplo._serialization", "dumps_by_name");
    static BY_VALUE: Import = Import::new("hoplo._serialization", "dumps_by_value");
    let py = value.py();
    let before = contains.len();
    let dumps = BY_NAME.get(py)?;
    let mut dumped = contains.collect(|| python::call(dumps, [value]))?;
    if dumped.is_none() {
        // The refs that the first try met, and those that it had made, are not in what is sent.
        contains.truncate(before);
        let dumps = BY_VALUE.get(py)?;
        dumped = contains.collect(|| python::call(dumps, [value]))?;
    }
    let dumped = dumped.cast::<PyTuple>()?;
    let pickle = dumped.get_item(0)?.cast_into::<PyBytes>()?;
    let buffers = dumped.get_item(1)?.cast_into::<PyList>()?;
    let buffers =
        buffers.iter().map(|buffer| BufferView::of(&buffer)).collect::<PyResult<Vec<_>>>()?;
    Ok(Pickled { pickle, buffers })
}

pub(super) fn measure(value: &Bound<'_, PyAny>, contains: &mut Contained) -> PyResult<Large> {
    let Pickled { pickle, buffers } = dump(value, contains)?;
    let pickle_at = FIXED_BYTES + ENTRY_BYTES * buffers.len();
    let pickle_len = pickle.as_bytes().len();
    let mut len = pickle_at + pickle_len;
    let mut places = Vec::with_capacity(buffers.len());
    for buffer in &buffers {
        let offset = len.next_multiple_of(OBJECT_ALIGN as usize);
        places.push((offset, buffer.len()));
        len = offset + buffer.len();
    }
    let head = header(pickle_len, &places);
    let mut parts = vec![(pickle_at, pickle.as_bytes().as_ptr(), pickle_len)];
    parts.extend(
        places.iter().zip(&buffers).map(|(place, buffer)| (place.0, buffer.data(), place.1)),
    );
    let mut owners = vec![Owner::Object { _object: pickle.into_any().unbind() }];
    owners.extend(buffers.into_iter().map(|view| Owner::View { _view: view }));
    Ok(Large::of_parts(head, parts, owners, len))
}

/// Everything before the pickle; `places` are (offset, length) of the buffers.
pub(super) fn header(pickle_len: usize, places: &[(usize, usize)]) -> Vec<u8> {
    let mut head = Vec::with_capacity(FIXED_BYTES + ENTRY_BYTES * places.len());
    head.extend_from_slice(&[PICKLE, 0, 0, 0]);
    head.extend_from_slice(&(places.len() as u32).to_le_bytes());
    head.extend_from_slice(&(pickle_len as u64).to_le_bytes());
    for (offset, len) in places {
        head.extend_from_slice(&(*offset as u64).to_le_bytes());
        head.extend_from_slice(&(*len as u64).to_le_bytes());
    }
    head
}

/// A pickled value's parts, read in place.
pub(super) struct Layout<'a> {
    bytes: &'a [u8],
    entries: &'a [u8],
    pub(super) pickle: &'a [u8],
}

impl<'a> Layout<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> PyResult<Layout<'a>> {
        let parsed = || {
            let (fixed, rest) = bytes.split_at_checked(FIXED_BYTES)?;
            let buffers = u32::from_le_bytes(fixed[4..8].try_into().ok()?) as usize;
            let pickle_len = u64::from_le_bytes(fixed[8..16].try_into().ok()?);
            let (entries, rest) = rest.split_at_checked(buffers.checked_mul(ENTRY_BYTES)?)?;
            let pickle = rest.get(..usize::try_from(pickle_len).ok()?)?;
            Some(Layout { bytes, entries, pickle })
        };
        parsed().ok_or_else(|| malformed("a pickled value is cut off"))
    }

    /// Bytes of the whole value, which may be followed by others.
    pub(super) fn len(&self) -> PyResult<usize> {
        let pickle_end = FIXED_BYTES + self.entries.len() + self.pickle.len();
        Ok(self.places()?.last().map_or(pickle_end, |(offset, len)| offset + len))
    }

    /// Offset and length of each buffer.
    pub(super) fn places(&self) -> PyResult<Vec<(usize, usize)>> {
        let place = |entry: &[u8]| {
            let offset = u64::from_le_bytes(entry[..8].try_into().ok()?);
            let len = u64::from_le_bytes(entry[8..].try_into().ok()?);
            let end = offset.checked_add(len)?;
            (end <= self.bytes.len() as u64).then_some((offset as usize, len as usize))
        };
        self.entries
            .chunks_exact(ENTRY_BYTES)
            .map(|entry| place(entry).ok_or_else(|| malformed("a buffer lies outside its value")))
            .collect()
    }
}

/// Raises what pickling `value` raises. Nothing is sent, so no ref inside is kept.
#[pyfunction]
pub(crate) fn _try_pickling(value: &Bound<'_, PyAny>) -> PyResult<()> {
    dump(value, &mut Contained::default()).map(drop)
}

/// The value of a pickle whose buffers are these.
pub(crate) fn load<'py>(
    pickle: &Bound<'py, PyAny>,
    buffers: Option<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    static CAREFULLY: Import = Import::new("hoplo._serialization", "loads_carefully");
    let py = pickle.py();
    match load_fast(pickle, buffers.clone()) {
        Err(error) if error.is_instance_of::<PyRecursionError>(py) => {
            CAREFULLY.get(py)?.call1((pickle, buffers))
        }
        loaded => loaded,
    }
}

/// `pickle.loads(pickle, buffers=buffers)`.
fn load_fast<'py>(
    pickle: &Bound<'py, PyAny>,
    buffers: Option<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    static LOADS: Import = Import::new("pickle", "loads");
    let py = pickle.py();
    let loads = LOADS.get(py)?;
    let Some(buffers) = buffers else { return python::call(loads, [pickle]) };
    let names = PyTuple::new(py, [intern!(py, "buffers")])?;
    let args = [pickle.as_ptr(), buffers.as_ptr()];
    // SAFETY: attached; one positional and one keyword argument, all alive for the call.
    unsafe {
        let result =
            pyo3::ffi::PyObject_Vectorcall(loads.as_ptr(), args.as_ptr(), 1, names.as_ptr());
        Bound::from_owned_ptr_or_err(py, result)
    }
}
