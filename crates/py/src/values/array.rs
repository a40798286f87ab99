//! Arrays of numpy, without pickle.
//!
//! ```text
//! ARRAY, kind u8, flags u8, dimensions u8, length count each,
//! dtype text (count, UTF-8; only if kind is NAMED), gap count, gap bytes, data
//! ```
//!
//! Only an exact `numpy.ndarray`, contiguous in C or Fortran order, aligned, of truth values,
//! numbers or times; everything else is pickled. `kind` says which of `KINDS` it is, or the bfloat16 of ml_dtypes, in native
//! byte order; any other is NAMED by what its dtype calls itself, like `>f8` or `<M8[ns]`.
//!
//! What comes out is what pickle would give:
//! - Data from `COPIED_BYTES_MAX` on begins at a multiple of 64 from the value's start (the gap sees to
//!   that). In the store the array reads it where it lies, and keeps it there; elsewhere it reads an aligned copy. It cannot be written.
//! - Smaller arrays are copies, writable if what went in was.
//! - An array that is reached in two ways makes the whole value a pickle, which knows how to keep
//!   it one.

use std::marker::PhantomData;

use hoplo_base::limits::OBJECT_ALIGN;
use hoplo_wire::plain::WRITABLE;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::numpy::{
    ALIGNED, ArrayObject, C_CONTIGUOUS, DIMENSIONS_MAX, Dtype, F_CONTIGUOUS, Numpy, Owner,
    WRITEABLE,
};
use super::reader::{ARRAY, PlainReader, put_count};
use super::{AlignedCopy, StoredBytes};
use crate::errors::malformed;
use crate::python::Import;

/// Data below this is copied when the array is read: an owner would cost more.
const COPIED_BYTES_MAX: usize = 4096;

/// The kind whose dtype is written out.
const NAMED: u8 = 0;
/// (`hoplo_wire::layout` knows them too.) numpy's numbers of dtypes, by kind: bool, int8, uint8, ..., int64, uint64, float16 to float64, complex64,
/// complex128. (numpy has a second number for int64 and uint64, which reads back as this one.)
const KINDS: [(u8, usize); 16] = [
    (1, 0),
    (2, 1),
    (3, 2),
    (4, 3),
    (5, 4),
    (6, 5),
    (7, 6),
    (8, 7),
    (9, 8),
    (8, 9),
    (9, 10),
    (10, 23),
    (11, 11),
    (12, 12),
    (13, 14),
    (14, 15),
];

/// (`hoplo_wire::layout` knows it too.) Who reads it needs ml_dtypes, as for a pickle.
const BFLOAT16: u8 = 15;
static BFLOAT16_SCALAR: Import = Import::new("ml_dtypes", "bfloat16");

const FORTRAN: u8 = 1;

/// An array that has this form.
pub(super) struct Array<'a> {
    array: *mut ArrayObject,
    kind: u8,
    /// Of a NAMED kind.
    name: Option<String>,
    pub(super) nbytes: usize,
    lives: PhantomData<&'a ArrayObject>,
}

