"""Things people build on tasks and actors, built once: pools, queues, iteration, checks."""

from __future__ import annotations

from .actor_pool import ActorPool
from .inspect import inspect_serializability
from .iter import as_completed, map_unordered
from .placement_group import (
    get_current_placement_group,
    get_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from .progress import Progress
from .queue import Empty, Full, Queue
from .summary import JobSummary, job_summary

__all__ = [
    "ActorPool",
    "Empty",
    "Full",
    "JobSummary",
    "Progress",
    "Queue",
    "as_completed",
    "get_current_placement_group",
    "get_placement_group",
    "inspect_serializability",
    "job_summary",
    "map_unordered",
    "placement_group",
    "placement_group_table",
    "remove_placement_group",
]
