"""Ids as types. They are the hexadecimal text that hoplo uses everywhere, with Ray's methods."""

from __future__ import annotations

import builtins
from typing import Self

from hoplo._ids import BaseID

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


class ActorID(BaseID):
    """Of an actor: `handle._actor_id`."""

    __slots__ = ()


class TaskID(BaseID):
    """Of a task or a call of a method: `ref.task_id()`."""

    __slots__ = ()


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
