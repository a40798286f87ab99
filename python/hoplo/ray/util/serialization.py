"""How values of a class are sent, said by functions of the program's."""

from __future__ import annotations

import copyreg
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["StandaloneSerializationContext", "deregister_serializer", "register_serializer"]

_T = TypeVar("_T")

_registered: set[type] = set()


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
    _register(cls, lambda value: (_made, (deserializer, serializer(value))))


def deregister_serializer(cls: type) -> None:
    """Takes it back. Does nothing for a class that was not registered.

    >>> deregister_serializer(int)
    """
    if cls in _registered:
        _registered.remove(cls)
        copyreg.dispatch_table.pop(cls, None)


class StandaloneSerializationContext:
    """For libraries that register how their classes are sent with a context that they are given.

    It needs no session. What is registered holds as with `register_serializer`.

    >>> import threading
    >>> lock = threading.Lock()
    >>> context = StandaloneSerializationContext()
    >>> context._register_cloudpickle_reducer(type(lock), lambda _: (threading.Lock, ()))
    >>> hoplo.get(hoplo.put(lock)).locked()
    False
    >>> context._unregister_cloudpickle_reducer(type(lock))
    """

    def _register_cloudpickle_serializer(
        self,
        cls: type[_T],
        custom_serializer: Callable[[_T], Any],
        custom_deserializer: Callable[[Any], _T],
    ) -> None:
        register_serializer(cls, serializer=custom_serializer, deserializer=custom_deserializer)

    def _register_cloudpickle_reducer(self, cls: type[_T], reducer: Callable[[_T], Any]) -> None:
        """`reducer(value)` gives what `value.__reduce__()` would."""
        _register(cls, reducer)

    def _unregister_cloudpickle_reducer(self, cls: type) -> None:
        deregister_serializer(cls)


def _register(cls: type[_T], reducer: Callable[[_T], Any]) -> None:
    copyreg.pickle(cls, reducer)
    _registered.add(cls)


def _made(deserializer: Callable[[Any], _T], sent: Any) -> _T:
    return deserializer(sent)
