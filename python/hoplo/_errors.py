"""Errors on their way between processes: the Rust side calls these and knows no exception type.

worker:  exception --encode_error--> bytes        travels as the result's value
getter:  bytes --make_task_error--> TaskError     raised by `get`
system:  ("ActorDiedError", text) --system_error--> ActorDiedError
"""

from __future__ import annotations

import dis
import pickle
import sys
import traceback
from typing import Any, TypeVar

from . import _core, exceptions
from .exceptions import HoploError, RemoteErrorStandIn, TaskCancelledError, TaskError

_BYTES_MAX = _core.FAILURE_PAYLOAD_BYTES_MAX
_TRACEBACK_BYTES_MAX = 24 * 1024
_TEXT_BYTES_MAX = 8 * 1024
_NAME_BYTES_MAX = 1024
_SUMMARY_BYTES_MAX = 1000
_PART_BYTES_MAX = 4 * 1024
"""Of each part of an exception that is too large to travel whole."""
_RAISED_TYPES_MAX = 1024

_Made = TypeVar("_Made", bound=BaseException)

_raised_types: dict[type[BaseException], type[TaskError]] = {}


def encode_error(
    error: BaseException, function_name: str, pid: int, with_cause: bool = True
) -> bytes:
    """The bytes from which `make_task_error` makes the error that `get` raises. Never raises.

    At most `_BYTES_MAX`: they travel in one message, whatever the exception holds.
    """
    cause = error.cause if isinstance(error, TaskError) and "cause" in vars(error) else error
    told = (
        _cut(function_name, _NAME_BYTES_MAX),
        pid,
        _cut(_type_name(type(cause)), _NAME_BYTES_MAX),
        _text(cause),
        _traceback_text(error),
        _hint(cause),
        _place(),
    )
    summary = _summary(told[2], told[3])
    room = _BYTES_MAX - len(pickle.dumps((*told, None), protocol=5)) - len(summary) - 64
    pickled = _pickled(cause, room) if with_cause else None
    return pickle.dumps((*told, pickled), protocol=5) + summary


def _summary(type_name: str, text: str) -> bytes:
    """What the Rust side reads behind the pickle, for listings (`Failure::summary`)."""
    line = f"{type_name.removeprefix('builtins.')}: {text}" if text else type_name
    told = _cut(line, _SUMMARY_BYTES_MAX).encode("utf-8", "replace")
    return told + len(told).to_bytes(4, "little") + b"told"


def make_task_error(payload: bytes) -> TaskError:
    """The error to raise for what `encode_error` encoded in another process. Never raises."""
    function_name, pid, type_name, text, traceback_text, hint, place, pickled = pickle.loads(
        payload
    )
    cause = _unpickled(pickled)
    if cause is None:
        cause = RemoteErrorStandIn(type_name, text)
    error = _instance(cause)
    fields = error.__dict__
    fields["cause"] = cause
    fields["function_name"] = function_name
    fields["pid"] = pid
    fields["traceback_text"] = traceback_text
    fields["node_id"], fields["actor_id"] = place
    fields["_payload"] = payload
    fields["_text"] = (
        f"{function_name} raised {type_name.removeprefix('builtins.')} "
        f"in worker process {pid}{_elsewhere(place[0])}:\n\n{traceback_text.rstrip()}{hint}"
    )
    error.__cause__ = cause
    return error


def _place() -> tuple[str | None, str | None]:
    """The node and the actor in which this code runs."""
    try:
        here = _core.runtime_context()
    except Exception:
        return None, None  # no session: it is on its way to nobody
    return here["node_id"], here["actor_id"]


def _elsewhere(node_id: str | None) -> str:
    """On which node that was, if it is not the one where this code runs."""
    is_here = node_id is None or node_id == _place()[0]
    return "" if is_here else f" on node {node_id}"


def _hint(error: BaseException) -> str:
    """What to do about an error of another library that has its reason in hoplo.

    What numpy raises, and what is built on it, when it may not write is a bare ValueError: it holds
    no array, and which array a line meant nobody can tell afterwards. So this goes by all that is
    known: that no line of Python raised it, and how numpy's texts for it end. An array that the
    program itself made read-only is told of as well.
    """
    bare = type(error) is ValueError and "numpy" in sys.modules
    if not (bare and _text(error).endswith(" is read-only") and _raised_in_c(error)):
        return ""
    return (
        "\n\nAn array that comes from a ref is read-only, because other processes read the "
        "same memory: write to a copy of it, array.copy()."
    )


def _raised_in_c(error: BaseException) -> bool:
    """Not by a `raise` of Python code, and in this process."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    if place is None:
        return False
    code, at = place.tb_frame.f_code.co_code, place.tb_lasti
    return code[at : at + 1] != _RAISE


_RAISE = bytes([dis.opmap["RAISE_VARARGS"]])


def system_error(
    code: str, message: str, details: dict[str, str] | None = None, cause: object = None
) -> BaseException:
    """The exception named `code`, about the ids in `details` (`task_id`, `actor_id`, ...).

    `cause` may be an exception, or bytes of `encode_error`: why an actor's constructor failed.
    """
    error_type: type[HoploError] = getattr(exceptions, code, HoploError)
    error = error_type(message)
    for name, value in (details or {}).items():
        setattr(error, name, value)
    if isinstance(cause, bytes):
        cause = make_task_error(cause)
    if isinstance(cause, BaseException):
        error.__cause__ = cause
    return error


def is_retryable(error: BaseException, retry_exceptions: bool | tuple[type, ...]) -> bool:
    """Whether `retry_exceptions` asks to run the task again after it raised `error`."""
    if isinstance(retry_exceptions, bool):
        return retry_exceptions and isinstance(error, Exception)
    return isinstance(error, retry_exceptions)


def _type_name(error_type: type) -> str:
    return f"{error_type.__module__}.{error_type.__qualname__}"


def _text(error: BaseException) -> str:
    try:
        return _cut(str(error), _TEXT_BYTES_MAX)
    except Exception as failure:
        return f"<str() of the exception raised {type(failure).__name__}>"


def _traceback_text(error: BaseException) -> str:
    """The user's part of the traceback: without the frames that called the user's code."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_globals.get("__name__") in _OWN_MODULES:
        frames = frames.tb_next
    try:
        lines = traceback.TracebackException(type(error), error, frames, compact=True)
        if isinstance(error, TaskError):
            lines.__cause__ = None  # its text already holds that traceback
        text = "".join(lines.format())
    except Exception:
        text = f"{_type_name(type(error))}: {_text(error)}\n"
    return _cut(text, _TRACEBACK_BYTES_MAX, "\n")


