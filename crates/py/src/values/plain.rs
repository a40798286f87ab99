//! The compact form of plain values.
//!
//! ```text
//! NONE FALSE TRUE          |
//! INT      i64             | integers are little-endian
//! FLOAT    f64             |
//! STR      u64 length, UTF-8
//! BYTES    u64 length, bytes
//! REF      object id, 20 bytes
//! TUPLE LIST   u32 count, items
//! DICT     u32 count, (key, value) each
//! ARRAY    see `array`
//! PACKED   a tuple or list of numbers: see `packed`
//! ```
//!
//! Lengths below 255 are one byte: 255 announces eight more.

use hoplo_base::limits::INLINE_BYTES_MAX;
use hoplo_base::{ObjectId, Set};
use hoplo_wire::plain::DEPTH_MAX;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyString};
use pyo3::{PyTypeInfo, exceptions::PyMemoryError};

use super::array::{self, Array};
use super::contained::Contained;
use super::large::Segment;
use super::numpy::Numpy;
use super::packed::{self, Items};
use super::reader::{
    ARRAY, BYTES, DICT, FALSE, FLOAT, INT, LIST, NONE, PACKED, PlainReader, REF, STR, TRUE, TUPLE,
    put_count,
};
use crate::errors::malformed;
use crate::refs::ObjectRef;

/// Data of this size and more is not copied before the value's size is known.
const SEGMENT_BYTES_MIN: usize = 16 * 1024;

/// Appends `value`, large data left out; `None` if it is not plain, with rubbish in
/// `out` and `contains`. `Segment::at` counts from where `out` ended.
pub(super) fn write(
    value: &Bound<'_, PyAny>,
    out: &mut Vec<u8>,
    contains: &mut Contained,
) -> Option<Vec<Segment>> {
    let (base, contains_base) = (out.len(), contains.len());
    let mut writer = Writer {
        py: value.py(),
        base,
        out,
        contains,
        segments: Vec::new(),
        left_out: 0,
        packed: 0,
        arrays: Set::default(),
        first_array: false,
    };
    if writer.any(value.as_ptr(), 0, false) {
        return Some(writer.segments);
    }
    // Only now: an import may run Python code, which may change containers.
    if !writer.first_array || Numpy::get(value.py()).is_err() {
        return None;
    }
    out.truncate(base);
    contains.truncate(contains_base);
    write(value, out, contains)
}

struct Writer<'a, 'py> {
    py: Python<'py>,
    base: usize,
    out: &'a mut Vec<u8>,
    contains: &'a mut Contained,
    segments: Vec<Segment>,
    /// Bytes of all segments.
    left_out: usize,
    /// Bytes of packed numbers.
    packed: usize,
    /// Addresses of those inside containers.
    arrays: Set<usize>,
    /// An array was met before numpy's interface was there.
    first_array: bool,
}

impl Writer<'_, '_> {
    /// `shared`: something around `object` can be reached in another way as well, so a mutable
    /// container inside would come out as two.
    fn any(&mut self, object: *mut ffi::PyObject, depth: u32, shared: bool) -> bool {
        // SAFETY (all calls below): attached; `object` is a live reference that its container, or
        // the caller for the outermost, keeps for the whole call. No Python code runs
        // in between, since only exact built-in types are touched, so no container changes.
        unsafe {
            let kind = ffi::Py_TYPE(object);
            if kind == &raw mut ffi::PyLong_Type {
                let mut overflow = 0;
                let number = ffi::PyLong_AsLongLongAndOverflow(object, &mut overflow);
                if overflow != 0 {
                    return false;
                }
                self.out.push(INT);
                self.out.extend_from_slice(&number.to_le_bytes());
                true
            } else if kind == &raw mut ffi::PyUnicode_Type {
                self.text(object)
            } else if kind == &raw mut ffi::PyFloat_Type {
                self.out.push(FLOAT);
                self.out.extend_from_slice(&ffi::PyFloat_AS_DOUBLE(object).to_le_bytes());
                true
            } else if object == ffi::Py_None() {
                self.out.push(NONE);
                true
            } else if object == ffi::Py_True() {
                self.out.push(TRUE);
                true
            } else if object == ffi::Py_False() {
                self.out.push(FALSE);
                true
            } else if kind == &raw mut ffi::PyBytes_Type {
                let len = ffi::PyBytes_Size(object) as usize;
                let data = ffi::PyBytes_AsString(object).cast::<u8>();
                self.data(BYTES, object, data, len);
                true
            } else if kind == &raw mut ffi::PyTuple_Type {
                self.tuple(object, depth, shared)
            } else if kind == &raw mut ffi::PyList_Type {
                self.list(object, depth, shared)
            } else if kind == &raw mut ffi::PyDict_Type {
                self.dict(object, depth, shared)
            } else if kind == ObjectRef::type_object_raw(self.py) {
                self.reference(object)
            } else {
                self.array(object, depth)
            }
        }
    }

