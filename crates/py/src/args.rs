//! The arguments of a call, as they lie in its frame.
//!
//! ```text
//! (nothing)                      no arguments, no extras
//! extras u8                      EXTRA_GROUP, EXTRA_NAME: count, UTF-8
//!                                EXTRA_RETRY: count, pickle of types
//! positional count, arguments    each: a value (see `values`), or REFERENCE and a count: the
//! keyword count, (name, argument)     index of the ref whose value it is
//! ```
//!
//! Counts are as in `values::plain`. What is too large for a frame is put into the store first
//! and then passed like a ref of the user's.

use std::sync::Arc;

use hoplo_base::ObjectId;
use hoplo_base::limits::{CALL_INLINE_BYTES_MAX, INLINE_BYTES_MAX};
use hoplo_client::Content;
use hoplo_wire::Failure;
use hoplo_wire::call::CallView;
use hoplo_wire::object::ValueView;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use crate::errors::malformed;
use crate::get;
use crate::refs::ObjectRef;
use crate::session::Session;
use crate::values::{self, Encoded, PlainReader};

const EXTRA_GROUP: u8 = 1;
const EXTRA_RETRY: u8 = 2;
const EXTRA_NAME: u8 = 4;
/// Tag of an argument that is the value of a ref.
const REFERENCE: u8 = 64;

/// What a call carries beside its arguments.
#[derive(Clone, Default)]
pub(crate) struct Extras {
    /// The concurrency group asked for at the call.
    pub(crate) group: Option<Arc<str>>,
    /// The `name` option.
    pub(crate) name: Option<Arc<str>>,
    /// Pickled tuple of exception types that are worth another run.
    pub(crate) retry_types: Option<Arc<[u8]>>,
}

impl Extras {
    fn flags(&self) -> u8 {
        let group = if self.group.is_some() { EXTRA_GROUP } else { 0 };
        let name = if self.name.is_some() { EXTRA_NAME } else { 0 };
        let retry = if self.retry_types.is_some() { EXTRA_RETRY } else { 0 };
        group | name | retry
    }
}

/// The extras of a call, read in place.
#[derive(Clone, Copy, Default)]
pub(crate) struct ExtrasView<'a> {
    pub(crate) group: Option<&'a str>,
    pub(crate) name: Option<&'a str>,
    pub(crate) retry_types: Option<&'a [u8]>,
}

/// Arguments ready to be submitted.
pub(crate) struct EncodedArgs {
    pub(crate) args: Vec<u8>,
    pub(crate) refs: Vec<ObjectId>,
    pub(crate) nested: Vec<ObjectId>,
    /// Keeps what was put on the way until the call holds it.
    pub(crate) implicit: Implicit,
}

/// References of objects that were made for large arguments.
pub(crate) struct Implicit {
    session: Arc<Session>,
    objects: Vec<ObjectId>,
}

impl Drop for Implicit {
    fn drop(&mut self) {
        for object in self.objects.drain(..) {
            self.session.drop_ref(object);
        }
    }
}

pub(crate) fn encode_args(
    session: &Arc<Session>,
    args: &Bound<'_, PyTuple>,
    kwargs: Option<&Bound<'_, PyDict>>,
    extras: &Extras,
) -> PyResult<EncodedArgs> {
    let implicit = Implicit { session: Arc::clone(session), objects: Vec::new() };
    let mut encoded =
        EncodedArgs { args: Vec::new(), refs: Vec::new(), nested: Vec::new(), implicit };
    let kwargs = kwargs.filter(|kwargs| !kwargs.is_empty());
    let no_extras = extras.flags() == 0;
    if args.is_empty() && kwargs.is_none() && no_extras {
        return Ok(encoded);
    }
    encoded.extras(extras);
    encoded.count(args.len());
    for (index, argument) in args.iter_borrowed().enumerate() {
        encoded.argument(&argument, || format!("args[{index}]"))?;
    }
    encoded.count(kwargs.map_or(0, |kwargs| kwargs.len()));
    if let Some(kwargs) = kwargs {
        for (name, argument) in kwargs.iter() {
            let name = name.cast::<PyString>()?.to_str()?;
            encoded.sized(name.as_bytes());
            encoded.argument(&argument, || format!("kwargs['{name}']"))?;
        }
    }
    Ok(encoded)
}

impl EncodedArgs {
    fn extras(&mut self, extras: &Extras) {
        self.args.reserve(48);
        self.args.push(extras.flags());
        for text in [&extras.group, &extras.name].into_iter().flatten() {
            self.sized(text.as_bytes());
        }
        if let Some(types) = &extras.retry_types {
            self.sized(types);
        }
    }

    fn argument(&mut self, argument: &Bound<'_, PyAny>, name: impl Fn() -> String) -> PyResult<()> {
        if let Ok(reference) = argument.cast_exact::<ObjectRef>() {
            self.reference(reference.get().id_in(&self.implicit.session)?);
            return Ok(());
        }
        let room = CALL_INLINE_BYTES_MAX.saturating_sub(self.args.len()).min(INLINE_BYTES_MAX);
        let nested = self.nested.len();
        match values::encode(argument, room, &mut self.args, &mut self.nested)
            .map_err(|error| values::unpicklable(argument, &name(), error))?
        {
            Encoded::Inline => Ok(()),
            Encoded::Large(large) => {
                let contains = self.nested.split_off(nested);
                let object =
                    get::put_large(argument.py(), &self.implicit.session, &large, &contains)?;
                self.implicit.objects.push(object);
                self.reference(object);
                Ok(())
            }
        }
    }

