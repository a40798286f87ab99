"""Remote functions: what `@hoplo.remote` makes of a function. Calling them is in Rust."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from . import _core, _options, _signature

__all__ = ["RemoteFunction"]

RemoteFunction = _core.RemoteFunction


def make(function: Callable[..., Any], given: Mapping[str, Any]) -> _core.RemoteFunction:
    """The remote function of `function`, with the options given to the decorator."""
    if inspect.iscoroutinefunction(function):
        raise ValueError(
            f"{function.__qualname__} is an async def function, which cannot be a task: make it a "
            f"method of an actor, or call it by asyncio.run in a plain function"
        )
    if given.get("num_returns") == _DYNAMIC:
        return _dynamic(function, given)
    options = _options.task_options(given, is_generator=_is_generator(function))
    return _core.RemoteFunction(function, options, _signature.arity(_signature.shape_of(function)))


def with_options(function: _core.RemoteFunction, given: Mapping[str, Any]) -> _core.RemoteFunction:
    """The same function with the options `given` in place of those it has."""
    asked = {**function._options.given, **given}
    if _DYNAMIC in (asked.get("num_returns"), function._options.given.get("num_returns")):
        return make(getattr(function._function, _COLLECTS, function._function), asked)
    options = _options.task_options(asked, is_generator=_is_generator(function._function))
    return function._with(options)


_DYNAMIC = "dynamic"
_COLLECTS = "__hoplo_collects__"


def _dynamic(function: Callable[..., Any], given: Mapping[str, Any]) -> _core.RemoteFunction:
    from ._dynamic import collecting

    if not inspect.isgeneratorfunction(function):
        raise ValueError(
            f"num_returns='dynamic' is for functions that yield, and {function.__qualname__} does "
            f"not: leave it out"
        )
    collected = collecting(function)
    setattr(collected, _COLLECTS, function)
    options = _options.task_options({**given, "num_returns": 1})._replace(given=dict(given))
    return _core.RemoteFunction(collected, options, _signature.arity(_signature.shape_of(function)))


def _is_generator(function: Callable[..., Any]) -> bool:
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