def _cut(text: str, bytes_max: int, around: str = "") -> str:
    """The text, or its two ends if it takes more bytes than that as UTF-8."""
    data = text.encode(errors="replace")
    if len(data) <= bytes_max:
        return text
    half = max(bytes_max - 64, 0) // 2
    head, tail = data[:half].decode(errors="ignore"), data[-half:].decode(errors="ignore")
    count = len(text) - len(head) - len(tail)
    return f"{head}{around} ... {count} characters left out ... {around}{tail}"


_OWN_MODULES = frozenset({"hoplo._worker", "hoplo._worker_process", "hoplo._zygote"})


def _pickled(cause: BaseException, bytes_max: int) -> bytes | None:
    """Pickled only if that can be read back; by trying, since many exceptions cannot."""
    from ._serialization import dumps_in_band

    try:
        pickled = dumps_in_band(cause)
        if len(pickled) > bytes_max:
            pickled = dumps_in_band(_shortened(cause, len(pickled)))
        if len(pickled) <= bytes_max and type(pickle.loads(pickled)) is type(cause):
            return pickled
    except Exception:
        pass
    return None


def _shortened(cause: BaseException, bytes_taken: int) -> BaseException:
    """The same without its large parts, and with a note that says so."""
    error = _made_of(type(cause), type(cause), tuple(_short(value) for value in _all_args(cause)))
    error.args = tuple(_short(value) for value in cause.args)
    error.__dict__.update({name: _short(value) for name, value in vars(cause).items()})
    error.add_note(
        f"hoplo cut large parts of this exception: it takes {bytes_taken} bytes, and about "
        f"{_BYTES_MAX} travel with an error. Put large data into the store, and give the "
        f"exception its ref."
    )
    return error


def _short(value: object) -> object:
    from ._serialization import dumps_in_band

    if isinstance(value, str):
        return _cut(value, _PART_BYTES_MAX)
    taken = len(dumps_in_band(value))
    if taken <= _PART_BYTES_MAX:
        return value
    return f"<{_type_name(type(value))} of {taken} bytes, which was cut>"


def _unpickled(pickled: bytes | None) -> BaseException | None:
    if pickled is None:
        return None
    try:
        cause = pickle.loads(pickled)
    except Exception:
        return None
    return cause if isinstance(cause, BaseException) else None


def _instance(cause: BaseException) -> TaskError:
    """An instance of `TaskError` and of the cause's type, which carries the cause's state."""
    raised_type = _raised_type(type(cause))
    if raised_type is TaskError:
        return TaskError(*cause.args)
    try:
        kind = type(cause) if issubclass(raised_type, type(cause)) else raised_type
        error = _made_of(raised_type, kind, _all_args(cause))
        error.args = cause.args
        error.__dict__.update(cause.__dict__)
    except Exception:
        return TaskError(*cause.args)
    return error


def _all_args(error: BaseException) -> tuple[Any, ...]:
    """`args` of an OSError lack its file names."""
    args = OSError.__reduce__(error)[1] if isinstance(error, OSError) else error.args
    return tuple(args)


def _made_of(made: type[_Made], kind: type[BaseException], args: tuple[Any, ...]) -> _Made:
    """A `made`, which is a `kind`, without a call of the user's `__init__`."""
    error: _Made = made.__new__(made, *args)
    # The nearest base made in C keeps its state (errno, value, ...) out of `__dict__`.
    native: Any = next(t for t in kind.__mro__ if not t.__flags__ & _HEAP_TYPE)
    native.__init__(error, *args)
    return error


_HEAP_TYPE = 1 << 9
# Raised for real, these would end the program, or a generator, that asked for the result.
_NEVER_RAISED = (
    StopIteration,
    StopAsyncIteration,
    GeneratorExit,
    SystemExit,
    KeyboardInterrupt,
    RemoteErrorStandIn,
)


def _raised_type(cause_type: type[BaseException]) -> type[TaskError]:
    known = _raised_types.get(cause_type)
    if known is not None:
        return known
    made: type[TaskError] = TaskError
    if issubclass(cause_type, KeyboardInterrupt):
        # Somebody interrupted it, though nobody asked for that by `cancel`.
        bases: tuple[type, ...] = (TaskError, TaskCancelledError)
    elif issubclass(cause_type, _NEVER_RAISED):
        bases = ()
    else:
        bases = (TaskError, cause_type)
    if bases:
        name = f"TaskError({cause_type.__name__})"
        try:
            made = type(
                name,
                bases,
                {"__module__": "hoplo.exceptions", "__qualname__": name, "__doc__": None},
            )
        except Exception:
            made = TaskError  # a metaclass or `__init_subclass__` refuses
    if len(_raised_types) >= _RAISED_TYPES_MAX:
        _raised_types.clear()
    _raised_types[cause_type] = made
    return made
