"""Types of Ray's client of `ray://`, for `isinstance`: nothing is an instance of them."""

from __future__ import annotations

from ..._absent import absent

__all__ = ["ClientActorHandle", "ClientObjectRef"]


class ClientObjectRef:
    """A ref of a program that speaks to a cluster by `ray://`. Here all refs are `ObjectRef`."""


class ClientActorHandle:
    """A handle of such a program. Here all handles are `ActorHandle`."""


__getattr__ = absent(__name__, __all__)
__path__: list[str] = []
