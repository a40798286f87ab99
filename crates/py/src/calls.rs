//! One call that this process runs: from its frame to its replies.
//!
//! ```text
//!   taken --begin--> running --finish(value) | fail(error)--> replied
//!     \                  \--item(value)...--/
//!      \--cancelled before it began--> replied
//! ```
//!
//! The main loop drives an `Invocation` itself; threads and coroutines of an actor get it as an
//! `ActorCall`.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use hoplo_base::limits::{INLINE_BYTES_MAX, INLINE_REFS_MAX};
use hoplo_base::{ObjectId, ProcessId, TaskId, shown};
use hoplo_client::{IncomingCall, StoreError, Waited};
use hoplo_wire::call::{
    CALL_BACKPRESSURE, CALL_RETRY_ANY, CALL_RETRY_LISTED, CALL_STREAMING, CallHeader, CallKind,
    CallView,
};
use hoplo_wire::object::ValueView;
use hoplo_wire::reply::{
    REPLY_NO_ROOM, REPLY_NOT_BEGUN, REPLY_RETIRING, REPLY_RETRYABLE, REPLY_STOPPED, ReplyHeader,
    ReplyKind, Returned,
};
use hoplo_wire::{Failure, FailureKind, Value};
use pyo3::exceptions::{PyException, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};

use crate::args::{self, ArgsError, Arguments, WhenDelayed};
use crate::current::{self, Running};
use crate::errors;
use crate::exits::{
    actor_left, contexts, ends_by_cancelling, exit_status, is_actor_exit, print_exit_text,
};
use crate::fetch;
use crate::leaving::{self, After};
use crate::lines;
use crate::python::Import;
use crate::session::Session;
use crate::values::{self, Contained, Encoded, Kept, contained};

/// What a function with several results returned, or yielded.
#[derive(Default)]
struct Given<'py> {
    values: Vec<Bound<'py, PyAny>>,
    /// What a generator raised after these values, or that it ended too early.
    stopped: Option<PyErr>,
    /// The refs inside them, and those made as they were pickled.
    kept: Kept,
}

/// Why a call gave no value.
pub(crate) enum Fault {
    /// An argument's task failed, or it cannot be read here.
    Argument(Failure),
    /// An argument was lost, and is made again.
    Delayed,
    /// The result found no room here; there are other nodes.
    NoRoom(PyErr),
    Raised(PyErr),
}

impl From<PyErr> for Fault {
    fn from(error: PyErr) -> Self {
        Fault::Raised(error)
    }
}

impl From<Fault> for PyErr {
    /// Of what gives a result.
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::NoRoom(error) | Fault::Raised(error) => error,
            Fault::Argument(_) | Fault::Delayed => unreachable!("a result waits for no argument"),
        }
    }
}

impl From<ArgsError> for Fault {
    fn from(error: ArgsError) -> Self {
        match error {
            ArgsError::Failed(failure) => Fault::Argument(failure),
            ArgsError::Delayed => Fault::Delayed,
            ArgsError::Raised(error) => Fault::Raised(error),
        }
    }
}

pub(crate) struct Invocation {
    pub(crate) session: Arc<Session>,
    pub(crate) header: CallHeader,
    pub(crate) name: Arc<str>,
    caller: ProcessId,
    /// The caller's name for it.
    tag: u64,
    frame: Vec<u8>,
    started_ns: AtomicU64,
    /// Of a stream.
    items: AtomicU32,
    ended: AtomicBool,
    retiring: AtomicBool,
    /// Of an actor with checkpoints: its reply waits for the log.
    logged: AtomicBool,
}

impl Invocation {
    /// `None` for a frame that does not parse.
    pub(crate) fn of(
        session: Arc<Session>,
        call: IncomingCall,
        name: impl FnOnce(&CallHeader) -> Arc<str>,
    ) -> Option<Invocation> {
        let header = CallView::parse(&call.frame).ok()?.header;
        Some(Invocation {
            session,
            header,
            name: name(&header),
            caller: call.caller,
            tag: call.tag,
            frame: call.frame,
            started_ns: AtomicU64::new(0),
            items: AtomicU32::new(0),
            ended: AtomicBool::new(false),
            retiring: AtomicBool::new(false),
            logged: AtomicBool::new(false),
        })
    }

