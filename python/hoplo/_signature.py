"""Whether a call's arguments fit, before it is sent to another process."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

Shape = tuple[tuple[str, int, bool], ...]
"""Parameters as (name, kind, has a default): what matters of a signature, and can be pickled."""

NEVER_CERTAIN = (1, 0)
"""An arity that no number of arguments is in: the shape must decide."""


def arity(shape: Shape | None) -> tuple[int, int]:
    """(least, most) positional arguments with which a call without keywords certainly fits.

    Most is -1 for any number.
    """
    if shape is None:
        return (0, -1)  # made in C, without a signature: let the call itself find out
    least = most = 0
    any_number = False
    for _, kind, has_default in shape:
        if kind == inspect.Parameter.VAR_POSITIONAL:
            any_number = True
        elif kind == inspect.Parameter.KEYWORD_ONLY:
            if not has_default:
                return NEVER_CERTAIN
        elif kind != inspect.Parameter.VAR_KEYWORD:
            least += not has_default
            most += 1
    return (least, -1 if any_number else most)


def shape_of(target: Callable[..., Any], *, bound: bool = False) -> Shape | None:
    """The parameters of `target`, without `self` if `bound`; None when it does not tell."""
    try:
        parameters = list(inspect.signature(target).parameters.values())
    except (TypeError, ValueError):
        return None
    if bound and parameters and parameters[0].kind is not inspect.Parameter.VAR_POSITIONAL:
        del parameters[0]
    return tuple((p.name, int(p.kind), p.default is not p.empty) for p in parameters)


def check(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], name: str
) -> None:
    """Raises TypeError, as a plain call would, when the arguments do not fit `function`."""
    check_shape(shape_of(function), args, kwargs, name)


def check_shape(
    shape: Shape | None, args: tuple[Any, ...], kwargs: Mapping[str, Any], name: str
) -> None:
    """Raises TypeError, as a plain call would, when the arguments do not fit."""
    if shape is None:
        return
    signature = _signature(shape)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{name}{signature} does not take these arguments: {error}") from None


@lru_cache(maxsize=1024)
def _signature(shape: Shape) -> inspect.Signature:
    return inspect.Signature(
        [
            inspect.Parameter(
                name,
                inspect._ParameterKind(kind),
                default=_OPTIONAL if has_default else inspect.Parameter.empty,
            )
            for name, kind, has_default in shape
        ]
    )


class _Optional:
    """Shown in place of a default, which can be anything."""

    def __repr__(self) -> str:
        return "..."


_OPTIONAL = _Optional()
