//! Values to bytes and back.
//!
//! A value's bytes are the same inline and in the store. The first byte says which form:
//!
//! ```text
//! plain    tag, payload               None, bool, int in 64 bits, float, str, bytes, ObjectRef,
//!                                     arrays of numpy (see `array`),
//!                                     and tuples, lists, dicts of them   (see `plain`,
//!                                     of numbers alone: `packed`)
//! pickled  PICKLE, 3 zeros, buffers u32, pickle length u64,
//!          buffers x (offset u64, length u64), pickle, gaps, buffers
//!          each buffer at a multiple of 64 from the value's start       (see `pickled`)
//! ```
//!
//! Exact types only: a subclass, a named tuple or a numpy scalar is pickled. A value comes out with the
//! identities it went in with: a container or array that could be reached in two ways makes the whole
//! value a pickle.
//!
//! A large value is measured first, then written straight into the store: one copy of its
//! data. Data of 1 MiB and more is copied detached from the interpreter. Small ones are encoded into
//! the caller's own buffer.
//!
//! Budget of a small int alone, encode or decode: 15 ns. Of an array, all of `put` and `get` included: 0.4 us to
//! put 1 KiB, 0.2 us to get it, 0.4 us to get 100 MiB that lie in the store.

mod array;
mod buffer;
pub(crate) mod contained;
mod large;
mod numpy;
mod packed;
mod pickled;
mod plain;
mod read;
mod reader;
pub(crate) mod scratch;
mod store_buffer;

use buffer::AlignedCopy;
pub(crate) use buffer::StoredBytes;
pub(crate) use contained::{Contained, Kept};
pub(crate) use large::Large;
pub(crate) use pickled::{_try_pickling, load};
pub(crate) use read::{read_content, read_value};
pub(crate) use reader::{PlainReader, put_count};
pub(crate) use store_buffer::{LookedAt, StoreBuffer, allocate, put_in_place};

use hoplo_base::limits::{INLINE_BYTES_MAX, VALUE_REFS_MAX};
use hoplo_client::{Allocation, Content};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// First byte of a pickled value; plain tags are below it.
const PICKLE: u8 = 32;

/// What encoding a value gave.
pub(crate) enum Encoded {
    /// Appended to `out`.
    Inline,
    /// Nothing was appended: the value belongs into the store.
    Large(Large),
}

/// Appends the bytes of `value` to `out` if they are at most `inline_max`, itself at most
/// `INLINE_BYTES_MAX`; the refs that lie inside are added to `contains`, which the caller keeps until the
/// value is registered. Raises what pickling raised; see `unpicklable`.
pub(crate) fn encode(
    value: &Bound<'_, PyAny>,
    inline_max: usize,
    out: &mut Vec<u8>,
    contains: &mut Contained,
) -> PyResult<Encoded> {
    debug_assert!(inline_max <= INLINE_BYTES_MAX);
    let base = out.len();
    let contains_base = contains.len();
    let large = match plain::write(value, out, contains) {
        Some(segments) if segments.is_empty() => {
            if out.len() - base <= inline_max {
                return Ok(Encoded::Inline);
            }
            Large::of_plain(out.split_off(base), segments)
        }
        Some(segments) => Large::of_plain(out.split_off(base), segments),
        None => {
            out.truncate(base);
            contains.truncate(contains_base);
            pickled::measure(value, contains)?
        }
    };
    check_refs(contains.len() - contains_base)?;
    if large.len() <= inline_max {
        large.append_to(out);
        return Ok(Encoded::Inline);
    }
    Ok(Encoded::Large(large))
}

/// Whether the daemon can be told of so many refs that lie inside one value.
pub(crate) fn check_refs(count: usize) -> PyResult<()> {
    if count <= VALUE_REFS_MAX {
        return Ok(());
    }
    Err(PyValueError::new_err(format!(
        "{count} refs are inside, and a value may have {VALUE_REFS_MAX}: put lists of some of them with \
         hoplo.put, and pass the refs of the lists"
    )))
}

/// The allocation, ready to be sealed, of a result that lies in the store already and that only the
/// caller can reach. `references`: how many it has of `value`. It drops them soon.
pub(crate) fn take_in_place(value: &Bound<'_, PyAny>, references: isize) -> Option<Allocation> {
    scratch::take(value, references).or_else(|| store_buffer::take_result(value, references))
}

/// The error to raise when `value`, called `name`, could not be encoded.
#[cold]
pub(crate) fn unpicklable(value: &Bound<'_, PyAny>, name: &str, error: PyErr) -> PyErr {
    use crate::python::Import;
    static SERIALIZATION_ERROR: Import = Import::new("hoplo._serialization", "serialization_error");
    let py = value.py();
    if !error.is_instance_of::<pyo3::exceptions::PyException>(py) {
        return error; // an interrupt, not a verdict on the value
    }
    SERIALIZATION_ERROR
        .get(py)
        .and_then(|make| make.call1((value, name, error.value(py))))
        .map_or_else(|error| error, PyErr::from_value)
}

/// The bytes of a value, for tests of the codec.
#[pyfunction]
pub(crate) fn _encode<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    let (mut bytes, mut contains) = (Vec::new(), Contained::default());
    if let Encoded::Large(large) = encode(value, INLINE_BYTES_MAX, &mut bytes, &mut contains)? {
        large.append_to(&mut bytes);
    }
    Ok(PyBytes::new(value.py(), &bytes))
}

/// The value of such bytes.
#[pyfunction]
pub(crate) fn _decode<'py>(bytes: &Bound<'py, PyBytes>) -> PyResult<Bound<'py, PyAny>> {
    read_content(bytes.py(), &Content::Inline(bytes.as_bytes().into()))
}