    pub(crate) fn view(&self) -> CallView<'_> {
        CallView::parse(&self.frame).expect("it parsed when the call was taken")
    }

    pub(crate) fn task(&self) -> TaskId {
        self.header.task
    }

    /// Tasks, and streams of methods, may be interrupted in the main thread.
    pub(crate) fn running(&self, py: Python<'_>, in_main: bool) -> Running {
        Running {
            task: self.header.task,
            name: Arc::clone(&self.name),
            given_name: self.given_name(py),
            attempt: self.header.attempt,
            interruptible: in_main && (self.header.kind == CallKind::Task || self.is_streaming()),
            since: current::coarse_now(),
        }
    }

    fn given_name(&self, py: Python<'_>) -> Option<Arc<str>> {
        let view = self.view();
        args::decode_extras(py, view.args).ok().and_then(|extras| extras.name).map(Arc::from)
    }

    /// What its caller calls it.
    fn title(&self, py: Python<'_>) -> Arc<str> {
        self.given_name(py).map_or_else(|| Arc::clone(&self.name), |name| shown(&name).into())
    }

    pub(crate) fn is_streaming(&self) -> bool {
        self.header.flags & CALL_STREAMING != 0
    }

    /// It was replied to.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.session.client.is_cancelled(self.header.task)
    }

    /// The last reply says that the process takes no more calls.
    pub(crate) fn retire(&self) {
        self.retiring.store(true, Ordering::Relaxed);
    }

    /// CLOCK_MONOTONIC; 0: not yet.
    pub(crate) fn started_ns(&self) -> u64 {
        self.started_ns.load(Ordering::Relaxed)
    }

    pub(crate) fn start_clock(&self) {
        self.started_ns.store(now_ns(), Ordering::Relaxed);
    }

    pub(crate) fn arguments<'py>(&self, py: Python<'py>) -> Result<Arguments<'py>, ArgsError> {
        // What a method gave back would lose its place in the order of its actor's calls.
        let when_delayed = match self.header.kind {
            CallKind::Task => WhenDelayed::GiveBack,
            CallKind::Method | CallKind::Create => WhenDelayed::Wait,
        };
        args::decode_args(py, &self.session, &self.view(), when_delayed)
    }

    /// Runs it whole: arguments, the function, its results, its errors.
    pub(crate) fn run(&self, py: Python<'_>, function: &Bound<'_, PyAny>) -> After {
        self.start_clock();
        let result = self.try_run(py, function);
        lines::end(py);
        if !self.session.is_ours() {
            // A child that the function forked came back from it: it has nobody to reply to.
            return After::Exit(i32::from(result.is_err()));
        }
        match result {
            Ok(value) => self.finish(&value),
            Err(fault) => self.fail(py, fault),
        }
    }

    /// The same for an actor with checkpoints: the call is logged before it begins.
    pub(crate) fn run_logged(&self, py: Python<'_>, function: &Bound<'_, PyAny>) -> After {
        self.start_clock();
        let (arguments, mut contains) = contained::collect_read(|| self.arguments(py));
        let (args, kwargs) = match arguments {
            Ok(arguments) => arguments,
            Err(error) => return self.fail(py, error.into()),
        };
        if let Ok(refs) = self.view().refs() {
            let stored = |value: &ValueView<'_>| matches!(value, ValueView::Stored(_));
            contains.extend(refs.iter().filter(|(_, value)| stored(value)).map(|(id, _)| *id));
        }
        contains.sort_unstable();
        contains.dedup();
        self.session.client.log_call(self.task(), &self.frame, contains);
        self.logged.store(true, Ordering::Relaxed);
        let result = function.call(args, kwargs.as_ref());
        lines::end(py);
        if !self.session.is_ours() {
            return After::Exit(i32::from(result.is_err()));
        }
        match result {
            Ok(value) => self.finish(&value),
            Err(error) => self.fail(py, Fault::Raised(error)),
        }
    }

    /// A call that ran before is answered as it was then.
    pub(crate) fn answer_again(&self, py: Python<'_>, values: Vec<Value>) -> After {
        let returned = values.into_iter().map(|value| Returned { value, contains: Vec::new() });
        let returned: Vec<Returned> = returned.collect();
        self.end(py, ReplyKind::Finished, 0, 0, &returned);
        After::GoOn
    }

    /// What a replayed call is answered: its values, if they are small and hold no refs, or what it returned.
    pub(crate) fn answer(
        &self,
        py: Python<'_>,
        result: PyResult<Bound<'_, PyAny>>,
    ) -> PyResult<Result<Vec<Value>, Py<PyAny>>> {
        let failed = |error: &PyErr| {
            // Nobody would hold refs in it.
            let (failure, _) = errors::encode_with_refs(error, py, &self.title(py), 0);
            Ok(Ok(vec![Value::Failed(failure)]))
        };
        let value = match result {
            Ok(value) => value,
            Err(error) => return failed(&error),
        };
        let mut given = Given::default();
        let (values, whole) = match self.header.returns {
            0 => return Ok(Ok(Vec::new())),
            1 => (vec![value.clone()], value),
            count => {
                if let Err(error) = self.several(&value, count, &mut given) {
                    return failed(&error);
                }
                if let Some(error) = given.stopped.take() {
                    return failed(&error);
                }
                let whole = PyTuple::new(py, &given.values)?.into_any();
                (std::mem::take(&mut given.values), whole)
            }
        };
        let mut small = Vec::new();
        for value in &values {
            let (mut bytes, mut contains) = (Vec::new(), Contained::default());
            match values::encode(value, INLINE_BYTES_MAX, &mut bytes, &mut contains) {
                Ok(Encoded::Inline) if contains.len() == 0 => {
                    small.push(Value::Inline(bytes.into()));
                }
                Ok(Encoded::Inline | Encoded::Large(_)) => return Ok(Err(whole.unbind())),
                Err(error) => {
                    let name = format!("the result of {}", self.name);
                    return failed(&values::unpicklable(value, &name, error));
                }
            }
        }
        Ok(Ok(small))
    }

    fn try_run<'py>(
        &self,
        py: Python<'py>,
        function: &Bound<'py, PyAny>,
    ) -> Result<Bound<'py, PyAny>, Fault> {
        let (args, kwargs) = self.arguments(py)?;
        let value = function.call(args, kwargs.as_ref())?;
        if self.is_streaming() {
            self.stream(&value)?;
            return Ok(py.None().into_bound(py));
        }
        Ok(value)
    }

    fn stream(&self, values: &Bound<'_, PyAny>) -> PyResult<()> {
        for value in self.iterator_of(values)? {
            if current::any_cancelled() && self.is_cancelled() {
                // A method is not interrupted, but its stream has no reader any more.
                return Err(errors::system_error(
                    values.py(),
                    "TaskCancelledError",
                    &self.cancelled(values.py(), "").text(),
                ));
            }
            if !self.item(&value?)? {
                self.wait_for_room(values.py())?;
            }
        }
        Ok(())
    }

    fn iterator_of<'py>(
        &self,
        values: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, pyo3::types::PyIterator>> {
        values.try_iter().map_err(|_| {
            PyTypeError::new_err(format!(
                "{} was called with num_returns='streaming' and returned {}: make it a generator, \
                 with yield",
                self.name,
                type_name(values)
            ))
        })
    }

    /// The next value of a stream. False when the reader has enough for now.
    pub(crate) fn item(&self, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.session.check()?;
        let index = self.items.load(Ordering::Relaxed);
        let name = || format!("item {index} of {}", self.name);
        let mut kept = Kept::default();
        let returned = self.returned(value, 1, index, &mut kept, name)?;
        self.items.store(index + 1, Ordering::Relaxed);
        self.reply(value.py(), ReplyKind::Item, index, 0, &[returned]);
        drop(kept);
        Ok(self.room_after().is_none())
    }

    /// The limit, if more than that many items lie unread.
    fn room_after(&self) -> Option<u64> {
        if self.header.flags & CALL_BACKPRESSURE == 0 {
            return None;
        }
        self.view().extra().last().map(u64::from)
    }

    pub(crate) fn wait_for_room(&self, py: Python<'_>) -> PyResult<()> {
        let Some(ahead) = self.room_after() else { return Ok(()) };
        loop {
            match py.detach(|| self.wait_for_credit(ahead)) {
                Waited::Ready | Waited::TimedOut => return Ok(()),
                Waited::Interrupted => py.check_signals()?,
            }
        }
    }

    /// For a thread without Python: waits until the reader wants more.
    pub(crate) fn wait_for_credit_detached(&self) {
        let Some(ahead) = self.room_after() else { return };
        while self.wait_for_credit(ahead) == Waited::Interrupted {}
    }

    fn wait_for_credit(&self, ahead: u64) -> Waited {
        let sent = u64::from(self.items.load(Ordering::Relaxed));
        self.session.client.stream_credit(self.caller, self.header.task, sent, ahead)
    }

    /// Replies with the result, or with the error that its encoding raises.
    pub(crate) fn finish(&self, value: &Bound<'_, PyAny>) -> After {
        let py = value.py();
        if self.is_streaming() {
            let count = self.items.load(Ordering::Relaxed);
            self.end(py, ReplyKind::StreamEnd, count, 0, &[]);
            return After::GoOn;
        }
        // Until the reply is written, which passes on the refs in them.
        let mut given = Given::default();
        let after = match (self.results(value, &mut given), given.stopped.take()) {
            (Ok(results), None) => {
                self.end(py, ReplyKind::Finished, 0, 0, &results);
                After::GoOn
            }
            (Ok(results), Some(error)) => self.end_in_part(py, results, &error),
            (Err(fault), _) => self.fail(py, fault),
        };
        drop(given);
        after
    }

    /// A generator gave `results`, then it raised or ended: that is what the others of its results are.
    fn end_in_part(&self, py: Python<'_>, mut results: Vec<Returned>, error: &PyErr) -> After {
        let flags = if self.is_retryable(py, error) { REPLY_RETRYABLE } else { 0 };
        let title = self.title(py);
        let (failure, contains) = errors::encode_with_refs(error, py, &title, INLINE_REFS_MAX);
        let (contains, kept) = contains.into_parts();
        let rest = Returned { value: Value::Failed(failure), contains };
        results.resize(self.header.returns as usize, rest);
        self.end(py, ReplyKind::Finished, 0, flags, &results);
        drop(kept);
        After::GoOn
    }

    fn results<'py>(
        &self,
        value: &Bound<'py, PyAny>,
        given: &mut Given<'py>,
    ) -> Result<Vec<Returned>, Fault> {
        let name = || format!("the result of {}", self.name);
        match self.header.returns {
            0 => Ok(Vec::new()),
            1 => Ok(vec![self.returned(value, 1, 0, &mut given.kept, name)?]),
            count => {
                self.several(value, count, given)?;
                let Given { values, kept, .. } = given;
                // One is the container's, if that is not anybody else's.
                let plain = value.is_exact_instance_of::<PyTuple>()
                    || value.is_exact_instance_of::<PyList>();
                // SAFETY: attached, `value` is alive.
                let sole = plain && unsafe { pyo3::ffi::Py_REFCNT(value.as_ptr()) } == 1;
                let references = if sole { 2 } else { 0 };
                let mut all = Vec::with_capacity(values.len());
                for (index, value) in values.iter().enumerate() {
                    let name = || format!("{}[{index}]", name());
                    match self.returned(value, references, index as u32, kept, name) {
                        Ok(one) => all.push(one),
                        Err(error) => {
                            // Those before it are not replied: their room in the store is free again.
                            all.iter().for_each(|one: &Returned| {
                                self.session.client.discard_result(&one.value);
                            });
                            return Err(error);
                        }
                    }
                }
                Ok(all)
            }
        }
    }

    fn several<'py>(
        &self,
        value: &Bound<'py, PyAny>,
        wanted: u32,
        given: &mut Given<'py>,
    ) -> PyResult<()> {
        let values = &mut given.values;
        if let Ok(tuple) = value.cast::<PyTuple>() {
            values.extend(tuple.iter());
        } else if let Ok(list) = value.cast::<PyList>() {
            values.extend(list.iter());
        } else if value.hasattr(intern!(value.py(), "__iter__"))?
            && !value.is_instance_of::<PyDict>()
            && !value.is_instance_of::<pyo3::types::PyString>()
            && !value.is_instance_of::<PyBytes>()
        {
            for next in value.try_iter()? {
                let is_full = values.len() == wanted as usize;
                let in_part = !values.is_empty() && !is_full;
                match next {
                    Ok(_) if is_full => return Err(self.too_many(wanted, value)),
                    Ok(value) => values.push(value),
                    Err(error)
                        if in_part
                            && error.is_instance_of::<PyException>(value.py())
                            && !self.is_cancelled() =>
                    {
                        given.stopped = Some(error);
                        return Ok(());
                    }
                    Err(error) => return Err(error),
                }
            }
            let is_short = !values.is_empty() && values.len() < wanted as usize;
            if is_short && value.hasattr(intern!(value.py(), "__next__"))? {
                given.stopped = Some(self.wrong_number(wanted, values.len()));
                return Ok(());
            }
        } else {
            return Err(PyValueError::new_err(format!(
                "{} was called with num_returns={wanted} and returned one {}: return a tuple of \
                 {wanted} values",
                self.name,
                type_name(value)
            )));
        }
        if values.len() != wanted as usize {
            return Err(self.wrong_number(wanted, values.len()));
        }
        Ok(())
    }

    /// It may never end, so nobody asks it for more: it is closed. What that raises is the error.
    #[cold]
    fn too_many(&self, wanted: u32, values: &Bound<'_, PyAny>) -> PyErr {
        static GENERATOR: Import = Import::new("collections.abc", "Generator");
        let py = values.py();
        let closed = GENERATOR.get(py).and_then(|kind| {
            if values.is_instance(kind)? {
                values.call_method0(intern!(py, "close"))?;
            }
            Ok(())
        });
        closed.err().unwrap_or_else(|| {
            PyValueError::new_err(format!(
                "{} was called with num_returns={wanted} and gave more values than that: let it stop after \
                 {wanted}, or call it with num_returns='streaming'",
                self.name
            ))
        })
    }

    fn wrong_number(&self, wanted: u32, given: usize) -> PyErr {
        PyValueError::new_err(format!(
            "{} was called with num_returns={wanted} and returned {given} values",
            self.name
        ))
    }

    /// `references`: how many of `value` are this call's own. `kept`: what must live until the reply.
    fn returned(
        &self,
        value: &Bound<'_, PyAny>,
        references: isize,
        index: u32,
        kept: &mut Kept,
        name: impl Fn() -> String,
    ) -> Result<Returned, Fault> {
        thread_local! {
            static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
        }
        let py = value.py();
        if let Some(allocation) = values::take_in_place(value, references) {
            let object: ObjectId = self.header.task.object(index);
            let value = self.session.client.seal_result(object, self.caller, allocation, &[]);
            return Ok(Returned { value, contains: Vec::new() });
        }
        let mut contains = Contained::default();
        // Taken out while in use: pickling may run anything, this included.
        let mut bytes = SCRATCH.take();
        bytes.clear();
        let encoded = values::encode(value, INLINE_BYTES_MAX, &mut bytes, &mut contains)
            .map_err(|error| values::unpicklable(value, &name(), error));
        let encoded = match encoded {
            Ok(Encoded::Inline) if contains.len() > INLINE_REFS_MAX => {
                Ok(Encoded::Large(values::Large::of_bytes(std::mem::take(&mut bytes))))
            }
            other => other,
        };
        let value = match encoded {
            Ok(Encoded::Inline) => Value::Inline(bytes.as_slice().into()),
            Ok(Encoded::Large(large)) => {
                let placed = fetch::try_place(py, &self.session, &large)?;
                let allocation = placed.map_err(|error| no_room(py, &error))?;
                let object: ObjectId = self.header.task.object(index);
                self.session.client.seal_result(object, self.caller, allocation, contains.ids())
            }
            Err(error) => return Err(error.into()),
        };
        SCRATCH.set(bytes);
        let (contains, refs) = contains.into_parts();
        kept.append(refs);
        Ok(Returned { value, contains })
    }

    /// Replies with the error.
    pub(crate) fn fail(&self, py: Python<'_>, fault: Fault) -> After {
        let (error, mut flags) = match fault {
            Fault::Argument(failure) => {
                let no_room = failure.kind == FailureKind::OutOfDiskHere;
                self.end_failed(py, failure, Vec::new(), if no_room { REPLY_NO_ROOM } else { 0 });
                return After::GoOn;
            }
            Fault::Delayed => {
                self.end(py, ReplyKind::Finished, 0, REPLY_NOT_BEGUN, &[]);
                return After::GoOn;
            }
            Fault::NoRoom(error) => (error, REPLY_NO_ROOM),
            Fault::Raised(error) => (error, 0),
        };
        if self.is_cancelled() {
            if ends_by_cancelling(py, &error) {
                self.end_cancelled(py);
                return After::GoOn;
            }
            // Such as a `with` or `finally` that the interrupt found half done.
            if contexts(py, &error).any(|context| ends_by_cancelling(py, &context)) {
                let also = format!("; as it ended, it raised {error}");
                self.end_failed(py, self.cancelled(py, &also), Vec::new(), REPLY_STOPPED);
                return After::GoOn;
            }
        }
        let is_actor = current::actor().is_some();
        if is_actor && is_actor_exit(py, &error) {
            return self.end_with_the_actor(py, LEFT);
        }
        if error.is_instance_of::<pyo3::exceptions::PySystemExit>(py) {
            let status = exit_status(py, &error);
            print_exit_text(py, &error);
            if !is_actor {
                self.end_by_exit(py, &error);
            } else if status == 0 {
                leaving::leave_soon();
                return self.end_with_the_actor(py, "left by sys.exit()");
            }
            return After::Exit(status);
        }
        if self.is_retryable(py, &error) {
            flags |= REPLY_RETRYABLE;
        }
        let title = self.title(py);
        let (failure, contains) = errors::encode_with_refs(&error, py, &title, INLINE_REFS_MAX);
        let (contains, kept) = contains.into_parts();
        self.end_failed(py, failure, contains, flags);
        drop(kept);
        After::GoOn
    }

    pub(crate) fn end_cancelled(&self, py: Python<'_>) {
        self.end_failed(py, self.cancelled(py, ""), Vec::new(), REPLY_STOPPED);
    }

    /// For a call that does not begin, or is not seen to its end, since the actor has left.
    pub(crate) fn refuse(&self, py: Python<'_>) {
        self.end_with_the_actor(py, LEFT);
    }

    fn cancelled(&self, py: Python<'_>, also: &str) -> Failure {
        let text = format!("{} of {} was cancelled{also}", self.header.task, self.title(py));
        Failure::new(FailureKind::Cancelled, text)
    }

    fn end_with_the_actor(&self, py: Python<'_>, how: &str) -> After {
        self.retire();
        self.end_failed(py, actor_left(how), Vec::new(), 0);
        After::ActorExit
    }

    /// Its code wants the process to end, and would want it again: the task has failed.
    fn end_by_exit(&self, py: Python<'_>, error: &PyErr) {
        let code = error.value(py).getattr(intern!(py, "code")).ok();
        let code = code.filter(|code| !code.is_none());
        let code = code.and_then(|code| code.repr().ok()).map(|text| text.to_string());
        let text = format!(
            "{} called sys.exit({}), which ended its worker (pid {}); the task does not run again",
            self.title(py),
            code.unwrap_or_default(),
            std::process::id()
        );
        self.retire();
        self.end_failed(py, Failure::new(FailureKind::WorkerCrashed, text), Vec::new(), 0);
    }

    fn is_retryable(&self, py: Python<'_>, error: &PyErr) -> bool {
        static IS_RETRYABLE: Import = Import::new("hoplo._errors", "is_retryable");
        static LOADS: Import = Import::new("pickle", "loads");
        if self.header.flags & CALL_RETRY_ANY != 0 {
            return error.is_instance_of::<pyo3::exceptions::PyException>(py);
        }
        if self.header.flags & CALL_RETRY_LISTED == 0 {
            return false;
        }
        let asked = || -> PyResult<bool> {
            let view = self.view();
            let Some(types) = args::decode_extras(py, view.args)?.retry_types else {
                return Ok(false);
            };
            let types = LOADS.get(py)?.call1((PyBytes::new(py, types),))?;
            IS_RETRYABLE.get(py)?.call1((error.value(py), types))?.extract()
        };
        // Types that cannot be read here cannot have been raised here.
        asked().unwrap_or(false)
    }

    fn end_failed(&self, py: Python<'_>, failure: Failure, contains: Vec<ObjectId>, flags: u8) {
        let returned = [Returned { value: Value::Failed(failure), contains }];
        let (kind, index) = if self.is_streaming() {
            (ReplyKind::StreamEnd, self.items.load(Ordering::Relaxed))
        } else {
            (ReplyKind::Finished, 0)
        };
        self.end(py, kind, index, flags, &returned);
    }

    fn end(&self, py: Python<'_>, kind: ReplyKind, index: u32, flags: u8, returned: &[Returned]) {
        if self.ended.swap(true, Ordering::AcqRel) {
            return;
        }
        if self.logged.load(Ordering::Relaxed) {
            self.session.client.answers(self.header.task, returned);
            py.detach(|| self.session.client.wait_until_logged());
        }
        let retiring = if self.retiring.load(Ordering::Relaxed) { REPLY_RETIRING } else { 0 };
        self.reply(py, kind, index, flags | retiring, returned);
    }

    fn reply(&self, py: Python<'_>, kind: ReplyKind, index: u32, flags: u8, returned: &[Returned]) {
        let started_ns = self.started_ns.load(Ordering::Relaxed);
        let ran = if started_ns == 0 { 0 } else { now_ns() - started_ns };
        let header = ReplyHeader {
            kind,
            flags,
            attempt: self.header.attempt,
            seq: self.tag,
            started_ns,
            ran_ns: ReplyHeader::ran_of(ran),
            index,
        };
        let client = &self.session.client;
        // Many or large replies fill the caller's ring, and then this waits for the caller.
        if returned.len() > SHORT_REPLY_MAX || kind == ReplyKind::Item {
            py.detach(|| client.reply(self.caller, self.header.task, header, returned));
        } else {
            client.reply(self.caller, self.header.task, header, returned);
        }
    }
}

/// What an actor did that is gone by its own will.
const LEFT: &str = "left by exit_actor()";

/// Replies with more values may not fit the ring at once.
const SHORT_REPLY_MAX: usize = 2;

fn no_room(py: Python<'_>, error: &StoreError) -> Fault {
    let raised = errors::store_error(py, error);
    match error {
        StoreError::Denied(failure) if failure.kind == FailureKind::OutOfDiskHere => {
            Fault::NoRoom(raised)
        }
        StoreError::Denied(_) | StoreError::NodeDied(_) | StoreError::GivenUp => {
            Fault::Raised(raised)
        }
    }
}

fn type_name(value: &Bound<'_, PyAny>) -> String {
    value.get_type().name().map_or_else(|_| "object".to_string(), |name| name.to_string())
}

/// CLOCK_MONOTONIC.
fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
