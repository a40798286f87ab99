"""Whether a call's arguments fit, before it is sent to another process."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

NEVER_CERTAIN = (1, 0)
"""An arity that no number of arguments is in: `check` must decide."""


def arity(target: Callable[..., Any], *, bound: bool = False) -> tuple[int, int]:
    """(least, most) positional arguments with which a call without keywords certainly fits.

    Most is -1 for any number. `bound` leaves out the first parameter, `self`.
    """
    parameters = _parameters(target, bound)
    if parameters is None:
        return (0, -1)  # made in C, without a signature: let the call itself find out
    least = most = 0
    for parameter in parameters:
        required = parameter.default is parameter.empty
        if parameter.kind is parameter.VAR_POSITIONAL:
            most = -1
        elif parameter.kind is parameter.KEYWORD_ONLY:
            if required:
                return NEVER_CERTAIN
        elif parameter.kind is not parameter.VAR_KEYWORD:
            least += required
            most += 1
    return (least, most)


def check(
    target: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    name: str,
    bound: bool = False,
) -> None:
    """Raises TypeError, as a plain call would, when the arguments do not fit `target`."""
    parameters = _parameters(target, bound)
    if parameters is None:
        return
    check_parameters(parameters, args, kwargs, name)


def check_parameters(
    parameters: tuple[inspect.Parameter, ...],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    name: str,
) -> None:
    try:
        inspect.Signature(parameters).bind(*args, **kwargs)
    except TypeError as error:
        shown = inspect.Signature(parameters)
        raise TypeError(f"{name}{shown} cannot be called like this: {error}") from None


@lru_cache(maxsize=4096)
def _parameters(target: Callable[..., Any], bound: bool) -> tuple[inspect.Parameter, ...] | None:
    try:
        parameters = tuple(inspect.signature(target).parameters.values())
    except (TypeError, ValueError):
        return None
    if bound and parameters and parameters[0].kind is not inspect.Parameter.VAR_POSITIONAL:
        parameters = parameters[1:]
    # Annotations and defaults can be anything; only their presence matters from here on.
    return tuple(
        p.replace(annotation=p.empty, default=p.empty if p.default is p.empty else _OPTIONAL)
        for p in parameters
    )


class _Optional:
    def __repr__(self) -> str:
        return "..."


_OPTIONAL = _Optional()
