"""Marks of how firm an API is: decorators that change nothing."""

from __future__ import annotations

from typing import Any

__all__ = ["Deprecated", "DeveloperAPI", "PublicAPI", "RayDeprecationWarning"]


class RayDeprecationWarning(DeprecationWarning):
    """Never given by hoplo."""


def PublicAPI(*targets: Any, **_: Any) -> Any:  # noqa: N802
    """Gives back what it decorates.

    >>> PublicAPI(stability="beta")(len)([1])
    1
    """
    return targets[0] if targets and not _ else lambda target: target


DeveloperAPI = PublicAPI
Deprecated = PublicAPI
