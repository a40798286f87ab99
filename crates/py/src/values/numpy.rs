//! numpy's C interface, the few entries that the codec uses.
//!
//! The table is taken from numpy itself when the first array is met: hoplo neither needs numpy nor
//! imports it before. Used is what numpy 1 and 2 have in common: the head of the array object, the
//! kind, byte order and number of a dtype, and functions whose place in the table never changed.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::NonNull;

use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyCapsule;

pub(super) const C_CONTIGUOUS: c_int = 0x1;
pub(super) const F_CONTIGUOUS: c_int = 0x2;
pub(super) const ALIGNED: c_int = 0x100;
pub(super) const OWNS_DATA: c_int = 0x4;
pub(super) const WRITEABLE: c_int = 0x400;

/// Dimensions of an array at most (32 in numpy 1).
pub(super) const DIMENSIONS_MAX: usize = 64;

/// The feature version of numpy 1.22.
const HANDLERS_SINCE: c_uint = 0xf;
const HANDLER_NAME: &CStr = c"mem_handler";

/// Dtypes with a number from here on are strings, made of others, or somebody's own.
const NUMBERS: usize = 24;

/// What every array begins with.
#[repr(C)]
pub(super) struct ArrayObject {
    _head: ffi::PyObject,
    pub(super) data: *mut u8,
    dimensions_count: c_int,
    dimensions: *const isize,
    _strides: *const isize,
    pub(super) base: *mut ffi::PyObject,
    pub(super) dtype: *mut Dtype,
    pub(super) flags: c_int,
    weak_references: *mut ffi::PyObject,
    _exports: *mut c_void,
    /// Since numpy 1.22.
    handler: *mut ffi::PyObject,
}

/// An array that frees its data.
pub(super) struct Owner(*mut ArrayObject);

/// Where numpy takes the memory of arrays from (NEP 49).
#[repr(C)]
pub(super) struct Handler {
    name: [c_char; 127],
    version: u8,
    allocator: Allocator,
}

#[repr(C)]
pub(super) struct Allocator {
    pub(super) context: *mut c_void,
    pub(super) malloc: unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void,
    pub(super) calloc: unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void,
    pub(super) realloc: unsafe extern "C" fn(*mut c_void, *mut c_void, usize) -> *mut c_void,
    pub(super) free: unsafe extern "C" fn(*mut c_void, *mut c_void, usize),
}

// SAFETY: functions, and a context that only they use.
unsafe impl Sync for Handler {}

/// What every dtype begins with.
#[repr(C)]
pub(super) struct Dtype {
    _head: ffi::PyObject,
    scalar_type: *mut ffi::PyTypeObject,
    kind: u8,
    _character: u8,
    byte_order: u8,
    _flags: u8,
    number: c_int,
}

type NewFromDescr = unsafe extern "C" fn(
    *mut ffi::PyTypeObject,
    *mut Dtype,
    c_int,
    *const isize,
    *const isize,
    *mut c_void,
    c_int,
    *mut ffi::PyObject,
) -> *mut ffi::PyObject;
type Version = unsafe extern "C" fn() -> c_uint;
type DescrFromType = unsafe extern "C" fn(c_int) -> *mut Dtype;
type DescrConverter = unsafe extern "C" fn(*mut ffi::PyObject, *mut *mut Dtype) -> c_int;
type SetHandler = unsafe extern "C" fn(*mut ffi::PyObject) -> *mut ffi::PyObject;
type SetBaseObject = unsafe extern "C" fn(*mut ArrayObject, *mut ffi::PyObject) -> c_int;

