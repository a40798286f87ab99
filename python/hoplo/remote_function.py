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
    options = _options.task_options(given, is_generator=_is_generator(function))
    return _core.RemoteFunction(function, options, _signature.arity(_signature.shape_of(function)))


def with_options(function: _core.RemoteFunction, given: Mapping[str, Any]) -> _core.RemoteFunction:
    """The same function with the options `given` in place of those it has."""
    options = _options.task_options(
        {**function._options.given, **given}, is_generator=_is_generator(function._function)
    )
    return function._with(options)


def _is_generator(function: Callable[..., Any]) -> bool:
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
