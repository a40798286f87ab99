"""What sums of rows are made of, in the form of Ray's: how many there are, by name and by state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

__all__ = [
    "ActorSummaries",
    "ActorSummaryPerClass",
    "ObjectSummaries",
    "ObjectSummaryPerKey",
    "StateSummary",
    "TaskSummaries",
    "TaskSummaryPerFuncOrClassName",
]

Row = Mapping[str, Any]

NOT_RECORDED = "disabled"
"""In place of where objects were made, which nobody records."""


@dataclass
class TaskSummaryPerFuncOrClassName:
    """Tasks of one name."""

    func_or_class_name: str
    type: str
    """That of the first one."""
    state_counts: dict[str, int] = field(default_factory=dict)


@dataclass
class TaskSummaries:
    """Tasks by their names.

    >>> from hoplo.util.state import rows
    >>> row = rows.TaskState("0102" * 8, 0, "f", "RUNNING", "NORMAL_TASK")
    >>> TaskSummaries.to_summary_by_func_name(tasks=[row, row]).summary["f"].state_counts
    {'RUNNING': 2}
    """

    summary: dict[str, TaskSummaryPerFuncOrClassName]
    total_tasks: int
    total_actor_tasks: int
    total_actor_scheduled: int
    summary_by: str = "func_name"

    @classmethod
    def to_summary_by_func_name(cls, *, tasks: Iterable[Row]) -> TaskSummaries:
        """Of rows such as `list_tasks` gives."""
        summary: dict[str, TaskSummaryPerFuncOrClassName] = {}
        types: dict[str, int] = {}
        for task in tasks:
            name, kind = task["name"], task["type"]
            of_name = summary.setdefault(name, TaskSummaryPerFuncOrClassName(name, kind))
            _count(of_name.state_counts, task["state"])
            _count(types, kind)
        return cls(
            summary,
            total_tasks=types.get("NORMAL_TASK", 0),
            total_actor_tasks=types.get("ACTOR_TASK", 0),
            total_actor_scheduled=types.get("ACTOR_CREATION_TASK", 0),
        )

    @classmethod
    def to_summary_by_lineage(cls, **_: Any) -> NoReturn:
        """Raises NotImplementedError, which says what to do."""
        raise NotImplementedError(
            "tasks are not summed by who called them: each row of list_tasks() has its "
            "parent_task_id"
        )


@dataclass
class ActorSummaryPerClass:
    """Actors of one class."""

    class_name: str
    state_counts: dict[str, int] = field(default_factory=dict)


@dataclass
class ActorSummaries:
    """Actors by their classes.

    >>> from hoplo.util.state import rows
    >>> row = rows.ActorState("0102" * 8, "Counter", "ALIVE", job_id="7")
    >>> ActorSummaries.to_summary(actors=[row]).summary["Counter"].state_counts
    {'ALIVE': 1}
    """

    summary: dict[str, ActorSummaryPerClass]
    total_actors: int
    summary_by: str = "class"

    @classmethod
    def to_summary(cls, *, actors: Iterable[Row]) -> ActorSummaries:
        """Of rows such as `list_actors` gives."""
        summary: dict[str, ActorSummaryPerClass] = {}
        total = 0
        for actor in actors:
            name = actor["class_name"]
            _count(
                summary.setdefault(name, ActorSummaryPerClass(name)).state_counts, actor["state"]
            )
            total += 1
        return cls(summary, total)


@dataclass
class ObjectSummaryPerKey:
    """Objects that were made in one place of the program."""

    total_objects: int
    total_size_mb: float
    total_num_workers: int
    """Processes that own some of them."""
    total_num_nodes: int
    """Nodes that know some of them."""
    state_counts: dict[str, int] = field(default_factory=dict)


@dataclass
class ObjectSummaries:
    """Objects. Where they were made is not recorded, so there is one summary, of all.

    >>> from hoplo.util.state import rows
    >>> row = rows.ObjectState("0102" * 10, object_size=2_000_000, node_id="a1b2c3")
    >>> ObjectSummaries.to_summary(objects=[row]).total_size_mb
    2.0
    """

    summary: dict[str, ObjectSummaryPerKey]
    total_objects: int
    total_size_mb: float
    callsite_enabled: bool
    summary_by: str = "callsite"

    @classmethod
    def to_summary(cls, *, objects: Iterable[Row]) -> ObjectSummaries:
        """Of rows such as `list_objects` gives."""
        rows = list(objects)
        of_all = ObjectSummaryPerKey(
            total_objects=len(rows),
            total_size_mb=sum(row["object_size"] or 0 for row in rows) / 1e6,
            # An id of an object begins with that of its owner.
            total_num_workers=len({row["object_id"][:16] for row in rows}),
            total_num_nodes=len({row["node_id"] for row in rows}),
        )
        for row in rows:
            _count(of_all.state_counts, row["state"])
        return cls({NOT_RECORDED: of_all}, len(rows), of_all.total_size_mb, callsite_enabled=False)


@dataclass
class StateSummary:
    """What was counted where. hoplo counts in the whole cluster, under the name "cluster"."""

    node_id_to_summary: dict[str, TaskSummaries | ActorSummaries | ObjectSummaries]


def _count(counts: dict[str, int], state: str) -> None:
    counts[state] = counts.get(state, 0) + 1