pub(super) struct Numpy {
    array_type: *mut ffi::PyTypeObject,
    new_from_descr: NewFromDescr,
    descr_converter: DescrConverter,
    set_base_object: SetBaseObject,
    /// The only native one of each number, kept for ever, and its item size.
    dtypes: [(*mut Dtype, usize); NUMBERS],
    /// Where handlers can be set: since numpy 1.22.
    handlers: Option<(SetHandler, &'static Allocator)>,
}

// SAFETY: all pointers are to what numpy never frees; it is used attached only.
unsafe impl Send for Numpy {}
// SAFETY: as above.
unsafe impl Sync for Numpy {}

static NUMPY: PyOnceLock<Numpy> = PyOnceLock::new();

impl Numpy {
    /// Imports numpy if nobody has.
    pub(super) fn get(py: Python<'_>) -> PyResult<&'static Numpy> {
        match NUMPY.get(py) {
            Some(numpy) => Ok(numpy),
            None => NUMPY.get_or_try_init(py, || Numpy::load(py)),
        }
    }

    /// Never imports anything.
    pub(super) fn loaded(py: Python<'_>) -> Option<&'static Numpy> {
        NUMPY.get(py)
    }

    /// Whether a type has the name of numpy's arrays: then numpy is worth loading.
    pub(super) fn names_array(kind: &ffi::PyTypeObject) -> bool {
        // SAFETY: a type's name is a C string.
        unsafe { CStr::from_ptr(kind.tp_name) == c"numpy.ndarray" }
    }

    /// Whether it is the type of numpy's arrays itself, no subclass.
    pub(super) fn is_array_type(&self, kind: &ffi::PyTypeObject) -> bool {
        std::ptr::eq(self.array_type, kind)
    }

    fn load(py: Python<'_>) -> PyResult<Numpy> {
        let module = py
            .import("numpy._core._multiarray_umath")
            .or_else(|_| py.import("numpy.core._multiarray_umath"))?;
        let capsule = module.getattr(intern!(py, "_ARRAY_API"))?.cast_into::<PyCapsule>()?;
        let table = capsule.pointer_checked(None)?.as_ptr().cast::<*mut c_void>();
        // SAFETY: the capsule holds numpy's table; these places and signatures are its promised ABI.
        unsafe {
            let at = |index: usize| *table.add(index);
            let feature_version = std::mem::transmute::<*mut c_void, Version>(at(211));
            let descr_from_type = std::mem::transmute::<*mut c_void, DescrFromType>(at(45));
            let mut dtypes = [(std::ptr::null_mut(), 0); NUMBERS];
            for (number, dtype) in dtypes.iter_mut().enumerate() {
                let found = descr_from_type(number as c_int);
                if found.is_null() {
                    return Err(PyErr::fetch(py));
                }
                let item = Bound::from_borrowed_ptr(py, found.cast::<ffi::PyObject>());
                *dtype = (found, item.getattr(intern!(py, "itemsize"))?.extract()?);
            }
            let numpy = Numpy {
                array_type: at(2).cast(),
                new_from_descr: std::mem::transmute::<*mut c_void, NewFromDescr>(at(94)),
                descr_converter: std::mem::transmute::<*mut c_void, DescrConverter>(at(174)),
                set_base_object: std::mem::transmute::<*mut c_void, SetBaseObject>(at(282)),
                dtypes,
                handlers: (feature_version() >= HANDLERS_SINCE)
                    .then(|| -> PyResult<_> {
                        let default = *at(306).cast::<*mut ffi::PyObject>();
                        let default = ffi::PyCapsule_GetPointer(default, HANDLER_NAME.as_ptr());
                        let default = NonNull::new(default).ok_or_else(|| PyErr::fetch(py))?;
                        let default = &default.cast::<Handler>().as_ref().allocator;
                        Ok((std::mem::transmute::<*mut c_void, SetHandler>(at(304)), default))
                    })
                    .transpose()?,
            };
            if numpy.array_type != module.getattr(intern!(py, "ndarray"))?.as_ptr().cast() {
                return Err(PyImportError::new_err("this numpy's table is of another ABI"));
            }
            Ok(numpy)
        }
    }

    /// The native dtype of that number, and its item size. 0 for one whose size is its own.
    pub(super) fn dtype(&self, number: usize) -> (*mut Dtype, usize) {
        self.dtypes[number]
    }

    /// The dtype that `numpy.dtype` makes of this text or type.
    pub(super) fn dtype_of<'py>(&self, what: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = what.py();
        let mut dtype = std::ptr::null_mut();
        // SAFETY: attached; on success `dtype` is a new reference.
        unsafe {
            if (self.descr_converter)(what.as_ptr(), &mut dtype) == 0 || dtype.is_null() {
                return Err(PyErr::fetch(py));
            }
            Ok(Bound::from_owned_ptr(py, dtype.cast::<ffi::PyObject>()))
        }
    }

    /// The dtype that `text` names, which is of plain numbers or times.
    pub(super) fn dtype_named<'py>(
        &self,
        text: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let dtype = self.dtype_of(text)?;
        // SAFETY: it is a dtype.
        let plain = unsafe { (*dtype.as_ptr().cast::<Dtype>()).number().is_some() };
        Ok(plain.then_some(dtype))
    }

    /// A fresh array, its data not initialized, in C or Fortran order.
    ///
    /// # Safety
    /// `dtype` is one.
    pub(super) unsafe fn fresh<'py>(
        &self,
        py: Python<'py>,
        dtype: *mut Dtype,
        shape: &[isize],
        fortran: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let flags = if fortran { F_CONTIGUOUS } else { 0 };
        // SAFETY: promised by the caller.
        unsafe { self.make(py, dtype, shape, std::ptr::null(), flags) }
    }

