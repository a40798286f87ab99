"""Things people build on tasks and actors, built once: pools, queues, iteration, checks."""

from __future__ import annotations

from .actor_pool import ActorPool
from .inspect import inspect_serializability
from .iter import as_completed, map_unordered
from .queue import Empty, Full, Queue

__all__ = [
    "ActorPool",
    "Empty",
    "Full",
    "Queue",
    "as_completed",
    "inspect_serializability",
    "map_unordered",
]
