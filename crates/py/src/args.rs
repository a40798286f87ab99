//! The arguments of a call, as they lie in its frame.
//!
//! ```text
//! (nothing)                      no arguments, no extras
//! extras u8                      EXTRA_GROUP, EXTRA_NAME: count, UTF-8
//!                                EXTRA_RETRY: count, pickle of types
//!                                PACKED: nothing follows, the rest lies in the store
//! positional count, arguments    each: a value (see `values`), or REFERENCE and a count: the
//! keyword count, (name, argument)     index of the ref whose value it is
//! ```
//!
//! Counts are as in `values::plain`. An argument that is too large for a frame is put into the store first
//! and then passed like a ref of the user's. When all together are too many for a frame, or their names too
//! long, they are *packed*: one stored object has the count of refs, their ids, and what would follow the
//! extras. The frame names that object alone.

use std::sync::Arc;

use hoplo_base::ObjectId;
use hoplo_base::limits::{CALL_INLINE_BYTES_MAX, INLINE_BYTES_MAX, PACKED_ARGUMENT_BYTES_MAX};
use hoplo_client::{Call, CallOptions, Content, TakesArguments};
use hoplo_wire::call::CallView;
use hoplo_wire::object::ValueView;
use hoplo_wire::{Failure, Location};
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use crate::errors::malformed;
use crate::fetch;
use crate::refs::ObjectRef;
use crate::session::Session;
use crate::values::{self, Contained, Encoded, Kept, PlainReader};

const EXTRA_GROUP: u8 = 1;
const EXTRA_RETRY: u8 = 2;
const EXTRA_NAME: u8 = 4;
const PACKED: u8 = 8;
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
    packed: bool,
}

/// Arguments ready to be submitted.
pub(crate) struct EncodedArgs {
    args: Vec<u8>,
    /// Where the extras end in `args`.
    extras_end: usize,
    refs: Vec<ObjectId>,
    nested: Contained,
    packed: bool,
    implicit: Implicit,
}

/// References of objects that were made for large arguments, and of those inside the others: keeps them until
/// the call holds them.
pub(crate) struct Implicit {
    session: Arc<Session>,
    objects: Vec<ObjectId>,
    _nested: Kept,
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
    session.make_room(args.py())?;
    let session = Arc::clone(session);
    let implicit = Implicit { session, objects: Vec::new(), _nested: Kept::default() };
    let mut encoded = EncodedArgs {
        args: Vec::new(),
        extras_end: 0,
        refs: Vec::new(),
        nested: Contained::default(),
        packed: false,
        implicit,
    };
    let kwargs = kwargs.filter(|kwargs| !kwargs.is_empty());
    let no_extras = extras.flags() == 0;
    if args.is_empty() && kwargs.is_none() && no_extras {
        return Ok(encoded);
    }
    encoded.extras(extras)?;
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
    if !Call::fits_frame(encoded.args.len(), encoded.refs.len()) {
        encoded.pack(args.py())?;
    }
    Ok(encoded)
}

impl EncodedArgs {
    /// The call, and what must live until it is submitted.
    pub(crate) fn call(self, options: Arc<CallOptions>) -> (Call, Implicit) {
        let EncodedArgs { args, refs, nested, packed, mut implicit, .. } = self;
        let (nested, kept) = nested.into_parts();
        implicit._nested = kept;
        (Call { options, args, refs, nested, packed }, implicit)
    }

    fn extras(&mut self, extras: &Extras) -> PyResult<()> {
        self.args.reserve(48);
        self.args.push(extras.flags());
        for text in [&extras.group, &extras.name].into_iter().flatten() {
            self.sized(text.as_bytes());
        }
        if let Some(types) = &extras.retry_types {
            self.sized(types);
        }
        self.extras_end = self.args.len();
        if Call::fits_frame(self.extras_end, 1) {
            return Ok(());
        }
        Err(PyValueError::new_err(format!(
            "the options of this call take {} bytes, and {CALL_INLINE_BYTES_MAX} at most travel with a call: \
             define the classes of its retry_exceptions in a module that workers import",
            self.extras_end
        )))
    }

    fn argument(&mut self, argument: &Bound<'_, PyAny>, name: impl Fn() -> String) -> PyResult<()> {
        if let Ok(reference) = argument.cast_exact::<ObjectRef>() {
            self.reference(reference.get().id_in(&self.implicit.session)?);
            return Ok(());
        }
        let room = CALL_INLINE_BYTES_MAX.saturating_sub(self.args.len());
        let room = room.clamp(PACKED_ARGUMENT_BYTES_MAX, INLINE_BYTES_MAX);
        let nested = self.nested.len();
        match values::encode(argument, room, &mut self.args, &mut self.nested)
            .map_err(|error| values::unpicklable(argument, &name(), error))?
        {
            Encoded::Inline => Ok(()),
            Encoded::Large(large) => {
                let contains = self.nested.split_off(nested);
                let session = &self.implicit.session;
                let object = fetch::put_large(argument.py(), session, &large, contains.ids())?;
                self.implicit.objects.push(object);
                self.reference(object);
                Ok(())
            }
        }
    }