    /// SAFETY: `object` is a live str.
    unsafe fn text(&mut self, object: *mut ffi::PyObject) -> bool {
        let mut len = 0;
        // SAFETY: as promised by the caller; the UTF-8 form lives as long as the str.
        let data = unsafe { ffi::PyUnicode_AsUTF8AndSize(object, &mut len) };
        if data.is_null() {
            // SAFETY: attached. A lone surrogate has no UTF-8.
            unsafe { ffi::PyErr_Clear() };
            return false;
        }
        self.data(STR, object, data.cast(), len as usize);
        true
    }

    fn data(&mut self, tag: u8, object: *mut ffi::PyObject, data: *const u8, len: usize) {
        self.out.push(tag);
        self.count(len);
        self.append(object, data, len);
    }

    fn append(&mut self, object: *mut ffi::PyObject, data: *const u8, len: usize) {
        if len < SEGMENT_BYTES_MIN {
            // SAFETY: `data` are `len` bytes of `object`, which is alive; nobody writes to it now.
            self.out.extend_from_slice(unsafe { std::slice::from_raw_parts(data, len) });
        } else {
            // SAFETY: attached, `object` is alive.
            let owner = unsafe { Bound::from_borrowed_ptr(self.py, object) }.unbind();
            let at = self.out.len() - self.base;
            self.segments.push(Segment { at, data, len, owner });
            self.left_out += len;
        }
    }

    fn count(&mut self, count: usize) {
        put_count(count, self.out);
    }

    /// SAFETY: `object` is a live object of any other type.
    unsafe fn array(&mut self, object: *mut ffi::PyObject, depth: u32) -> bool {
        // SAFETY: as promised by the caller.
        let kind = unsafe { &*ffi::Py_TYPE(object) };
        let Some(numpy) = Numpy::loaded(self.py) else {
            self.first_array = Numpy::names_array(kind);
            return false;
        };
        if !numpy.is_array_type(kind) {
            return false;
        }
        // SAFETY: it is an array. (An odd dtype is asked for its name, by code of numpy's in C.)
        let Some(array) = (unsafe { Array::of(self.py, numpy, object) }) else { return false };
        if depth > 0 && !self.arrays.insert(object as usize) {
            return false; // it would come out as two
        }
        array.begin(self.left_out + self.out.len() - self.base, self.out);
        self.append(object, array.data(), array.nbytes);
        true
    }

    /// SAFETY: `object` is a live tuple.
    unsafe fn tuple(&mut self, object: *mut ffi::PyObject, depth: u32, shared: bool) -> bool {
        // SAFETY: as promised by the caller.
        let (len, shared) = unsafe {
            let shared = shared || depth > 0 && ffi::Py_REFCNT(object) > 1;
            (ffi::PyTuple_GET_SIZE(object), shared)
        };
        self.has_room(depth)
            // SAFETY: attached; the tuple is alive.
            && (self.packed(unsafe { Items::of_tuple(object) })
                || self.begin(TUPLE, len as usize)
                    && (0..len).all(|at| {
                        // SAFETY: in bounds; a tuple keeps its items.
                        self.any(unsafe { ffi::PyTuple_GET_ITEM(object, at) }, depth + 1, shared)
                    }))
    }

    /// SAFETY: `object` is a live list.
    unsafe fn list(&mut self, object: *mut ffi::PyObject, depth: u32, shared: bool) -> bool {
        // SAFETY: as promised by the caller.
        let (len, shared) = unsafe {
            (ffi::PyList_GET_SIZE(object), shared || depth > 0 && ffi::Py_REFCNT(object) > 1)
        };
        !shared
            && self.has_room(depth)
            // SAFETY: attached; the list is alive, and nothing changes it meanwhile.
            && (self.packed(unsafe { Items::of_list(object) })
                || self.begin(LIST, len as usize)
                    && (0..len).all(|at| {
                        // SAFETY: in bounds, as above.
                        self.any(unsafe { ffi::PyList_GET_ITEM(object, at) }, depth + 1, false)
                    }))
    }