    fn reference(&mut self, object: ObjectId) {
        self.args.push(REFERENCE);
        self.count(self.refs.len());
        self.refs.push(object);
    }

    fn sized(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.args.extend_from_slice(bytes);
    }

    fn count(&mut self, count: usize) {
        values::put_count(count, &mut self.args);
    }
}

/// Why a call cannot run.
pub(crate) enum ArgsError {
    /// An argument's own task failed: so does this one, in the same way.
    Failed(Failure),
    Raised(PyErr),
}

impl From<PyErr> for ArgsError {
    fn from(error: PyErr) -> Self {
        ArgsError::Raised(error)
    }
}

pub(crate) type Arguments<'py> = (Bound<'py, PyTuple>, Option<Bound<'py, PyDict>>);

pub(crate) fn decode_args<'py>(
    py: Python<'py>,
    session: &Session,
    call: &CallView<'_>,
) -> Result<Arguments<'py>, ArgsError> {
    if call.args.is_empty() {
        return Ok((PyTuple::empty(py), None));
    }
    let mut reader = PlainReader::new(py, call.args);
    skip_extras(&mut reader)?;
    let refs = match call.refs_count() {
        0 => Vec::new(),
        _ => call.refs().map_err(malformed)?,
    };
    let count = reader.count()?;
    if count > reader.rest().len() {
        return Err(malformed("a call has more arguments than bytes").into());
    }
    // SAFETY: attached. Each place is filled before the tuple is seen by anyone else; on an error it
    // is dropped with null places, which its destructor allows.
    let args = unsafe {
        let args = ffi::PyTuple_New(count as ffi::Py_ssize_t);
        let args = Bound::from_owned_ptr_or_err(py, args)?.cast_into_unchecked::<PyTuple>();
        for index in 0..count {
            let value = argument(py, session, &mut reader, &refs)?;
            ffi::PyTuple_SET_ITEM(args.as_ptr(), index as ffi::Py_ssize_t, value.into_ptr());
        }
        args
    };
    let count = reader.count()?;
    if count == 0 {
        return Ok((args, None));
    }
    let kwargs = PyDict::new(py);
    for _ in 0..count {
        let len = reader.count()?;
        let name = PyString::from_bytes(py, reader.take(len)?)?;
        kwargs.set_item(name, argument(py, session, &mut reader, &refs)?)?;
    }
    Ok((args, Some(kwargs)))
}

/// What a call carries beside its arguments.
pub(crate) fn decode_extras<'a>(py: Python<'_>, args: &'a [u8]) -> PyResult<ExtrasView<'a>> {
    match args.first() {
        None | Some(0) => Ok(ExtrasView::default()),
        Some(_) => skip_extras(&mut PlainReader::new(py, args)),
    }
}

fn skip_extras<'a>(reader: &mut PlainReader<'a, '_>) -> PyResult<ExtrasView<'a>> {
    fn sized<'a>(reader: &mut PlainReader<'a, '_>, asked: bool) -> PyResult<Option<&'a [u8]>> {
        if !asked {
            return Ok(None);
        }
        let len = reader.count()?;
        reader.take(len).map(Some)
    }
    fn text(bytes: Option<&[u8]>) -> PyResult<Option<&str>> {
        bytes.map(std::str::from_utf8).transpose().map_err(malformed)
    }
    let flags = reader.byte()?;
    Ok(ExtrasView {
        group: text(sized(reader, flags & EXTRA_GROUP != 0)?)?,
        name: text(sized(reader, flags & EXTRA_NAME != 0)?)?,
        retry_types: sized(reader, flags & EXTRA_RETRY != 0)?,
    })
}

fn argument<'py>(
    py: Python<'py>,
    session: &Session,
    reader: &mut PlainReader<'_, 'py>,
    refs: &[(ObjectId, ValueView<'_>)],
) -> Result<Bound<'py, PyAny>, ArgsError> {
    if reader.peek() != Some(REFERENCE) {
        return Ok(reader.value()?);
    }
    reader.byte()?;
    let index = reader.count()?;
    let (object, value) =
        refs.get(index).ok_or_else(|| malformed("an argument names a ref that is not there"))?;
    match value {
        ValueView::Inline(bytes) => Ok(values::read_value(py, bytes)?),
        ValueView::Stored(location) => {
            let content = match session.client.argument(*object, *location) {
                Some(content) => content,
                None => fetch(py, session, *object)?,
            };
            if let Content::Failed(failure) = &content {
                return Err(ArgsError::Failed(failure.clone()));
            }
            Ok(values::read_content(py, &content)?)
        }
        ValueView::Failed { kind, payload, cause } => Err(ArgsError::Failed(Failure {
            kind: *kind,
            payload: (*payload).into(),
            cause: (*cause).into(),
        })),
    }
}

/// An argument that moved since the call was written: this process holds one reference of it.
fn fetch(py: Python<'_>, session: &Session, object: ObjectId) -> PyResult<Content> {
    let content = get::one(py, session, object, None);
    session.drop_ref(object);
    content
}
