"""What listings are made of."""

from __future__ import annotations

from hoplo.util.state.rows import (
    ActorState,
    JobState,
    NodeState,
    ObjectState,
    PlacementGroupState,
    StateSchema,
    TaskState,
    WorkerState,
)

from ..._absent import absent

__all__ = [
    "DEFAULT_LIMIT",
    "DEFAULT_LOG_LIMIT",
    "DEFAULT_RPC_TIMEOUT",
    "ActorState",
    "JobState",
    "NodeState",
    "ObjectState",
    "PlacementGroupState",
    "StateSchema",
    "TaskState",
    "WorkerState",
]

DEFAULT_LIMIT = 100
"""Rows that a listing has at most, unless it is told another number."""
DEFAULT_LOG_LIMIT = 1000
"""Lines of a log."""
DEFAULT_RPC_TIMEOUT = 30
"""Seconds."""

__getattr__ = absent(__name__, __all__)
__path__: list[str] = []