impl<'a> Array<'a> {
    /// If `value` has this form.
    pub(super) fn of_value(value: &'a Bound<'_, PyAny>) -> Option<Array<'a>> {
        let py = value.py();
        // SAFETY: attached; `value` is alive, and its type is compared before it is taken for an array.
        unsafe {
            let kind = &*ffi::Py_TYPE(value.as_ptr());
            let numpy = if Numpy::names_array(kind) { Numpy::get(py).ok()? } else { return None };
            if numpy.is_array_type(kind) { Array::of(py, numpy, value.as_ptr()) } else { None }
        }
    }

    /// # Safety
    /// `object` is an array that lives for `'a`, and meanwhile no Python code runs.
    pub(super) unsafe fn of(
        py: Python<'_>,
        numpy: &Numpy,
        object: *mut ffi::PyObject,
    ) -> Option<Array<'a>> {
        let pointer = object.cast::<ArrayObject>();
        // SAFETY: promised by the caller.
        let array = unsafe { &*pointer };
        if !array.has(ALIGNED) || !(array.has(C_CONTIGUOUS) || array.has(F_CONTIGUOUS)) {
            return None;
        }
        let items: usize = array.shape().iter().map(|len| *len as usize).product();
        let whole = |kind, name, itemsize: usize| Array {
            array: pointer,
            kind,
            name,
            nbytes: items * itemsize,
            lives: PhantomData,
        };
        // SAFETY: every array has a dtype.
        let Some(number) = (unsafe { (*array.dtype).number() }) else {
            // SAFETY: as above.
            let is_ours = unsafe { (*array.dtype).is_bfloat16() } && !says_more(py, array.dtype);
            return is_ours.then(|| whole(BFLOAT16, None, 2));
        };
        let kind = KINDS.iter().find(|(_, known)| *known == number).map(|(kind, _)| *kind);
        let (native, itemsize) = numpy.dtype(number);
        let (kind, name, itemsize) = match kind {
            Some(kind) if array.dtype == native => (kind, None, itemsize),
            _ => {
                let (name, itemsize) = named(py, array.dtype)?;
                (NAMED, Some(name), itemsize)
            }
        };
        Some(whole(kind, name, itemsize))
    }

    /// What it is a view of, or null, if nobody but who has these references can come by it.
    pub(super) fn base_if_sole(&self, references: isize) -> Option<*mut ffi::PyObject> {
        let array = self.object();
        array.is_only_reached_by(references).then_some(array.base)
    }

    /// The array whose memory it lies in, itself or what it is the only view of, if nobody but who has
    /// these references can come by either.
    pub(super) fn sole_owner(&self, references: isize) -> Option<Owner> {
        let base = self.base_if_sole(references)?;
        // SAFETY: a base is alive with its view, and its type is compared before it is taken for an array.
        unsafe {
            if base.is_null() {
                return Owner::of(self.array);
            }
            if ffi::Py_TYPE(base) != ffi::Py_TYPE(self.array.cast()) {
                return None;
            }
            let base = base.cast::<ArrayObject>();
            let sole = (*base).is_only_reached_by(1) && (*base).base.is_null();
            if sole { Owner::of(base) } else { None }
        }
    }

    fn object(&self) -> &ArrayObject {
        // SAFETY: promised to `of`.
        unsafe { &*self.array }
    }

    pub(super) fn data(&self) -> *const u8 {
        self.object().data
    }

    /// Appends all that comes before the data. `position`: where in its value it comes to lie.
    pub(super) fn begin(&self, position: usize, out: &mut Vec<u8>) {
        let start = out.len();
        self.describe(out);
        let mut gap = 0;
        if self.nbytes >= COPIED_BYTES_MAX {
            let at = position + out.len() - start + 1; // after the count of the gap
            gap = at.next_multiple_of(OBJECT_ALIGN as usize) - at;
        }
        put_count(gap, out);
        out.resize(out.len() + gap, 0);
    }

    /// The same for data that lies `data_at` bytes after the start of its value already; `None` if there is
    /// no such gap. Its bytes are whatever lies there.
    pub(super) fn front(&self, data_at: usize) -> Option<Vec<u8>> {
        let mut front = Vec::with_capacity(64);
        self.describe(&mut front);
        let gap = match data_at.checked_sub(front.len())? {
            room @ 1..=255 => room - 1,
            room @ 264.. => room - 9, // a long count
            _ => return None,
        };
        put_count(gap, &mut front);
        Some(front)
    }

    fn describe(&self, out: &mut Vec<u8>) {
        let array = self.object();
        let shape = array.shape();
        out.reserve(24 + shape.len());
        let fortran = if array.has(C_CONTIGUOUS) { 0 } else { FORTRAN };
        let writable = if array.has(WRITEABLE) { WRITABLE } else { 0 };
        out.extend_from_slice(&[ARRAY, self.kind, fortran | writable, shape.len() as u8]);
        for len in shape {
            put_count(*len as usize, out);
        }
        if let Some(name) = &self.name {
            put_count(name.len(), out);
            out.extend_from_slice(name.as_bytes());
        }
    }
}

