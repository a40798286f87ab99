"""What runs in the cluster and what has run: tasks, actors, objects, workers, nodes, jobs, logs.

Names, arguments and fields are those of Ray's State API. Each node is asked, and answers for
itself within a second. Beside what there is now, the daemons remember what has finished: of each
job about 30,000 runs of tasks and methods, and of each node 1,000 actors and 1,000 workers.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any, TypeVar

from . import _filters
from ._read import Asked
from .errors import StateError
from .rows import (
    ActorState,
    JobState,
    NodeState,
    ObjectState,
    PlacementGroupState,
    StateSchema,
    TaskState,
    WorkerState,
)
from .summaries import ActorSummaries, ObjectSummaries, StateSummary, TaskSummaries

__all__ = [
    "StateError",
    "get_actor",
    "get_job",
    "get_log",
    "get_node",
    "get_objects",
    "get_placement_group",
    "get_task",
    "get_worker",
    "list_actors",
    "list_jobs",
    "list_logs",
    "list_nodes",
    "list_objects",
    "list_placement_groups",
    "list_tasks",
    "list_workers",
    "summarize_actors",
    "summarize_objects",
    "summarize_tasks",
]

DEFAULT_LIMIT = 100
DEFAULT_TIMEOUT = 30

_Row = TypeVar("_Row", bound=StateSchema)
_Filters = Iterable[tuple[str, str, Any]] | None


def list_tasks(
    address: str | None = None,
    filters: _Filters = None,
    limit: int = DEFAULT_LIMIT,
    timeout: float = DEFAULT_TIMEOUT,
    detail: bool = False,
    raise_on_missing_output: bool = True,
    explain: bool = False,
    **options: Any,
) -> list[TaskState]:
    """Tasks and calls of methods: those that are not finished, then the others, the newest first.

    A row for each run: a task that was tried three times has three. `filters` such as
    `[("state", "=", "FAILED")]` and `limit` choose among them; `explain` says on stderr how many
    there are. `detail` changes nothing: all that is known is there.

    Raises StateError for a field that tasks do not have, and when a node does not answer, unless
    `raise_on_missing_output` is False: then that is a warning.

    >>> hoplo.get(square.remote(3))
    9
    >>> list_tasks(filters=[("name", "=", "square"), ("state", "=", "FINISHED")])[0].state
    'FINISHED'
    """
    look = _Look(address, timeout, raise_on_missing_output, explain, options)
    checked = _filters.parsed(filters, TaskState, "tasks")
    ended_max = limit if not checked and _is_count(limit) else None
    rows = look.tasks() if ended_max is None else look.tasks(ended_max)
    return look.shown(rows, checked, limit)


def list_actors(
    address: str | None = None,
    filters: _Filters = None,
    limit: int = DEFAULT_LIMIT,
    timeout: float = DEFAULT_TIMEOUT,
    detail: bool = False,
    raise_on_missing_output: bool = True,
    explain: bool = False,
    **options: Any,
) -> list[ActorState]:
    """Actors, also dead ones with the cause of their death. Arguments as of `list_tasks`.

    >>> counter = Counter.remote()
    >>> hoplo.get(counter.add.remote())
    1
    >>> {actor.class_name for actor in list_actors(filters=[("state", "=", "ALIVE")])}
    {'Counter'}
    """
    look = _Look(address, timeout, raise_on_missing_output, explain, options)
    checked = _filters.parsed(filters, ActorState, "actors")
    for key, relation, value in checked:
        if (key, relation) == ("actor_id", "="):
            return look.shown(look.actor(value), checked, limit)
    of_dead_nodes_max = None
    if _filters.excludes(checked, "state", "DEAD"):
        of_dead_nodes_max = 0
    elif not checked and not look.explains and _is_count(limit):
        of_dead_nodes_max = limit
    return look.shown(look.actors(of_dead_nodes_max), checked, limit)


def list_objects(
    address: str | None = None,
    filters: _Filters = None,
    limit: int = DEFAULT_LIMIT,
    timeout: float = DEFAULT_TIMEOUT,
    detail: bool = False,
    raise_on_missing_output: bool = True,
    explain: bool = False,
    **options: Any,
) -> list[ObjectState]:
    """Objects that the daemons know: stored ones, and those of which several processes have refs.

    Arguments as of `list_tasks`.

    >>> ref = hoplo.put(bytes(1_000_000))
    >>> [row.object_size >= 1_000_000 for row in list_objects() if row.object_id == ref.hex()]
    [True]
    """
    look = _Look(address, timeout, raise_on_missing_output, explain, options)
    checked = _filters.parsed(filters, ObjectState, "objects")
    return look.shown(look.objects(), checked, limit)


def list_workers(
    address: str | None = None,
    filters: _Filters = None,
    limit: int = DEFAULT_LIMIT,
    timeout: float = DEFAULT_TIMEOUT,
    detail: bool = False,
    raise_on_missing_output: bool = True,
    explain: bool = False,
    **options: Any,
) -> list[WorkerState]:
    """Workers and drivers: those that live, then the others, the latest first.

    Arguments as of `list_tasks`.

    >>> "DRIVER" in [worker.worker_type for worker in list_workers()]
    True
    """
    look = _Look(address, timeout, raise_on_missing_output, explain, options)
    checked = _filters.parsed(filters, WorkerState, "workers")
    return look.shown(look.workers(), checked, limit)


def list_nodes(
    address: str | None = None,
    filters: _Filters = None,
    limit: int = DEFAULT_LIMIT,
    timeout: float = DEFAULT_TIMEOUT,
    detail: bool = False,
    raise_on_missing_output: bool = True,
    explain: bool = False,
    **options: Any,
) -> list[NodeState]:
    """The nodes of the cluster. Arguments as of `list_tasks`.

    >>> [node.state for node in list_nodes()]
    ['ALIVE']
    """
    look = _Look(address, timeout, raise_on_missing_output, explain, options)
    checked = _filters.parsed(filters, NodeState, "nodes")
    return look.shown(look.nodes(), checked, limit)


def list_jobs(
    address: str | None = None,
    filters: _Filters = None,
    limit: int = DEFAULT_LIMIT,
    timeout: float = DEFAULT_TIMEOUT,
    detail: bool = False,
    raise_on_missing_output: bool = True,
    explain: bool = False,
    **options: Any,
) -> list[JobState]:
    """Drivers with all that they started, the latest first. Arguments as of `list_tasks`.

    >>> [job.status for job in list_jobs()]
    ['RUNNING']
    """
    look = _Look(address, timeout, raise_on_missing_output, explain, options)
    checked = _filters.parsed(filters, JobState, "jobs")
    return look.shown(look.jobs(), checked, limit)


def list_placement_groups(
    address: str | None = None,
    filters: _Filters = None,
    limit: int = DEFAULT_LIMIT,
    timeout: float = DEFAULT_TIMEOUT,
    detail: bool = False,
    raise_on_missing_output: bool = True,
    explain: bool = False,
    **options: Any,
) -> list[PlacementGroupState]:
    """Placement groups, also removed ones. Arguments as of `list_tasks`.

    >>> group = hoplo.util.placement_group([{"CPU": 1}], name="mine")
    >>> group.wait(10)
    True
    >>> list_placement_groups(filters=[("name", "=", "mine")])[0].state
    'CREATED'
    >>> hoplo.util.remove_placement_group(group)
    """
    look = _Look(address, timeout, raise_on_missing_output, explain, options)
    checked = _filters.parsed(filters, PlacementGroupState, "placement groups")
    return look.shown(look.placement_groups(), checked, limit)


# ------------------------------------------------------------------------------- one of them


def get_task(
    id: str,
    address: str | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    explain: bool = False,
    **options: Any,
) -> TaskState | list[TaskState] | None:
    """The task with this id: a list if it ran several times, None if nobody knows it.

    >>> ref = square.remote(3)
    >>> hoplo.get(ref)
    9
    >>> get_task(ref.task_id()).name
    'square'
    """
    look = _Look(address, timeout, True, explain, options)
    found = _of_id(look.tasks(), "task_id", id)
    look.finish()
    if len(found) > 1:
        return sorted(found, key=lambda task: task.attempt_number)
    return found[0] if found else None


def get_actor(
    id: str,
    address: str | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    explain: bool = False,
    **options: Any,
) -> ActorState | None:
    """The actor with this id; None if nobody knows it.

    >>> get_actor(Counter.remote()._actor_id).class_name
    'Counter'
    """
    look = _Look(address, timeout, True, explain, options)
    return look.one(look.actor(id), "actor_id", id)


def get_objects(
    id: str,
    address: str | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    explain: bool = False,
    **options: Any,
) -> list[ObjectState]:
    """What each node knows of the object with this id.

    >>> ref = hoplo.put(bytes(1_000_000))
    >>> len(get_objects(ref.hex()))
    1
    """
    look = _Look(address, timeout, True, explain, options)
    found = _of_id(look.objects(), "object_id", id)
    look.finish()
    return found


def get_worker(
    id: str,
    address: str | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    explain: bool = False,
    **options: Any,
) -> WorkerState | None:
    """The worker or driver with this id; None if nobody knows it.

    >>> get_worker(hoplo.get_runtime_context().get_worker_id()).worker_type
    'DRIVER'
    """
    look = _Look(address, timeout, True, explain, options)
    return look.one(look.workers(), "worker_id", id)


def get_node(
    id: str,
    address: str | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    explain: bool = False,
    **options: Any,
) -> NodeState | None:
    """The node with this id; None if nobody knows it.

    >>> get_node(hoplo.get_runtime_context().get_node_id()).state
    'ALIVE'
    """
    look = _Look(address, timeout, True, explain, options)
    return look.one(look.nodes(), "node_id", id)


def get_job(
    id: str,
    address: str | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    explain: bool = False,
    **options: Any,
) -> JobState | None:
    """The job with this id; None if nobody knows it.

    >>> get_job(hoplo.get_runtime_context().get_job_id()).status
    'RUNNING'
    """
    look = _Look(address, timeout, True, explain, options)
    return look.one(look.jobs(), "job_id", id)


def get_placement_group(
    id: str,
    address: str | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    explain: bool = False,
    **options: Any,
) -> PlacementGroupState | None:
    """The placement group with this id; None if nobody knows it.

    >>> group = hoplo.util.placement_group([{"CPU": 1}])
    >>> get_placement_group(group.id).strategy
    'PACK'
    >>> hoplo.util.remove_placement_group(group)
    """
    look = _Look(address, timeout, True, explain, options)
    return look.one(look.placement_groups(), "placement_group_id", id)


# ------------------------------------------------------------------------------- sums


def summarize_tasks(
    address: str | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    raise_on_missing_output: bool = True,
    explain: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """How many tasks of each name there are in each state, in the form of Ray's.

    >>> hoplo.get([square.remote(x) for x in range(3)])
    [0, 1, 4]
    >>> summarize_tasks()["cluster"]["summary"]["square"]["state_counts"]["FINISHED"] >= 3
    True
    """
    look = _Look(address, timeout, raise_on_missing_output, explain, options)
    rows = look.tasks()
    look.finish()
    return _cluster(TaskSummaries.to_summary_by_func_name(tasks=rows))


def summarize_actors(
    address: str | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    raise_on_missing_output: bool = True,
    explain: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """How many actors of each class there are in each state, in the form of Ray's.

    >>> counter = Counter.remote()
    >>> "Counter" in summarize_actors()["cluster"]["summary"]
    True
    """
    look = _Look(address, timeout, raise_on_missing_output, explain, options)
    rows = look.actors()
    look.finish()
    return _cluster(ActorSummaries.to_summary(actors=rows))


def summarize_objects(
    address: str | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    raise_on_missing_output: bool = True,
    explain: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """How many objects there are in each state, and what they take.

    Where they were made is not recorded, so there is one summary, of all.

    >>> ref = hoplo.put(bytes(1_000_000))
    >>> summarize_objects()["cluster"]["total_size_mb"] >= 1
    True
    """
    look = _Look(address, timeout, raise_on_missing_output, explain, options)
    rows = look.objects()
    look.finish()
    return _cluster(ObjectSummaries.to_summary(objects=rows))


def _cluster(summaries: TaskSummaries | ActorSummaries | ObjectSummaries) -> dict[str, Any]:
    return dict(asdict(StateSummary({"cluster": summaries}))["node_id_to_summary"])


# ------------------------------------------------------------------------------- logs


def list_logs(
    address: str | None = None,
    node_id: str | None = None,
    node_ip: str | None = None,
    glob_filter: str | None = None,
    timeout: float = DEFAULT_TIMEOUT,
) -> dict[str, list[str]]:
    """The names of the log files of a node, or of all: `worker_out`, `worker_err`, `daemon`.

    A worker that has printed nothing has none.

    >>> list_logs(glob_filter="no-such-file*")
    {}
    """
    from fnmatch import fnmatch

    look = _Look(address, timeout, True, False, {})
    node = _node_of(look, node_id, node_ip)
    kinds: dict[str, list[str]] = {}
    for _, name in look.log_files(node):
        if glob_filter is None or fnmatch(name, glob_filter):
            kinds.setdefault(_kind_of_log(name), []).append(name)
    look.finish()
    return kinds


def get_log(
    address: str | None = None,
    node_id: str | None = None,
    node_ip: str | None = None,
    filename: str | None = None,
    actor_id: str | None = None,
    task_id: str | None = None,
    pid: int | None = None,
    follow: bool = False,
    tail: int = -1,
    timeout: float | None = None,
    suffix: str = "out",
    **options: Any,
) -> Iterator[str]:
    """What a worker printed: of a file, an actor, a task's worker, or a pid. Yields lines.

    `suffix` "err" is what went to stderr; `tail` gives the last lines only. Raises StateError if
    nobody knows it; who has printed nothing has no lines. `follow` is what `hoplo logs --follow`
    does, and refused here.

    >>> hoplo.get(square.remote(3))
    9
    >>> worker = list_workers(filters=[("worker_type", "=", "WORKER")])[0]
    >>> list(get_log(pid=worker.pid, tail=10))
    []
    """
    if follow:
        raise StateError("get_log follows nothing: `hoplo logs --follow` does")
    look = _Look(address, DEFAULT_TIMEOUT if timeout is None else timeout, True, False, options)
    is_named = filename is not None
    if filename is None:
        filename = f"worker-{_pid_of(look, actor_id, task_id, pid)}.{suffix}"
    node = _node_of(look, node_id, node_ip)
    at = next((node for node, name in look.log_files(node) if name == filename), None)
    if at is None and not is_named:
        return iter(())
    if at is None:
        raise StateError(f"no node has a log {filename!r}; list_logs() says which there are")
    text, begin = "", 0
    while (piece := look.log_text(at, filename, begin))[1]:
        text, begin = text + piece[0], begin + piece[1]
    lines = text.splitlines(keepends=True)
    return iter(lines if tail < 0 else lines[len(lines) - min(tail, len(lines)) :])


def _pid_of(look: _Look, actor_id: str | None, task_id: str | None, pid: int | None) -> int:
    if pid is not None:
        return pid
    found: int | None = None
    if actor_id is not None:
        found = next((a.pid for a in _of_id(look.actors(), "actor_id", actor_id)), None)
    elif task_id is not None:
        found = next((t.worker_pid for t in _of_id(look.tasks(), "task_id", task_id)), None)
    else:
        raise StateError("get_log needs a filename, an actor_id, a task_id or a pid")
    if found is None:
        raise StateError(f"it is not known which process {actor_id or task_id} ran in")
    return found


def _node_of(look: _Look, node_id: str | None, node_ip: str | None) -> str | None:
    if node_ip is None:
        return node_id and node_id[:]
    of_ip = [node.node_id for node in look.nodes() if node.node_ip == node_ip]
    if not of_ip:
        raise StateError(f"no node has the address {node_ip}; list_nodes() says which there are")
    return of_ip[0]


def _kind_of_log(name: str) -> str:
    if not name.startswith("worker-"):
        return "daemon"
    return "worker_err" if name.endswith(".err") else "worker_out"


# ------------------------------------------------------------------------------- questions


class _Look(Asked):
    """A look at the cluster as somebody asked for it."""

    def __init__(
        self,
        address: str | None,
        timeout: float,
        raises: bool,
        explain: bool,
        options: dict[str, Any],
    ) -> None:
        super().__init__()
        explain = options.pop("_explain", explain)
        if options:
            name = next(iter(options))
            raise TypeError(f"listings have no option {name!r}")
        if not timeout > 0:
            raise StateError(f"timeout must be more than 0 seconds, not {timeout!r}")
        _join(address)
        self._raises = raises
        self.explains = explain

    def shown(
        self, rows: list[_Row], filters: list[tuple[str, str, Any]], limit: int
    ) -> list[_Row]:
        """The rows that were asked for."""
        if not _is_count(limit):
            raise StateError(f"limit must be a whole number above 0, not {limit!r}")
        self.finish()
        found = _filters.kept(rows, filters)
        if self.explains:
            more = f"; {self.forgotten} runs are not remembered any more" if self.forgotten else ""
            print(f"hoplo: {min(limit, len(found))} of {len(found)}{more}", file=sys.stderr)
        return found[:limit]

    def one(self, rows: list[_Row], key: str, id: str) -> _Row | None:
        self.finish()
        return next(iter(_of_id(rows, key, id)), None)

    def finish(self) -> None:
        """All was asked."""
        if self.missing and self._raises:
            raise StateError(
                f"a part is missing: {'; '.join(self.missing)}; raise_on_missing_output=False "
                f"gives what there is"
            )
        for line in self.missing:
            warnings.warn(f"a part is missing: {line}", stacklevel=4)


def _join(address: str | None) -> None:
    from hoplo import _api, _core

    if not _core.is_initialized():
        if address is None:
            _api.initialize_once()
        else:
            _api.init(address=address)
        return
    if address in (None, "auto", _core.runtime_context()["address"]):
        return
    raise StateError(
        f"this process has a session, and lists what that one's cluster has: leave out "
        f"address={address!r}"
    )


def _is_count(limit: object) -> bool:
    return isinstance(limit, int) and not isinstance(limit, bool) and limit > 0


def _of_id(rows: list[_Row], key: str, id: str) -> list[_Row]:
    wanted = _filters.plain(id)
    if not isinstance(wanted, str):
        raise StateError(f"an id is text such as `.hex()` gives, not {id!r}")
    return [row for row in rows if row[key] == wanted]
