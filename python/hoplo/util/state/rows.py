"""What listings are made of: a class for each kind of thing, whose fields have Ray's names.

Ray's fields that hoplo does not know are not there, rather than empty: see the guide.
"""

from __future__ import annotations

import datetime
import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

__all__ = [
    "ActorState",
    "Humanify",
    "JobState",
    "NodeState",
    "ObjectState",
    "PlacementGroupState",
    "StateSchema",
    "TaskState",
    "WorkerState",
    "state_column",
]


class Humanify:
    """Numbers as people read them.

    >>> Humanify.memory(3 << 20), Humanify.duration(90_000)
    ('3.000 MiB', '0:01:30')
    """

    @staticmethod
    def timestamp(x: float) -> str:
        """Of milliseconds since 1970, by the clock on the wall."""
        return str(datetime.datetime.fromtimestamp(x / 1000))

    @staticmethod
    def duration(x: float) -> str:
        """Of milliseconds."""
        return str(datetime.timedelta(milliseconds=x))

    @staticmethod
    def memory(x: float) -> str:
        """Of bytes."""
        power = min(max(int(x).bit_length() - 1, 0) // 10, 3)
        return f"{x / (1 << 10 * power):.3f} {('B', 'KiB', 'MiB', 'GiB')[power]}"

    @staticmethod
    def node_resources(resources: Mapping[str, float]) -> dict[str, Any]:
        """Of those of a node, what is memory."""
        return {
            name: Humanify.memory(amount) if "memory" in name else amount
            for name, amount in resources.items()
        }


def state_column(
    *,
    filterable: bool,
    detail: bool = False,
    format_fn: Callable[[Any], Any] | None = None,
    **options: Any,
) -> Any:
    """`dataclasses.field` for a column of a schema of one's own.

    `filterable`: it is among `filterable_columns`; `detail`: it is not among `base_columns`, and
    its default is None; `format_fn` is what `humanify` calls.

    >>> import dataclasses
    >>> @dataclasses.dataclass
    ... class Disk(StateSchema):
    ...     path: str
    ...     free: int = state_column(filterable=False, detail=True, format_fn=Humanify.memory)
    >>> Disk.list_columns(detail=False), Disk.humanify({"path": "/", "free": 2048})
    (['path'], {'path': '/', 'free': '2.000 KiB'})
    """
    if detail and "default_factory" not in options:
        options.setdefault("default", None)
    told = {"filterable": filterable, "detail": detail, "format_fn": format_fn}
    return field(**{**options, "metadata": {**options.get("metadata", {}), **told}})


def _time() -> Any:
    return state_column(filterable=True, format_fn=Humanify.timestamp, default=None)


@functools.cache
def _names(schema: type[StateSchema]) -> frozenset[str]:
    """Of its columns: each access to each row asks for them."""
    return frozenset(schema.list_columns())


class StateSchema(Mapping[str, Any]):
    """A row: `row.name` and `row["name"]` are the same.

    >>> row = JobState(job_id="7", type="DRIVER", status="RUNNING")
    >>> row.status, row["status"], "status" in row
    ('RUNNING', 'RUNNING', True)
    """

    def asdict(self) -> dict[str, Any]:
        return dict(self)

    @classmethod
    def list_columns(cls, detail: bool = True) -> list[str]:
        """The names of all fields, in order; without `detail` those that are no details.

        Rows of hoplo's have no details: all that is known is always there.
        """
        known = fields(cls)  # type: ignore[arg-type]
        return [one.name for one in known if detail or not one.metadata.get("detail", False)]

    @classmethod
    def columns(cls) -> set[str]:
        """The names of all fields."""
        return set(cls.list_columns())

    detail_columns = columns

    @classmethod
    def base_columns(cls) -> set[str]:
        """The names of those that are no details."""
        return set(cls.list_columns(detail=False))

    @classmethod
    def filterable_columns(cls) -> set[str]:
        """What `filters` may name: all fields, but where `state_column` says otherwise."""
        known = fields(cls)  # type: ignore[arg-type]
        return {one.name for one in known if one.metadata.get("filterable", True)}

    @classmethod
    def humanify(cls, state: Mapping[str, Any]) -> dict[str, Any]:
        """The same row with times and sizes as text, for people to read."""
        row = dict(state)
        for one in fields(cls):  # type: ignore[arg-type]
            shown = one.metadata.get("format_fn")
            if shown is not None and row.get(one.name) is not None:
                row[one.name] = shown(row[one.name])
        return row

    def __getitem__(self, name: str) -> Any:
        if name not in _names(type(self)):
            raise KeyError(name)
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.list_columns())

    def __len__(self) -> int:
        return len(self.list_columns())


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
    func_or_class_name: str | None = None
    """The same as `name`: of a call that was given a name, hoplo knows no other."""
    job_id: str | None = None
    actor_id: str | None = None
    parent_task_id: str | None = None
    """None: a driver called."""
    node_id: str | None = None
    worker_id: str | None = None
    worker_pid: int | None = None
    required_resources: Mapping[str, float] | None = None
    start_time_ms: int | None = _time()
    """Since 1970; None: it has not begun, or nobody knows when."""
    end_time_ms: int | None = _time()
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
    object_size: int | None = state_column(filterable=True, format_fn=Humanify.memory, default=None)
    state: str = ""
    """What the daemon of its owner's node knows of it, such as `stored` or `pending`."""
    node_id: str | None = None
    pid: int | None = None
    """Of its owner."""
    ip: str | None = None
    """The address of the node."""
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
    ip: str | None = None
    """The address of its node; None: the cluster has no such node any more."""
    pid: int | None = None
    job_id: str | None = None
    name: str = ""
    """What it runs, by its own word."""
    state: str = ""
    """idle, leased, blocked, starting, driver; of one that has ended dead."""
    start_time_ms: int | None = _time()
    end_time_ms: int | None = _time()
    exit_type: str | None = None
    """INTENDED_USER_EXIT, INTENDED_SYSTEM_EXIT, SYSTEM_ERROR, USER_ERROR, NODE_OUT_OF_MEMORY."""
    exit_detail: str | None = None


@dataclass(frozen=True)
class NodeState(StateSchema):
    """A node; of those that left the last 100 are there."""

    node_id: str
    state: str
    """ALIVE, DRAINING or DEAD."""
    node_ip: str
    node_name: str
    """The name of its host."""
    is_head_node: bool
    state_message: str | None = None
    resources_total: Mapping[str, float] | None = state_column(
        filterable=True, format_fn=Humanify.node_resources, default=None
    )
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
    start_time: int | None = _time()
    """Milliseconds since 1970."""
    end_time: int | None = _time()
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
