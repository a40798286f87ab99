"""What refs, handles and functions answer as well, once a program imports Ray's names.

Their classes are made in Rust, and have hoplo's methods. These are added to them.
"""

from __future__ import annotations

import asyncio
import platform
from operator import attrgetter
from typing import Any

from hoplo import _api, _core
from hoplo.actor import ActorClass
from hoplo.exceptions import ActorError, HoploError, TaskError

from ._ids import ActorID, ObjectID, TaskID
from ._nodes import address_of_node
from .dag import bind_class, bind_function, bind_method
from .exceptions import from_bytes, to_bytes

_task_id_of = _core.ObjectRef.task_id
_stream_task_id_of = _core.ObjectRefGenerator.task_id
_actor_id_of: Any = vars(_core.ActorHandle)["_actor_id"]


def install(version: str) -> None:
    """Adds them; `version`: of Ray. Done again, it changes nothing."""
    refs: dict[str, object] = {
        "as_future": _as_future,
        "call_site": lambda ref: "",  # as with Ray, unless it is told to record them
        "from_binary": classmethod(lambda cls, data: ObjectID.from_binary(data)),
        "from_hex": classmethod(lambda cls, text: ObjectID.from_hex(text)),
        "from_random": classmethod(lambda cls: ObjectID.from_random()),
        "is_nil": lambda ref: ref.hex() == "ff" * 20,
        "nil": classmethod(lambda cls: ObjectID.nil()),
        "job_id": lambda ref: ref.task_id().job_id(),
        "task_id": _task_id,
        "size": classmethod(lambda cls: 20),
    }
    for name, value in refs.items():
        setattr(_core.ObjectRef, name, value)
    _set(_core.ObjectRefGenerator, "task_id", _stream_task_id)
    _set(_core.ActorHandle, "_actor_id", property(_actor_id))
    _set(_core.ActorHandle, "_ray_actor_id", property(_actor_id))
    for name in ("terminate", "ready", "call"):
        # Not methods of each actor: every handle that travels would name them.
        _set(_core.ActorHandle, f"__ray_{name}__", property(attrgetter(f"__hoplo_{name}__")))
    _set(HoploError, "from_bytes", staticmethod(from_bytes))
    _set(HoploError, "to_bytes", to_bytes)
    _set(TaskError, "as_instanceof_cause", lambda error: error)
    _set(TaskError, "make_dual_exception_instance", lambda error: error)
    _set(TaskError, "ip", property(_ip))
    _set(TaskError, "traceback_str", property(attrgetter("traceback_text")))
    _set(ActorError, "actor_init_failed", property(_init_failed))
    _set(ActorError, "preempted", False)  # hoplo does not tell such deaths from others
    _set(_api.Context, "python_version", platform.python_version())
    _set(_api.Context, "ray_version", version)
    _set(_core.RemoteFunction, "bind", bind_function)
    _set(_core.ActorMethod, "bind", bind_method)
    _set(ActorClass, "bind", bind_class)


def name_resources() -> None:
    """Nodes that this program starts have the resources by which Ray's programs name the head."""
    _api.own_resources.update({"node:__internal_head__": 1.0, "node:127.0.0.1": 1.0})


def _init_failed(error: ActorError) -> bool:
    """Its constructor raised: what it raised is the cause."""
    return isinstance(error.__cause__, TaskError)


def _ip(error: TaskError) -> str | None:
    """The address of the node where the code raised; None if this cluster has no such node."""
    return address_of_node(error.node_id) if error.node_id and _core.is_initialized() else None


def _set(kind: type, name: str, value: object) -> None:
    setattr(kind, name, value)


def _as_future(ref: _core.ObjectRef[Any]) -> asyncio.Future[Any]:
    """An asyncio future of the value, in the event loop that runs."""
    return asyncio.wrap_future(ref.future())


def _task_id(ref: _core.ObjectRef[Any]) -> TaskID:
    return TaskID(_task_id_of(ref))


def _stream_task_id(refs: _core.ObjectRefGenerator[Any]) -> TaskID:
    return TaskID(_stream_task_id_of(refs))


_task_id.__doc__ = _task_id_of.__doc__
_stream_task_id.__doc__ = _stream_task_id_of.__doc__


def _actor_id(handle: _core.ActorHandle) -> ActorID:
    return ActorID(_actor_id_of.__get__(handle))
