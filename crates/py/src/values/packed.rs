//! Numbers side by side: the form of a list or tuple that holds nothing but ints, or nothing but
//! floats.
//!
//! ```text
//! PACKED   container (TUPLE or LIST), kind, count, numbers without a tag, little-endian
//! kind     I32, I64: ints; F64: floats
//! ```
//!
//! Half the bytes of tagged items, and no branch on a tag for each. The narrowest kind is tried
//! first; the first item that is no such number ends the try, and the caller goes on with the
//! next kind, at last with tagged items. Exact types only: a bool is no int.
//!
//! Numbers have no identity to keep: pickle writes each of two equal ints in full, too.
//!
//! Budget of an item: 2 ns to write (4 where 32 bits are too few), 8 to read, most of which makes the
//! number; tagged ones take 7 and 16.

use pyo3::exceptions::PyMemoryError;
use pyo3::ffi;
use pyo3::prelude::*;

use super::reader::{LIST, PACKED, PlainReader, TUPLE, put_count};
use crate::errors::malformed;

/// With fewer items there is nothing to gain.
pub(super) const PACKED_ITEMS_MIN: usize = 4;

const I32: u8 = 1;
const I64: u8 = 2;
const F64: u8 = 3;

trait Number<const BYTES: usize>: Sized {
    const KIND: u8;

    /// SAFETY: attached; `object` is alive.
    unsafe fn of(object: *mut ffi::PyObject) -> Option<Self>;

    /// A new reference, or null with an exception set. SAFETY: attached.
    unsafe fn object(self) -> *mut ffi::PyObject;

    fn to_bytes(self) -> [u8; BYTES];
    fn from_bytes(bytes: [u8; BYTES]) -> Self;
}

/// Items of a tuple or list that nobody changes meanwhile.
#[derive(Clone, Copy)]
pub(super) struct Items<'a> {
    container: u8,
    items: &'a [*mut ffi::PyObject],
}

impl<'a> Items<'a> {
    /// SAFETY: attached; `tuple` is a tuple that outlives `'a`.
    pub(super) unsafe fn of_tuple(tuple: *mut ffi::PyObject) -> Items<'a> {
        // SAFETY: promised by the caller; a tuple's items lie in it, `len` of them.
        let items = unsafe {
            let len = ffi::PyTuple_GET_SIZE(tuple) as usize;
            let first = (&raw const (*tuple.cast::<ffi::PyTupleObject>()).ob_item).cast();
            std::slice::from_raw_parts(first, len)
        };
        Items { container: TUPLE, items }
    }

    /// SAFETY: attached; `list` is a list that outlives `'a`, and that no code changes meanwhile.
    pub(super) unsafe fn of_list(list: *mut ffi::PyObject) -> Items<'a> {
        // SAFETY: promised by the caller; an empty list may have no items at all.
        let items = unsafe {
            match ffi::PyList_GET_SIZE(list) as usize {
                0 => &[],
                len => {
                    let first = (*list.cast::<ffi::PyListObject>()).ob_item;
                    std::slice::from_raw_parts(first.cast_const(), len)
                }
            }
        };
        Items { container: LIST, items }
    }

    /// Appends them packed. False, with nothing appended, if they are not all of one kind.
    pub(super) fn write(self, out: &mut Vec<u8>) -> bool {
        if self.items.len() < PACKED_ITEMS_MIN {
            return false;
        }
        // SAFETY: attached; an item lives as long as its container.
        let kind = unsafe { ffi::Py_TYPE(self.items[0]) };
        if kind == &raw mut ffi::PyLong_Type {
            self.write_as::<i32, 4>(out) || self.write_as::<i64, 8>(out)
        } else {
            kind == &raw mut ffi::PyFloat_Type && self.write_as::<f64, 8>(out)
        }
    }

    fn write_as<N: Number<BYTES>, const BYTES: usize>(self, out: &mut Vec<u8>) -> bool {
        let base = out.len();
        out.extend_from_slice(&[PACKED, self.container, N::KIND]);
        put_count(self.items.len(), out);
        let at = out.len();
        out.resize(at + BYTES * self.items.len(), 0);
        let (places, _) = out[at..].as_chunks_mut::<BYTES>();
        for (place, item) in places.iter_mut().zip(self.items) {
            // SAFETY: attached; an item lives as long as its container.
            match unsafe { N::of(*item) } {
                Some(number) => *place = number.to_bytes(),
                None => {
                    out.truncate(base);
                    return false;
                }
            }
        }
        true
    }
}

