"""What listings are made of: a class for each kind of thing, whose fields have Ray's names.

Ray's fields that hoplo does not know are not there, rather than empty: see the guide.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

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


class StateSchema(Mapping[str, Any]):
    """A row: `row.name` and `row["name"]` are the same.

    >>> row = JobState(job_id="7", type="DRIVER", status="RUNNING")
    >>> row.status, row["status"], "status" in row
    ('RUNNING', 'RUNNING', True)
    """

    def asdict(self) -> dict[str, Any]:
        return dict(self)

    @classmethod
    def columns(cls) -> list[str]:
        """The names of all fields: what `filters` may name."""
        return [field.name for field in fields(cls)]  # type: ignore[arg-type]

    list_columns = columns
    filterable_columns = columns

    def __getitem__(self, name: str) -> Any:
        if name not in self.columns():
            raise KeyError(name)
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns())

    def __len__(self) -> int:
        return len(self.columns())


@dataclass(frozen=True)
class TaskState(StateSchema):
    """A run of a task or of an actor's method."""

    task_id: str
    attempt_number: int
    name: str
    state: str
    """PENDING_ARGS_AVAIL, PENDING_NODE_ASSIGNMENT, SUBMITTED_TO_WORKER (it is next there), RUNNING,
    FINISHED, FAILED."""
    type: str
    """NORMAL_TASK, ACTOR_TASK or ACTOR_CREATION_TASK."""
    job_id: str | None = None
    actor_id: str | None = None
    parent_task_id: str | None = None
    """None: a driver called."""
    node_id: str | None = None
    worker_id: str | None = None
    worker_pid: int | None = None
    required_resources: Mapping[str, float] | None = None
    start_time_ms: int | None = None
    """Since 1970; None: it has not begun, or nobody knows when."""
    end_time_ms: int | None = None
    error_type: str | None = None
    error_message: str | None = None
    reason: str | None = None
    """Of one that is not finished: what it waits for."""


@dataclass(frozen=True)
class ActorState(StateSchema):
    """An actor."""

    actor_id: str
    class_name: str
    state: str
    """PENDING_CREATION, ALIVE, RESTARTING or DEAD."""
    job_id: str
    name: str = ""
    node_id: str | None = None
    pid: int | None = None
    worker_id: str | None = None
    ray_namespace: str = ""
    is_detached: bool = False
    num_restarts: int = 0
    death_cause: str | None = None
    reason: str | None = None
    """What it waits for, or why it restarts."""


@dataclass(frozen=True)
class ObjectState(StateSchema):
    """An object that a daemon knows: those that only their owner ever saw are in no listing."""

    object_id: str
    object_size: int | None = None
    state: str = ""
    """What the daemon of its owner's node knows of it, such as `stored` or `pending`."""
    node_id: str | None = None
    pid: int | None = None
    """Of its owner."""
    holders: int = 0
    """Processes that hold refs to it."""


@dataclass(frozen=True)
class WorkerState(StateSchema):
    """A worker or driver; those that have ended as well."""

    worker_id: str
    is_alive: bool
    worker_type: str
    """WORKER or DRIVER."""
    node_id: str
    pid: int | None = None
    job_id: str | None = None
    name: str = ""
    """What it runs, by its own word."""
    state: str = ""
    """idle, leased, blocked, starting, driver; of one that has ended dead."""
    start_time_ms: int | None = None
    end_time_ms: int | None = None
    exit_type: str | None = None
    """INTENDED_USER_EXIT, INTENDED_SYSTEM_EXIT, SYSTEM_ERROR, USER_ERROR, NODE_OUT_OF_MEMORY."""
    exit_detail: str | None = None


@dataclass(frozen=True)
class NodeState(StateSchema):
    """A node; those that left are there for a while."""

    node_id: str
    state: str
    """ALIVE, DRAINING or DEAD."""
    node_ip: str
    node_name: str
    """The name of its host."""
    is_head_node: bool
    state_message: str | None = None
    resources_total: Mapping[str, float] | None = None
    labels: Mapping[str, str] | None = None


@dataclass(frozen=True)
class JobState(StateSchema):
    """A driver and all that it started."""

    job_id: str
    type: str
    """DRIVER."""
    status: str
    """RUNNING; SUCCEEDED when its driver has ended, however that was."""
    entrypoint: str = ""
    start_time: int | None = None
    """Milliseconds since 1970."""
    end_time: int | None = None
    driver_info: Mapping[str, Any] | None = None
    """Its `id` (the job's) and `pid`."""
    driver_node_id: str | None = None
    ray_namespace: str = ""


@dataclass(frozen=True)
class PlacementGroupState(StateSchema):
    """A placement group."""

    placement_group_id: str
    name: str
    creator_job_id: str
    state: str
    """PENDING, CREATED, RESCHEDULING or REMOVED."""
    bundles: list[dict[str, Any]]
    strategy: str
    is_detached: bool = False
    stats: Mapping[str, Any] | None = None
    """`scheduling_state`: what it waits for."""