    /// A read-only array of `data`, which lives as long as `owner`.
    ///
    /// # Safety
    /// `dtype` is one; `data` is as long as `shape` says.
    pub(super) unsafe fn reading<'py>(
        &self,
        dtype: *mut Dtype,
        shape: &[isize],
        fortran: bool,
        data: *const u8,
        owner: Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = owner.py();
        let order = if fortran { F_CONTIGUOUS } else { C_CONTIGUOUS };
        // SAFETY: promised by the caller; numpy finds out itself what is aligned. The base is handed over.
        unsafe {
            let array = self.make(py, dtype, shape, data, order | ALIGNED)?;
            if (self.set_base_object)(array.as_ptr().cast(), owner.into_ptr()) != 0 {
                return Err(PyErr::fetch(py));
            }
            Ok(array)
        }
    }

    /// Arrays that are made in this thread's context from now on take their memory from there. False
    /// if that cannot be.
    pub(super) fn set_handler(&self, py: Python<'_>, handler: &'static Handler) -> bool {
        let Some((set, _)) = self.handlers else { return false };
        let handler = std::ptr::from_ref(handler).cast_mut().cast();
        // SAFETY: attached. numpy keeps the capsule while it or an array needs it; the handler lives for ever.
        unsafe {
            let capsule = ffi::PyCapsule_New(handler, HANDLER_NAME.as_ptr(), None);
            let set = Bound::from_owned_ptr_or_err(py, capsule)
                .and_then(|capsule| Bound::from_owned_ptr_or_err(py, set(capsule.as_ptr())));
            set.is_ok()
        }
    }

    /// Of numpy's own. Only for a handler that was set.
    pub(super) fn default_allocator() -> &'static Allocator {
        // SAFETY: numpy calls a handler only attached.
        let numpy = NUMPY.get(unsafe { Python::assume_attached() });
        let (_, own) = numpy.and_then(|numpy| numpy.handlers).expect("it set a handler");
        own
    }

    unsafe fn make<'py>(
        &self,
        py: Python<'py>,
        dtype: *mut Dtype,
        shape: &[isize],
        data: *const u8,
        flags: c_int,
    ) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY: attached; `dtype` is alive and numpy takes the reference that is counted here.
        unsafe {
            ffi::Py_INCREF(dtype.cast());
            let array = (self.new_from_descr)(
                self.array_type,
                dtype,
                shape.len() as c_int,
                shape.as_ptr(),
                std::ptr::null(),
                data.cast_mut().cast(),
                flags,
                std::ptr::null_mut(),
            );
            Bound::from_owned_ptr_or_err(py, array)
        }
    }
}

impl Handler {
    pub(super) const fn new(name: &CStr, allocator: Allocator) -> Handler {
        let mut copied = [0; 127];
        let bytes = name.to_bytes();
        let mut at = 0;
        while at < bytes.len() {
            copied[at] = bytes[at] as c_char;
            at += 1;
        }
        Handler { name: copied, version: 1, allocator }
    }
}

impl ArrayObject {
    pub(super) fn shape(&self) -> &[isize] {
        match self.dimensions_count {
            0 => &[],
            // SAFETY: numpy keeps so many while the array lives; nobody reshapes it meanwhile, since
            // the interpreter is ours.
            count => unsafe { std::slice::from_raw_parts(self.dimensions, count as usize) },
        }
    }

    pub(super) fn has(&self, flags: c_int) -> bool {
        self.flags & flags == flags
    }

    /// Whether nobody but who has these references can come by it.
    pub(super) fn is_only_reached_by(&self, references: isize) -> bool {
        // SAFETY: it is an object, alive.
        let count = unsafe { ffi::Py_REFCNT(std::ptr::from_ref(self).cast_mut().cast()) };
        count == references && self.weak_references.is_null()
    }
}

impl Owner {
    /// # Safety
    /// It is an array, alive as long as the owner is in use.
    pub(super) unsafe fn of(array: *mut ArrayObject) -> Option<Owner> {
        // SAFETY: promised by the caller.
        unsafe { (*array).has(OWNS_DATA) }.then_some(Owner(array))
    }

    pub(super) fn address(&self) -> usize {
        // SAFETY: promised to `of`.
        unsafe { (*self.0).data as usize }
    }

    /// The array does not free its data, which is somebody else's now.
    ///
    /// # Safety
    /// Attached; the data came from a handler, and nobody reads the array any more.
    pub(super) unsafe fn disown(self) {
        // SAFETY: promised by the caller; so does numpy make a view of foreign memory.
        unsafe {
            (*self.0).flags &= !OWNS_DATA;
            ffi::Py_CLEAR(&raw mut (*self.0).handler);
        }
    }
}

impl Dtype {
    /// Its number, if it is of truth values, numbers or times.
    pub(super) fn number(&self) -> Option<usize> {
        let number = usize::try_from(self.number).ok().filter(|number| *number < NUMBERS)?;
        matches!(self.kind, b'b' | b'i' | b'u' | b'f' | b'c' | b'm' | b'M').then_some(number)
    }

    /// It is the bfloat16 of ml_dtypes, which numpy takes for two bytes of whatever its package knows.
    pub(super) fn is_bfloat16(&self) -> bool {
        if self.kind != b'V' || self.byte_order != b'=' {
            return false;
        }
        // SAFETY: a dtype keeps the type of its scalars, whose name is a string of C.
        unsafe { CStr::from_ptr((*self.scalar_type).tp_name) == c"ml_dtypes.bfloat16" }
    }
}
