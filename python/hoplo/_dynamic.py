"""`num_returns="dynamic"`: one ref, whose value is a list of refs that the generator task filled.

The task runs to its end before anybody can read a value. A stream gives each value when it is made.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from . import _core

__all__ = ["DynamicRefs", "collecting"]


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


def _failed(error: Exception, name: str) -> _core.ObjectRef[Any]:
    """A ref whose value is an error."""
    from .remote_function import make

    ref: _core.ObjectRef[Any] = make(_raise, {"num_cpus": 0, "name": name}).remote(error)
    return ref


def _raise(error: Exception) -> NoReturn:
    raise error
