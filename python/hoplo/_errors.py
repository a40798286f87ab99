"""Errors on their way between processes: the Rust side calls these and knows no exception type.

worker:  exception --encode_error--> bytes        travels as the result's value
getter:  bytes --make_task_error--> TaskError     raised by `get`
system:  ("ActorDiedError", text) --system_error--> ActorDiedError
"""

from __future__ import annotations

import pickle
import traceback
from typing import Any

from . import exceptions
from .exceptions import HoploError, RemoteErrorStandIn, TaskError

_TRACEBACK_BYTES_MAX = 64 * 1024
_TEXT_BYTES_MAX = 16 * 1024
_RAISED_TYPES_MAX = 1024

_raised_types: dict[type[BaseException], type[TaskError]] = {}


def encode_error(error: BaseException, function_name: str, pid: int) -> bytes:
    """The bytes from which `make_task_error` makes the error that `get` raises. Never raises."""
    cause = error.cause if isinstance(error, TaskError) and "cause" in vars(error) else error
    return pickle.dumps(
        (
            function_name,
            pid,
            _type_name(type(cause)),
            _text(cause),
            _traceback_text(error),
            _pickled(cause),
        ),
        protocol=5,
    )


def make_task_error(payload: bytes) -> TaskError:
    """The error to raise for what `encode_error` encoded in another process. Never raises."""
    function_name, pid, type_name, text, traceback_text, pickled = pickle.loads(payload)
    cause = _unpickled(pickled)
    if cause is None:
        cause = RemoteErrorStandIn(type_name, text)
    error = _instance(cause)
    fields = error.__dict__
    fields["cause"] = cause
    fields["function_name"] = function_name
    fields["pid"] = pid
    fields["traceback_text"] = traceback_text
    fields["_payload"] = payload
    fields["_text"] = (
        f"{function_name} raised {type_name.removeprefix('builtins.')} "
        f"in worker process {pid}:\n\n{traceback_text.rstrip()}{_hint(cause, text)}"
    )
    error.__cause__ = cause
    return error


def _hint(cause: BaseException, text: str) -> str:
    """What to do about an error of another library that has its reason in hoplo."""
    if isinstance(cause, ValueError) and "read-only" in text:
        return (
            "\n\nAn array that comes from a ref is read-only, because other processes read the "
            "same memory: write to a copy of it, array.copy()."
        )
    return ""


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


def _type_name(error_type: type[BaseException]) -> str:
    return f"{error_type.__module__}.{error_type.__qualname__}"


def _text(error: BaseException) -> str:
    try:
        return str(error)[:_TEXT_BYTES_MAX]
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
    if len(text) > _TRACEBACK_BYTES_MAX:
        half = _TRACEBACK_BYTES_MAX // 2
        text = (
            f"{text[:half]}\n  ... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"
        )
    return text


_OWN_MODULES = frozenset({"hoplo._worker", "hoplo._zygote"})


def _pickled(cause: BaseException) -> bytes | None:
    """Pickled only if that can be read back; by trying, since many exceptions cannot."""
    from ._serialization import dumps_in_band

    try:
        pickled = dumps_in_band(cause)
        if type(pickle.loads(pickled)) is type(cause):
            return pickled
    except Exception:
        pass
    return None


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
        # `args` of an OSError lack its file names.
        args = OSError.__reduce__(cause)[1] if isinstance(cause, OSError) else cause.args
        error = raised_type.__new__(raised_type, *args)
        # The nearest base made in C keeps its state (errno, value, ...) out of `__dict__`.
        native: Any = next(t for t in type(cause).__mro__ if not t.__flags__ & _HEAP_TYPE)
        native.__init__(error, *args)
        error.args = cause.args
        error.__dict__.update(cause.__dict__)
    except Exception:
        return TaskError(*cause.args)
    return error


_HEAP_TYPE = 1 << 9
# Raised for real, these would end the program, or a generator, that asked for the result.
_NEVER_RAISED = (StopIteration, StopAsyncIteration, RemoteErrorStandIn)


def _raised_type(cause_type: type[BaseException]) -> type[TaskError]:
    known = _raised_types.get(cause_type)
    if known is not None:
        return known
    made: type[TaskError] = TaskError
    if issubclass(cause_type, Exception) and not issubclass(cause_type, _NEVER_RAISED):
        name = f"TaskError({cause_type.__name__})"
        try:
            made = type(
                name,
                (TaskError, cause_type),
                {"__module__": "hoplo.exceptions", "__qualname__": name, "__doc__": None},
            )
        except Exception:
            made = TaskError  # a metaclass or `__init_subclass__` refuses
    if len(_raised_types) >= _RAISED_TYPES_MAX:
        _raised_types.clear()
    _raised_types[cause_type] = made
    return made
