"""What listings and sums are made of, and what `StateApiClient` is asked with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from hoplo.util.state._filters import PREDICATES
from hoplo.util.state.errors import StateError
from hoplo.util.state.rows import (
    ActorState,
    Humanify,
    JobState,
    NodeState,
    ObjectState,
    PlacementGroupState,
    StateSchema,
    TaskState,
    WorkerState,
    state_column,
)
from hoplo.util.state.summaries import (
    ActorSummaries,
    ActorSummaryPerClass,
    ObjectSummaries,
    ObjectSummaryPerKey,
    StateSummary,
    TaskSummaries,
    TaskSummaryPerFuncOrClassName,
)

from ..._absent import absent, told

__all__ = [
    "AVAILABLE_STATES",
    "DEFAULT_LIMIT",
    "DEFAULT_LOG_LIMIT",
    "DEFAULT_RPC_TIMEOUT",
    "RAY_MAX_LIMIT_FROM_API_SERVER",
    "RAY_MAX_LIMIT_FROM_DATA_SOURCE",
    "ActorState",
    "ActorSummaries",
    "ActorSummaryPerClass",
    "GetApiOptions",
    "Humanify",
    "JobState",
    "ListApiOptions",
    "NodeState",
    "ObjectState",
    "ObjectSummaries",
    "ObjectSummaryPerKey",
    "PlacementGroupState",
    "PredicateType",
    "StateResource",
    "StateSchema",
    "StateSummary",
    "SummaryApiOptions",
    "SummaryResource",
    "SupportedFilterType",
    "TaskState",
    "TaskSummaries",
    "TaskSummaryPerFuncOrClassName",
    "WorkerState",
    "dict_to_state",
    "filter_fields",
    "resource_to_schema",
    "state_column",
]

DEFAULT_LIMIT = 100
"""Rows that a listing has at most, unless it is told another number."""
DEFAULT_LOG_LIMIT = 1000
"""Lines of a log."""
DEFAULT_RPC_TIMEOUT = 30
"""Seconds."""
RAY_MAX_LIMIT_FROM_API_SERVER = RAY_MAX_LIMIT_FROM_DATA_SOURCE = 10_000
"""Rows that a listing of Ray's has at most. Here a larger `limit` works, too."""

AVAILABLE_STATES = [
    ActorState,
    PlacementGroupState,
    NodeState,
    WorkerState,
    JobState,
    TaskState,
    ObjectState,
]

SupportedFilterType = str | bool | int | float
PredicateType = str


class StateResource(Enum):
    """What `StateApiClient` lists. Of the last two hoplo has nothing: asking for them raises."""

    ACTORS = "actors"
    JOBS = "jobs"
    PLACEMENT_GROUPS = "placement_groups"
    NODES = "nodes"
    WORKERS = "workers"
    TASKS = "tasks"
    OBJECTS = "objects"
    RUNTIME_ENVS = "runtime_envs"
    CLUSTER_EVENTS = "cluster_events"


class SummaryResource(Enum):
    """What `StateApiClient` counts."""

    ACTORS = "actors"
    TASKS = "tasks"
    OBJECTS = "objects"


_Filters = list[tuple[str, PredicateType, SupportedFilterType]]


@dataclass
class GetApiOptions:
    """How one row is asked for."""

    timeout: float = DEFAULT_RPC_TIMEOUT
    """Seconds."""
    server_timeout_multiplier: float = 0.8
    """No effect: there is no server between."""


@dataclass
class SummaryApiOptions:
    """How a sum is asked for. Raises RayStateApiException for filters that are none."""

    timeout: float = DEFAULT_RPC_TIMEOUT
    """Seconds."""
    filters: _Filters | None = field(default_factory=list)
    """As of `list_tasks`: what is counted."""
    summary_by: str | None = None
    """None is the one way that there is: by name, by class, or all objects together."""

    def __post_init__(self) -> None:
        self.filters = _checked(self.filters)


@dataclass
class ListApiOptions:
    """How a listing is asked for. Raises RayStateApiException for filters that are none.

    >>> ListApiOptions(limit=10, filters=[("state", "=", "RUNNING")]).has_conflicting_filters()
    False
    """

    limit: int = DEFAULT_LIMIT
    timeout: float = DEFAULT_RPC_TIMEOUT
    """Seconds."""
    detail: bool = False
    """No effect: all that is known is there."""
    filters: _Filters | None = field(default_factory=list)
    exclude_driver: bool = True
    """No effect: a driver is no task."""
    server_timeout_multiplier: float = 0.8
    """No effect: there is no server between."""

    def __post_init__(self) -> None:
        self.filters = _checked(self.filters)

    def has_conflicting_filters(self) -> bool:
        """Whether no row can pass, since a field would have to be two things."""
        wanted = [(key, value) for key, how, value in self.filters or () if how == "="]
        return any(dict(wanted)[key] != value for key, value in wanted)


def _checked(filters: _Filters | None) -> _Filters:
    for one in filters or ():
        if len(one) != 3 or one[1] not in PREDICATES:
            raise StateError(f"a filter is (key, '=' or '!=', value), not {one!r}")
    return list(filters or ())


def filter_fields(
    data: Mapping[str, Any], state_dataclass: type[StateSchema], detail: bool
) -> dict[str, Any]:
    """Of `data` the fields of a schema; None for those that it has not.

    >>> filter_fields({"path": "/", "job_id": "7"}, JobState, detail=False)["job_id"]
    '7'
    """
    return {name: data.get(name) for name in state_dataclass.list_columns(detail=detail)}


_SCHEMAS: dict[StateResource, type[StateSchema]] = {
    StateResource.ACTORS: ActorState,
    StateResource.JOBS: JobState,
    StateResource.PLACEMENT_GROUPS: PlacementGroupState,
    StateResource.NODES: NodeState,
    StateResource.WORKERS: WorkerState,
    StateResource.TASKS: TaskState,
    StateResource.OBJECTS: ObjectState,
}


def resource_to_schema(resource: StateResource) -> type[StateSchema]:
    """The class of its rows. Raises RayStateApiException for what hoplo has not.

    >>> resource_to_schema(StateResource.TASKS).__name__
    'TaskState'
    """
    if resource not in _SCHEMAS:
        raise StateError(told(f"ray.util.state.list_{resource.value}"))
    return _SCHEMAS[resource]


def dict_to_state(d: Mapping[str, Any], state_resource: StateResource) -> StateSchema:
    """The row that a dict stands for. Raises RayStateApiException if its fields are not a row's.

    >>> row = JobState(job_id="7", type="DRIVER", status="RUNNING")
    >>> dict_to_state(row.asdict(), StateResource.JOBS) == row
    True
    """
    try:
        return resource_to_schema(state_resource)(**d)
    except TypeError as error:
        raise StateError(f"these fields are not those of {state_resource.value}: {error}") from None


__getattr__ = absent(__name__, __all__)
__path__: list[str] = []
