"""Collective operations of processes that know their ranks, as in Ray's `ray.util.collective`.

Each member of a group is an actor, a task or the driver, and calls the same operations in the same
order. Tensors are arrays of numpy, or tensors of torch on the CPU, and results are written into
them. Where no ranks are needed, `hoplo.reduce` and its kin do the same with refs.

    collective.py       the functions; they check what they are given
    _member.py          the process as a member: what it sends and fetches
    _rendezvous.py      the actor in which members meet: who belongs, who is gone, what goes on
    _meeting.py         one operation: whether all mean the same, and who gets what
    _tensors.py         tensors as arrays of numpy
    group.py            the same as methods of an object, as Ray's groups have them
    types.py            ReduceOp, Backend, options of those methods
"""

from __future__ import annotations

from . import types
from .collective import *  # noqa: F403
from .collective import __all__ as _functions
from .types import Backend, ReduceOp

__all__ = ["Backend", "ReduceOp", "types"]
__all__ += _functions