/// The container behind the tag.
pub(super) fn read<'py>(reader: &mut PlainReader<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    let [container, kind] = reader.array()?;
    let count = reader.count()?;
    match kind {
        I32 => read_as::<i32, 4>(reader, container, count),
        I64 => read_as::<i64, 8>(reader, container, count),
        F64 => read_as::<f64, 8>(reader, container, count),
        kind => Err(malformed(format_args!("packed numbers are of kind {kind}"))),
    }
}

fn read_as<'py, N: Number<BYTES>, const BYTES: usize>(
    reader: &mut PlainReader<'_, 'py>,
    container: u8,
    count: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let py = reader.py();
    let len = count.checked_mul(BYTES).ok_or_else(|| malformed("a container is too large"))?;
    let (numbers, _) = reader.take(len)?.as_chunks::<BYTES>();
    let len = ffi::Py_ssize_t::try_from(count).map_err(malformed)?;
    let places = 0..len;
    // SAFETY: attached. Every place of the new container is filled before anyone else can see it;
    // on an error it is dropped with null places, which its destructor allows.
    unsafe {
        let made = match container {
            TUPLE => ffi::PyTuple_New(len),
            LIST => ffi::PyList_New(len),
            tag => return Err(malformed(format_args!("packed numbers lie in tag {tag}"))),
        };
        let made = Bound::from_owned_ptr_or_opt(py, made)
            .ok_or_else(|| PyMemoryError::new_err("no memory for a container"))?;
        for (at, number) in places.zip(numbers) {
            let item = N::from_bytes(*number).object();
            if item.is_null() {
                return Err(PyErr::fetch(py));
            }
            match container {
                TUPLE => ffi::PyTuple_SET_ITEM(made.as_ptr(), at, item),
                _ => ffi::PyList_SET_ITEM(made.as_ptr(), at, item),
            }
        }
        Ok(made)
    }
}

impl Number<8> for i64 {
    const KIND: u8 = I64;

    unsafe fn of(object: *mut ffi::PyObject) -> Option<i64> {
        // SAFETY: promised by the caller.
        unsafe {
            if ffi::Py_TYPE(object) != &raw mut ffi::PyLong_Type {
                return None;
            }
            let mut overflow = 0;
            let number = ffi::PyLong_AsLongLongAndOverflow(object, &mut overflow);
            (overflow == 0).then_some(number)
        }
    }

    unsafe fn object(self) -> *mut ffi::PyObject {
        // SAFETY: promised by the caller.
        unsafe { ffi::PyLong_FromLongLong(self) }
    }

    fn to_bytes(self) -> [u8; 8] {
        self.to_le_bytes()
    }

    fn from_bytes(bytes: [u8; 8]) -> i64 {
        i64::from_le_bytes(bytes)
    }
}

impl Number<4> for i32 {
    const KIND: u8 = I32;

    unsafe fn of(object: *mut ffi::PyObject) -> Option<i32> {
        // SAFETY: promised by the caller.
        unsafe { i64::of(object) }.and_then(|number| i32::try_from(number).ok())
    }

    unsafe fn object(self) -> *mut ffi::PyObject {
        // SAFETY: promised by the caller.
        unsafe { i64::from(self).object() }
    }

    fn to_bytes(self) -> [u8; 4] {
        self.to_le_bytes()
    }

    fn from_bytes(bytes: [u8; 4]) -> i32 {
        i32::from_le_bytes(bytes)
    }
}

impl Number<8> for f64 {
    const KIND: u8 = F64;

    unsafe fn of(object: *mut ffi::PyObject) -> Option<f64> {
        // SAFETY: promised by the caller; the type was compared.
        unsafe {
            (ffi::Py_TYPE(object) == &raw mut ffi::PyFloat_Type)
                .then(|| ffi::PyFloat_AS_DOUBLE(object))
        }
    }

    unsafe fn object(self) -> *mut ffi::PyObject {
        // SAFETY: promised by the caller.
        unsafe { ffi::PyFloat_FromDouble(self) }
    }

    fn to_bytes(self) -> [u8; 8] {
        self.to_le_bytes()
    }

    fn from_bytes(bytes: [u8; 8]) -> f64 {
        f64::from_le_bytes(bytes)
    }
}