    /// SAFETY: `object` is a live dict.
    unsafe fn dict(&mut self, object: *mut ffi::PyObject, depth: u32, shared: bool) -> bool {
        // SAFETY: as promised by the caller.
        let (len, shared) = unsafe {
            (ffi::PyDict_Size(object), shared || depth > 0 && ffi::Py_REFCNT(object) > 1)
        };
        if shared || !self.has_room(depth) || !self.begin(DICT, len as usize) {
            return false;
        }
        let (mut at, mut key, mut value) = (0, std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: nothing changes the dict meanwhile; key and value are borrowed from it.
        while unsafe { ffi::PyDict_Next(object, &mut at, &mut key, &mut value) } != 0 {
            if !self.any(key, depth + 1, false) || !self.any(value, depth + 1, false) {
                return false;
            }
        }
        true
    }

    fn packed(&mut self, items: Items<'_>) -> bool {
        let before = self.out.len();
        let written = items.write(self.out);
        self.packed += self.out.len() - before;
        written
    }

    /// Whether one more container may be written here. In many of them, pickle's memo writes what
    /// repeats only once; packed numbers it would not write shorter.
    fn has_room(&self, depth: u32) -> bool {
        depth < DEPTH_MAX && self.out.len() - self.base - self.packed <= INLINE_BYTES_MAX
    }

    fn begin(&mut self, tag: u8, count: usize) -> bool {
        self.out.push(tag);
        self.count(count);
        true
    }

    /// SAFETY: `object` is a live ObjectRef.
    unsafe fn reference(&mut self, object: *mut ffi::PyObject) -> bool {
        // SAFETY: as promised by the caller; the class is frozen, so a shared borrow suffices.
        let object = unsafe { Bound::from_borrowed_ptr(self.py, object) };
        // SAFETY: its type was compared.
        let reference = unsafe { object.cast_unchecked::<ObjectRef>() }.get();
        if reference.session().check().is_err() {
            return false; // pickling it says why
        }
        let id = reference.id();
        self.out.push(REF);
        self.out.extend_from_slice(&id.to_bytes());
        self.contains.add(id, object.unbind());
        true
    }
}

impl<'py> PlainReader<'_, 'py> {
    /// The next value, which is plain.
    pub(super) fn plain(&mut self) -> PyResult<Bound<'py, PyAny>> {
        self.nested(0)
    }

    fn nested(&mut self, depth: u32) -> PyResult<Bound<'py, PyAny>> {
        let py = self.py();
        Ok(match self.byte()? {
            NONE => py.None().into_bound(py),
            FALSE => PyBool::new(py, false).to_owned().into_any(),
            TRUE => PyBool::new(py, true).to_owned().into_any(),
            INT => PyInt::new(py, i64::from_le_bytes(self.array()?)).into_any(),
            FLOAT => PyFloat::new(py, f64::from_le_bytes(self.array()?)).into_any(),
            STR => {
                let len = self.count()?;
                PyString::from_bytes(py, self.take(len)?)?.into_any()
            }
            BYTES => {
                let len = self.count()?;
                super::large::new_bytes(py, self.take(len)?)?.into_any()
            }
            REF => {
                let id = ObjectId::from_bytes(self.array()?);
                ObjectRef::borrowed(py, id)?.into_any()
            }
            TUPLE => self.items(depth, TUPLE)?,
            LIST => self.items(depth, LIST)?,
            DICT => {
                let count = self.items_count(depth)?;
                let dict = PyDict::new(py);
                for _ in 0..count {
                    let key = self.nested(depth + 1)?;
                    let value = self.nested(depth + 1)?;
                    dict.set_item(key, value)?;
                }
                dict.into_any()
            }
            ARRAY => array::read(self)?,
            PACKED => packed::read(self)?,
            tag => return Err(malformed(format_args!("a value has tag {tag}"))),
        })
    }

    fn items(&mut self, depth: u32, tag: u8) -> PyResult<Bound<'py, PyAny>> {
        let count = self.items_count(depth)?;
        let py = self.py();
        let len = ffi::Py_ssize_t::try_from(count).map_err(malformed)?;
        // SAFETY: attached. Every place of the new container is filled below before anyone else can
        // see it; on an error it is dropped with null places, which its destructor allows.
        unsafe {
            let container = match tag {
                TUPLE => ffi::PyTuple_New(len),
                _ => ffi::PyList_New(len),
            };
            let container = Bound::from_owned_ptr_or_opt(py, container)
                .ok_or_else(|| PyMemoryError::new_err("no memory for a container"))?;
            for at in 0..len {
                let item = self.nested(depth + 1)?.into_ptr();
                match tag {
                    TUPLE => ffi::PyTuple_SET_ITEM(container.as_ptr(), at, item),
                    _ => ffi::PyList_SET_ITEM(container.as_ptr(), at, item),
                }
            }
            Ok(container)
        }
    }

    fn items_count(&mut self, depth: u32) -> PyResult<usize> {
        let count = self.count()?;
        if depth >= DEPTH_MAX || count > self.rest().len() {
            return Err(malformed("a container is larger or deeper than its bytes"));
        }
        Ok(count)
    }
}

const _: () = assert!(PACKED < super::PICKLE, "a first byte tells plain from pickled");
