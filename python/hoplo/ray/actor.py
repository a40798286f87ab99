"""Actors, under the names of `ray.actor`."""

from __future__ import annotations

from hoplo.actor import ActorClass, ActorHandle, ActorMethod, ActorProxy, exit_actor, method

from ._absent import absent

__all__ = ["ActorClass", "ActorHandle", "ActorMethod", "ActorProxy", "exit_actor", "method"]


class ActorClassInheritanceException(TypeError):
    """Never raised by hoplo: a class may inherit from an actor class."""


__getattr__ = absent(__name__, __all__)
__path__: list[str] = []
