"""Ids as types. They are the hexadecimal text that hoplo uses everywhere, with Ray's methods."""

from __future__ import annotations

import builtins
from typing import Self

from hoplo import _core
from hoplo._ids import BaseID

from ._absent import refusing

__all__ = [
    "ActorClassID",
    "ActorID",
    "BaseID",
    "ClusterID",
    "FunctionID",
    "JobID",
    "NodeID",
    "ObjectID",
    "TaskID",
    "UniqueID",
    "WorkerID",
]


class UniqueID(BaseID):
    """An id of no kind of its own."""

    __slots__ = ()


_MADE = "ids are made where tasks and actors are; from_random() makes one of nothing"


class JobID(BaseID):
    """Of a driver and all that it started.

    >>> JobID.from_int(7).int()
    7
    """

    __slots__ = ()
    _size = 8

    @classmethod
    def from_int(cls, value: int) -> Self:
        """The id whose bytes are this number."""
        return cls(value.to_bytes(cls._size))

    def int(self) -> builtins.int:
        """The bytes as a number."""
        return builtins.int(self.hex(), 16)


class ActorID(BaseID):
    """Of an actor: `handle._actor_id`."""

    __slots__ = ()

    @property
    def job_id(self) -> JobID:
        """What `TaskID.job_id` gives."""
        return job_of(self)

    of = classmethod(refusing("ActorID.of", _MADE))


class TaskID(BaseID):
    """Of a task or a call of a method: `ref.task_id()`."""

    __slots__ = ()

    def job_id(self) -> JobID:
        """The job of this process; of a nil id a nil one.

        No id names its job, and what a program gets an id of is of its own job, but for detached
        actors and what it lists: `util.state.get_task(id).job_id` knows it of all.
        """
        return job_of(self)

    actor_id = refusing("TaskID.actor_id", "util.state.get_task(id).actor_id knows it")
    for_actor_creation_task = classmethod(refusing("TaskID.for_actor_creation_task", _MADE))
    for_actor_task = classmethod(refusing("TaskID.for_actor_task", _MADE))
    for_driver_task = classmethod(refusing("TaskID.for_driver_task", _MADE))
    for_fake_task = classmethod(refusing("TaskID.for_fake_task", _MADE))
    for_normal_task = classmethod(refusing("TaskID.for_normal_task", _MADE))


def job_of(id: BaseID) -> JobID:
    """The job of this process, as that of the id; of a nil id a nil one."""
    return JobID.nil() if id.is_nil() else JobID(_core.runtime_context()["job_id"])


class NodeID(UniqueID):
    """Of a node, as `nodes()` shows it."""

    __slots__ = ()
    _size = 3


class WorkerID(UniqueID):
    """Of a process."""

    __slots__ = ()
    _size = 8


class ObjectID(BaseID):
    """Of an object: `ref.binary()`. It is no ref, and keeps nothing alive."""

    __slots__ = ()
    _size = 20


class FunctionID(UniqueID):
    """Of nothing in hoplo; for annotations."""

    __slots__ = ()


class ActorClassID(UniqueID):
    """Of nothing in hoplo; for annotations."""

    __slots__ = ()


class ClusterID(UniqueID):
    """Of nothing in hoplo; for annotations."""

    __slots__ = ()
