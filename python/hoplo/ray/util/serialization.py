"""How values of a class are sent, said by functions of the program's."""

from __future__ import annotations

import copyreg
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["deregister_serializer", "register_serializer"]

_T = TypeVar("_T")

_deserializers: dict[type, Callable[[Any], Any]] = {}


def register_serializer(
    cls: type[_T], *, serializer: Callable[[_T], Any], deserializer: Callable[[Any], _T]
) -> None:
    """From now on values of exactly `cls` that leave this process are made by these functions.

    `serializer(value)` gives what is sent in place of the value, and `deserializer` makes the value
    of it again; it travels along. It holds in this process: call it in a task or an actor for
    values that those send. Raises TypeError for what is no class or no function.

    >>> import threading
    >>> class Guarded:
    ...     def __init__(self, value):
    ...         self.value, self.lock = value, threading.Lock()
    >>> register_serializer(Guarded, serializer=lambda g: g.value, deserializer=Guarded)
    >>> hoplo.get(hoplo.put(Guarded(3))).value
    3
    >>> deregister_serializer(Guarded)
    """
    if not isinstance(cls, type):
        raise TypeError(f"register_serializer takes a class, not {cls!r}")
    for name, function in (("serializer", serializer), ("deserializer", deserializer)):
        if not callable(function):
            raise TypeError(f"{name} must be a function, not {function!r}")
    _deserializers[cls] = deserializer
    copyreg.pickle(cls, lambda value: (_made, (deserializer, serializer(value))))


def deregister_serializer(cls: type) -> None:
    """Takes it back. Does nothing for a class that was not registered.

    >>> deregister_serializer(int)
    """
    if _deserializers.pop(cls, None) is not None:
        copyreg.dispatch_table.pop(cls, None)


def _made(deserializer: Callable[[Any], _T], sent: Any) -> _T:
    return deserializer(sent)
