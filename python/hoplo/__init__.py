"""hoplo: tasks, actors and immutable objects on one dynamic task graph.

>>> import hoplo
>>> @hoplo.remote
... def square(x):
...     return x * x
>>> hoplo.get([square.remote(i) for i in range(4)])
[0, 1, 4, 9]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import exceptions
from ._api import (
    available_resources,
    cancel,
    cluster_resources,
    empty,
    get_actor,
    get_gpu_ids,
    get_runtime_context,
    init,
    is_initialized,
    kill,
    nodes,
    remote,
    shutdown,
    timeline,
    wait,
)
from ._collectives import all_to_all, allreduce, gather, reduce, scatter
from ._core import ActorHandle, ObjectRef, ObjectRefGenerator, __version__, get, put
from .actor import ActorClass, checkpoint, exit_actor, method

if TYPE_CHECKING:
    from . import experimental, runtime_env, util

__all__ = [
    "ActorClass",
    "ActorHandle",
    "ObjectRef",
    "ObjectRefGenerator",
    "__version__",
    "all_to_all",
    "allreduce",
    "available_resources",
    "cancel",
    "checkpoint",
    "cluster_resources",
    "empty",
    "exceptions",
    "exit_actor",
    "experimental",
    "gather",
    "get",
    "get_actor",
    "get_gpu_ids",
    "get_runtime_context",
    "init",
    "is_initialized",
    "kill",
    "method",
    "nodes",
    "put",
    "reduce",
    "remote",
    "runtime_env",
    "scatter",
    "shutdown",
    "timeline",
    "util",
    "wait",
]


def __getattr__(name: str) -> Any:
    """Imports what few programs use only when they do."""
    if name in ("experimental", "util", "runtime_context"):
        from importlib import import_module

        return import_module(f"hoplo.{name}")
    hint = ""
    if not name.startswith("_"):  # the import of a module of ours asks here first
        import difflib

        near = difflib.get_close_matches(name, __all__, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
    raise AttributeError(f"module 'hoplo' has no attribute {name!r}{hint}")