    /// More than a frame takes: what follows the extras goes into the store, and the frame names it there.
    #[cold]
    fn pack(&mut self, py: Python<'_>) -> PyResult<()> {
        let refs = std::mem::take(&mut self.refs);
        let arguments = self.args.split_off(self.extras_end);
        let mut bytes = Vec::with_capacity(arguments.len() + (refs.len() + 1) * ObjectId::BYTES);
        values::put_count(refs.len(), &mut bytes);
        for object in &refs {
            bytes.extend_from_slice(&object.to_bytes());
        }
        bytes.extend_from_slice(&arguments);
        let mut awaited = refs;
        awaited.sort_unstable();
        awaited.dedup();
        let nested = std::mem::take(&mut self.nested);
        let mut contains = awaited.clone();
        contains.extend_from_slice(nested.ids());
        contains.sort_unstable();
        contains.dedup();
        values::check_refs(contains.len())?;
        let large = values::Large::of_bytes(bytes);
        let object = fetch::put_large(py, &self.implicit.session, &large, &contains)?;
        self.implicit.objects.push(object);
        self.args[0] |= PACKED;
        self.refs.push(object);
        self.refs.append(&mut awaited);
        self.packed = true;
        Ok(())
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
    /// An argument was lost, and is made again: the call may be given back.
    Delayed,
    Raised(PyErr),
}

impl From<PyErr> for ArgsError {
    fn from(error: PyErr) -> Self {
        ArgsError::Raised(error)
    }
}

/// What is done about an argument that was lost, and is made again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WhenDelayed {
    GiveBack,
    Wait,
}

pub(crate) type Arguments<'py> = (Bound<'py, PyTuple>, Option<Bound<'py, PyDict>>);

pub(crate) fn decode_args<'py>(
    py: Python<'py>,
    session: &Session,
    call: &CallView<'_>,
    when_delayed: WhenDelayed,
) -> Result<Arguments<'py>, ArgsError> {
    if call.args.is_empty() {
        return Ok((PyTuple::empty(py), None));
    }
    let mut reader = PlainReader::new(py, call.args);
    let extras = skip_extras(&mut reader)?;
    let refs = match call.refs_count() {
        0 => Vec::new(),
        _ => call.refs().map_err(malformed)?,
    };
    let _takes = (!refs.is_empty()).then(TakesArguments::begin);
    if extras.packed {
        return decode_packed(py, session, refs.first());
    }
    let far = fetch_far(session, &refs);
    let values = decode_values(py, session, &mut reader, &refs, when_delayed);
    far.into_iter().for_each(|id| session.drop_ref(id));
    values
}

/// Asks at once for all arguments that lie at other nodes, so that they come together: one after the other each node
/// would send to one only. Those that it returns have one reference more.
fn fetch_far(session: &Session, refs: &[(ObjectId, ValueView<'_>)]) -> Vec<ObjectId> {
    if refs.len() < 2 {
        return Vec::new();
    }
    let far = refs.iter().filter_map(|(id, value)| match value {
        ValueView::Stored(location) => location.known().is_none().then_some(*id),
        ValueView::Inline(_) | ValueView::Failed { .. } => None,
    });
    let far: Vec<ObjectId> = far.collect();
    if !far.is_empty() {
        session.client.want(&far);
    }
    far
}

#[cold]
fn decode_packed<'py>(
    py: Python<'py>,
    session: &Session,
    packed: Option<&(ObjectId, ValueView<'_>)>,
) -> Result<Arguments<'py>, ArgsError> {
    let Some((object, ValueView::Stored(location))) = packed else {
        return Err(malformed("packed arguments do not lie in the store").into());
    };
    let content = stored(py, session, *object, *location, WhenDelayed::Wait)?;
    let bytes: &[u8] = match &content {
        Content::Stored(pinned) => pinned,
        Content::Inline(bytes) => bytes,
        Content::Failed(failure) => return Err(ArgsError::Failed(failure.clone())),
    };
    let mut reader = PlainReader::new(py, bytes);
    let count = reader.count()?;
    let ids = reader.take(count.saturating_mul(ObjectId::BYTES))?.chunks_exact(ObjectId::BYTES);
    let ids = ids.map(|id| ObjectId::from_bytes(id.try_into().expect("chunks are of that length")));
    let ids: Vec<ObjectId> = ids.collect();
    // Asked for at once; then each is there when it is read.
    ids.iter().for_each(|id| session.client.add_ref(*id));
    let arrived = fetch::wait_for(py, session, &ids, ids.len(), None);
    let values = arrived.map_err(ArgsError::from).and_then(|_| {
        let refs = ids.iter().map(|id| (*id, ValueView::Stored(Location::ASK)));
        let refs = refs.collect::<Vec<_>>();
        decode_values(py, session, &mut reader, &refs, WhenDelayed::Wait)
    });
    ids.iter().for_each(|id| session.drop_ref(*id));
    values
}

fn decode_values<'py>(
    py: Python<'py>,
    session: &Session,
    reader: &mut PlainReader<'_, 'py>,
    refs: &[(ObjectId, ValueView<'_>)],
    when_delayed: WhenDelayed,
) -> Result<Arguments<'py>, ArgsError> {
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
            let value = argument(py, session, reader, refs, when_delayed)?;
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
        kwargs.set_item(name, argument(py, session, reader, refs, when_delayed)?)?;
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
        packed: flags & PACKED != 0,
    })
}

fn argument<'py>(
    py: Python<'py>,
    session: &Session,
    reader: &mut PlainReader<'_, 'py>,
    refs: &[(ObjectId, ValueView<'_>)],
    when_delayed: WhenDelayed,
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
            let content = stored(py, session, *object, *location, when_delayed)?;
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

fn stored(
    py: Python<'_>,
    session: &Session,
    object: ObjectId,
    location: Location,
    when_delayed: WhenDelayed,
) -> Result<Content, ArgsError> {
    if let Some(content) = session.client.argument(object, location) {
        return Ok(content);
    }
    // It moved since the call was written: this process holds one reference of it.
    let content = match when_delayed {
        WhenDelayed::Wait => fetch::one(py, session, object, None, None).map(Some),
        WhenDelayed::GiveBack => fetch::argument(py, session, object),
    };
    session.drop_ref(object);
    content?.ok_or(ArgsError::Delayed)
}