/// Somebody gave that dtype of a live array more to say than what its data are, or it does not answer.
fn says_more(py: Python<'_>, dtype: *mut Dtype) -> bool {
    // SAFETY: attached; a dtype of a live array.
    let dtype = unsafe { Bound::from_borrowed_ptr(py, dtype.cast::<ffi::PyObject>()) };
    dtype.getattr(intern!(py, "metadata")).map_or(true, |metadata| !metadata.is_none())
}

/// What the dtype of a live array calls itself and its item size; `None` if it says more than that.
fn named(py: Python<'_>, dtype: *mut Dtype) -> Option<(String, usize)> {
    if says_more(py, dtype) {
        return None;
    }
    // SAFETY: attached; a dtype of a live array.
    let dtype = unsafe { Bound::from_borrowed_ptr(py, dtype.cast::<ffi::PyObject>()) };
    let name = dtype.getattr(intern!(py, "str")).ok()?.extract().ok()?;
    let itemsize = dtype.getattr(intern!(py, "itemsize")).ok()?.extract().ok()?;
    Some((name, itemsize))
}

/// The rest of an array whose tag was read.
pub(super) fn read<'py>(reader: &mut PlainReader<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    let py = reader.py();
    let numpy = Numpy::get(py)?;
    let [kind, flags, dimensions] = reader.array()?;
    let mut shape = [0; DIMENSIONS_MAX];
    let shape = shape
        .get_mut(..usize::from(dimensions))
        .ok_or_else(|| malformed("an array has too many dimensions"))?;
    for len in &mut *shape {
        *len = isize::try_from(reader.count()?).map_err(malformed)?;
    }
    let named;
    let (dtype, itemsize) = if kind == NAMED {
        let len = reader.count()?;
        let text = PyString::from_bytes(py, reader.take(len)?)?;
        named = numpy
            .dtype_named(text.as_any())?
            .ok_or_else(|| malformed(format_args!("an array has dtype {text}")))?;
        (named.as_ptr().cast::<Dtype>(), named.getattr(intern!(py, "itemsize"))?.extract()?)
    } else if kind == BFLOAT16 {
        named = numpy.dtype_of(BFLOAT16_SCALAR.get(py)?)?;
        (named.as_ptr().cast::<Dtype>(), 2)
    } else {
        let known = KINDS.iter().find(|(known, _)| *known == kind);
        let (_, number) =
            known.ok_or_else(|| malformed(format_args!("an array has kind {kind}")))?;
        numpy.dtype(*number)
    };
    let nbytes = shape
        .iter()
        .try_fold(itemsize, |bytes, len| bytes.checked_mul(*len as usize))
        .ok_or_else(|| malformed("an array is larger than memory"))?;
    let gap = reader.count()?;
    reader.take(gap)?;
    let data = reader.take(nbytes)?;
    let fortran = flags & FORTRAN != 0;
    if nbytes >= COPIED_BYTES_MAX {
        let bytes = match reader.stored() {
            Some(stored) => StoredBytes::new(stored.clone(), data),
            None => {
                let copy = AlignedCopy::of(data);
                StoredBytes::in_copy(copy.clone(), &copy)
            }
        };
        let data = bytes.data();
        let owner = Bound::new(py, bytes)?.into_any();
        // SAFETY: `data` are the bytes of an array of this shape, and `owner` keeps them.
        return unsafe { numpy.reading(dtype, shape, fortran, data, owner) };
    }
    // SAFETY: the fresh array has `nbytes` bytes, and nobody else knows it.
    unsafe {
        let array = numpy.fresh(py, dtype, shape, fortran)?;
        let made = array.as_ptr().cast::<ArrayObject>();
        (*made).data.copy_from_nonoverlapping(data.as_ptr(), nbytes);
        if flags & WRITABLE == 0 {
            (*made).flags &= !WRITEABLE;
        }
        Ok(array)
    }
}
