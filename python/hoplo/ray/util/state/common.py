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

__all__ = [
    "ActorState",
    "JobState",
    "NodeState",
    "ObjectState",
    "PlacementGroupState",
    "StateSchema",
    "TaskState",
    "WorkerState",
]
