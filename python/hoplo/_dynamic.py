"""`num_returns="dynamic"`: one ref, whose value is a list of refs that the generator task filled.

The task runs to its end before anybody can read a value. A stream gives each value when it is made.

    a function     is exported as one that runs the generator to its end (`collecting`)
    a method       whose class says so is bound as such a function, where the actor runs it
    a call of one  `.options(num_returns="dynamic")` has the actor run `collect` (`DynamicMethod`)
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, NoReturn, cast

from . import _core

__all__ = ["DynamicMethod", "DynamicRefs", "bound", "collecting", "mark", "refuse_others"]

_MARK = "__hoplo_dynamic__"


class DynamicRefs:
    """The refs of what a generator yielded, in order; may be read many times, and sent on.

    If it raised, the last ref holds the error: `get` raises it.

    >>> @hoplo.remote(num_returns="dynamic")
    ... def letters(word):
    ...     yield from word
    >>> refs = hoplo.get(letters.remote("abc"))
    >>> len(refs), [hoplo.get(ref) for ref in refs]
    (3, ['a', 'b', 'c'])
    """

    def __init__(self, refs: list[_core.ObjectRef[Any]]) -> None:
        self._refs = refs

    def __iter__(self) -> Iterator[_core.ObjectRef[Any]]:
        return iter(self._refs)

    def __len__(self) -> int:
        return len(self._refs)

    def __repr__(self) -> str:
        return f"DynamicRefs({self._refs!r})"


def collecting(function: Callable[..., Any]) -> Callable[..., DynamicRefs]:
    """A function that runs the generator function to its end, and gives the refs."""

    @functools.wraps(function)
    def collected(*args: Any, **kwargs: Any) -> DynamicRefs:
        refs: list[_core.ObjectRef[Any]] = []
        try:
            for value in function(*args, **kwargs):
                refs.append(_core.put(value))
        except Exception as error:
            if not refs:
                raise  # the call itself failed: retries are for that
            refs.append(_failed(error, function.__name__))
        return DynamicRefs(refs)

    return collected


def collecting_async(
    function: Callable[..., AsyncIterator[Any]],
) -> Callable[..., Any]:
    """The same of an async generator function, for an async actor."""

    @functools.wraps(function)
    async def collected(*args: Any, **kwargs: Any) -> DynamicRefs:
        refs: list[_core.ObjectRef[Any]] = []
        try:
            async for value in function(*args, **kwargs):
                refs.append(_core.put(value))
        except Exception as error:
            if not refs:
                raise
            refs.append(_failed(error, function.__name__))
        return DynamicRefs(refs)

    return collected


def mark(function: Callable[..., Any]) -> None:
    """Remembers that the calls of this method are dynamic, as its class says."""
    setattr(function, _MARK, True)


def bound(function: Any, method: Callable[..., Any]) -> Callable[..., Any]:
    """What an actor calls as `method`, which is `function` of its class, bound."""
    return _collects(method) if getattr(function, _MARK, False) else method


def collect(instance: object, name: str, /, *args: Any, **kwargs: Any) -> Any:
    """Runs that generator method of an actor to its end, and gives the refs."""
    return _collects(getattr(instance, name))(*args, **kwargs)


def _collects(method: Callable[..., Any]) -> Callable[..., Any]:
    if inspect.isasyncgenfunction(method):
        return collecting_async(method)
    return collecting(method)


def refuse_others(name: str, function: Callable[..., Any]) -> None:
    """Raises ValueError for what yields nothing."""
    if not (inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)):
        raise ValueError(
            f"num_returns='dynamic' is for functions that yield, and {name} does not: leave it out"
        )


class DynamicMethod:
    """A method of an actor whose calls were asked to be dynamic: `actor.method.options(...)`.

    >>> counter = Counter.remote()
    >>> counter.add.options(num_returns="dynamic")
    ActorMethod(Counter.add, num_returns='dynamic')
    """

    def __init__(self, method: _core.ActorMethod, given: Mapping[str, Any]) -> None:
        # A method is pickled as an attribute of its handle.
        handle, name = cast("tuple[_core.ActorHandle, str]", method.__reduce__()[1])
        self.__name__ = name
        self._method = method
        self._given = dict(given)
        # The name of a call is the class's and the method's, unless it is given one.
        self._title = f"{handle._class_name}.{self.__name__}"
        others = {"name": self._title, **self._given, "num_returns": None}
        self._call = handle.__hoplo_call__.options(**others)

    def remote(self, *args: Any, **kwargs: Any) -> _core.ObjectRef[DynamicRefs]:
        """Calls the method in the actor, and returns at once: a ref of the refs of its values."""
        ref: _core.ObjectRef[DynamicRefs] = self._call.remote(
            collect, self.__name__, *args, **kwargs
        )
        return ref

    def options(self, **options: Any) -> Any:
        """The same method with some options changed: those of `hoplo.method`."""
        return self._method.options(**{**self._given, **options})

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._method(*args, **kwargs)
        raise AssertionError("a method's handle is called by remote()")

    def __repr__(self) -> str:
        return f"ActorMethod({self._title}, num_returns='dynamic')"


def _failed(error: Exception, name: str) -> _core.ObjectRef[Any]:
    """A ref whose value is an error."""
    from .remote_function import make

    ref: _core.ObjectRef[Any] = make(_raise, {"num_cpus": 0, "name": name}).remote(error)
    return ref


def _raise(error: Exception) -> NoReturn:
    raise error
