"""From the daemons' answers to rows."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Mapping
from typing import Any

from hoplo import _core
from hoplo._api import initialize_once

from ._filters import plain
from .rows import (
    ActorState,
    JobState,
    NodeState,
    ObjectState,
    PlacementGroupState,
    TaskState,
    WorkerState,
)

Json = Mapping[str, Any]

RUNS_OF_JOB_MAX = 1_000_000
"""More than any daemon remembers."""


class Asked:
    """One look at the cluster, of several questions."""

    def __init__(self) -> None:
        self.missing: list[str] = []
        """Nodes that did not answer, a sentence each."""
        self.forgotten = 0
        """Runs that the daemons do not remember any more."""

    def ask(self, kind: str, argument: str | None = None) -> Any:
        initialize_once()
        missing: list[str] = []
        answer = json.loads(_core.query(kind, argument, missing))
        self.missing += [line for line in missing if line not in self.missing]
        return answer

    # ---- tasks ----

    def tasks(self, ended_max: int = RUNS_OF_JOB_MAX) -> list[TaskState]:
        """Those that are not finished, then the others, the newest first."""
        pids = self._pids()
        now = self.ask("tasks")
        past = self.ask("history", str(ended_max))
        self.forgotten = past["forgotten"]
        begun = {call["task_id"]: call["ran_s"] for call in now["begun"]}
        begins_all = set(now["begins_all"])
        ended = [_ended_task(run, past["clocks"], pids) for run in past["runs"]]
        ended.sort(key=lambda task: task.end_time_ms or 0, reverse=True)
        # A task may have ended between both questions.
        known = {(task.task_id, task.attempt_number) for task in ended}
        rows = (_unfinished_task(row, begun, begins_all, pids) for row in now["tasks"])
        unfinished = [row for row in rows if (row.task_id, row.attempt_number) not in known]
        return unfinished + ended

    def _pids(self) -> dict[str, int]:
        rows = [*self.ask("past_processes"), *self.ask("workers")]
        return {row["worker_id"]: row["pid"] for row in rows if row["pid"]}

    def _addresses(self) -> dict[str, str]:
        return {row["NodeID"]: row["NodeManagerAddress"] for row in self.ask("nodes")}

    # ---- what else there is ----

    def actors(self, of_dead_nodes_max: int | None = None) -> list[ActorState]:
        """`of_dead_nodes_max`: of actors whose node is dead, so many at most."""
        many = "" if of_dead_nodes_max is None else str(of_dead_nodes_max)
        return [_actor(row) for row in self.ask("actors", many)]

    def actor(self, actor_id: object) -> list[ActorState]:
        """The actors of nodes that live, and this one if its node is dead."""
        text = str(plain(actor_id)).lower()
        is_id = re.fullmatch("[0-9a-f]{32}", text)
        return [_actor(row) for row in self.ask("actors", text if is_id else "0")]

    def objects(self) -> list[ObjectState]:
        pids, addresses = self._pids(), self._addresses()
        # Nobody made these: an actor's handle is counted like an object.
        rows = [row for row in self.ask("objects") if row["state"] != "handle"]
        return [_object(row, pids, addresses) for row in rows]

    def workers(self) -> list[WorkerState]:
        """Those that live, then the others, the latest first."""
        addresses = self._addresses()
        alive = [_worker(row, addresses) for row in self.ask("workers")]
        past = [_past_worker(row, addresses) for row in self.ask("past_processes")]
        past.sort(key=lambda worker: worker.end_time_ms or 0, reverse=True)
        return alive + past

    def nodes(self) -> list[NodeState]:
        return [_node(row) for row in self.ask("nodes")]

    def jobs(self) -> list[JobState]:
        """The latest first."""
        rows = {row["job_id"]: row for row in _known_best(self.ask("jobs"))}
        latest = sorted(rows.values(), key=lambda row: row["started_us"], reverse=True)
        return [_job(row) for row in latest]

    def placement_groups(self) -> list[PlacementGroupState]:
        return [_group(row) for row in self.ask("placement_groups")]

    def log_files(self, node_id: str | None) -> list[tuple[str, str]]:
        """Node and name of each."""
        told = self.ask("logs", f"{node_id or 'all'} {json.dumps({'Files': []})}")
        files = [place for one in told for place in one["Files"]["ends"]]
        return [(place["node"], place["file"]) for place in files]

    def log_text(self, node_id: str, file: str, at: int) -> tuple[str, int]:
        """The next piece of a file, and how many bytes that is."""
        place = {"node": node_id, "file": file, "at": at}
        told = self.ask("logs", f"{node_id} {json.dumps({'Text': place})}")
        pieces = [one["Text"] for one in told if one["Text"]["node"] == node_id]
        return next(((one["text"], one["bytes"]) for one in pieces), ("", 0))


def _known_best(rows: Iterable[Json]) -> list[Json]:
    """Several nodes may tell of one job: who heard of its end comes last."""
    return sorted(rows, key=lambda row: row["ended_us"] is not None)


def _unfinished_task(
    row: Json, begun: Mapping[str, float], begins_all: set[str], pids: Mapping[str, int]
) -> TaskState:
    if row["state"] == "lost":
        # Of an earlier daemon: there is little that is known of it.
        return TaskState(
            task_id=row["task"],
            attempt_number=row["attempt"],
            name="",
            func_or_class_name="",
            state="FAILED",
            type="NORMAL_TASK",
            error_type="WORKER_DIED",
            error_message=row["reason"],
        )
    ran_s = begun.get(row["task_id"])
    return TaskState(
        task_id=row["task_id"],
        attempt_number=row["attempt"],
        name=row["name"],
        func_or_class_name=row["name"],
        state=_state(row, ran_s is not None or row["worker_id"] in begins_all),
        type=_type(row["actor_id"], row["creates_actor"]),
        job_id=row["job_id"],
        actor_id=row["task_id"] if row["creates_actor"] else row["actor_id"],
        parent_task_id=row["parent_task_id"],
        node_id=row["worker_id"] and row["worker_id"][:6],
        worker_id=row["worker_id"],
        worker_pid=pids.get(row["worker_id"]),
        required_resources=row["resources"],
        start_time_ms=None if ran_s is None else int((time.time() - ran_s) * 1000),
        reason=row["reason"],
    )


def _state(row: Json, has_begun: bool) -> str:
    match row["state"]:
        case "waiting":
            return "PENDING_ARGS_AVAIL"
        case "running":
            return "RUNNING" if has_begun else "SUBMITTED_TO_WORKER"
        case _ if row["actor_id"] is not None:
            return "PENDING_ACTOR_TASK_ORDERING_OR_CONCURRENCY"
        case _:
            return "PENDING_NODE_ASSIGNMENT"


def _type(actor_id: str | None, creates: bool) -> str:
    if creates:
        return "ACTOR_CREATION_TASK"
    return "NORMAL_TASK" if actor_id is None else "ACTOR_TASK"


def _ended_task(run: Json, clocks: Mapping[str, int], pids: Mapping[str, int]) -> TaskState:
    start_us, end_us = None, run["ended_us"]
    if run["started_ns"] is not None:
        # Its machine may have left; then it began so long before its caller heard of its end.
        clock = clocks.get(run["node"])
        start_us = (
            end_us - run["ran_ns"] // 1000 if clock is None else clock + run["started_ns"] // 1000
        )
        end_us = start_us + run["ran_ns"] // 1000
    return TaskState(
        task_id=run["task_id"],
        attempt_number=run["attempt"],
        name=run["name"],
        func_or_class_name=run["name"],
        state="FINISHED" if run["failure"] is None else "FAILED",
        type=_type(run["actor_id"], creates=False),
        job_id=run["job_id"],
        actor_id=run["actor_id"],
        parent_task_id=run["parent_task_id"],
        node_id=run["node"],
        worker_id=run["worker_id"],
        worker_pid=pids.get(run["worker_id"]),
        required_resources=run["resources"],
        start_time_ms=_ms(start_us),
        end_time_ms=_ms(end_us),
        error_type=run["failure"] and ERROR_TYPES.get(run["failure"], run["failure"]),
        error_message=run["reason"],
    )


ERROR_TYPES = {
    "TaskError": "TASK_EXECUTION_EXCEPTION",
    "TaskCancelledError": "TASK_CANCELLED",
    "WorkerCrashedError": "WORKER_DIED",
    "ActorDiedError": "ACTOR_DIED",
    "ActorUnavailableError": "ACTOR_UNAVAILABLE",
    "ObjectLostError": "OBJECT_LOST",
    "OutOfMemoryError": "OUT_OF_MEMORY",
    "RuntimeEnvSetupError": "RUNTIME_ENV_SETUP_FAILED",
    "NodeDiedError": "NODE_DIED",
    "OutOfDiskError": "OUT_OF_DISK_ERROR",
    "OwnerDiedError": "OWNER_DIED",
    "TaskPlacementGroupRemoved": "TASK_PLACEMENT_GROUP_REMOVED",
    "ActorPlacementGroupRemoved": "ACTOR_PLACEMENT_GROUP_REMOVED",
    "TaskUnschedulableError": "TASK_UNSCHEDULABLE_ERROR",
    "ActorUnschedulableError": "ACTOR_UNSCHEDULABLE_ERROR",
}
"""Ray's names of what hoplo's errors are; one that has none keeps its own."""


def _ms(us: int | None) -> int | None:
    return None if us is None else us // 1000


def _actor(row: Json) -> ActorState:
    state = "PENDING_CREATION" if row["state"] == "PENDING" else row["state"]
    is_placed = row["worker_id"] is not None
    return ActorState(
        actor_id=row["actor_id"],
        class_name=row["class_name"],
        state=state,
        job_id=row["job_id"],
        name=row["name"] or "",
        node_id=row["node"] if is_placed else None,
        pid=row["pid"],
        worker_id=row["worker_id"],
        ray_namespace=row["namespace"],
        is_detached=row["detached"],
        num_restarts=row["restarts"],
        death_cause=row["reason"] if state == "DEAD" else None,
        reason=None if state == "DEAD" else row["reason"],
    )


def _object(row: Json, pids: Mapping[str, int], addresses: Mapping[str, str]) -> ObjectState:
    owner = bytes.fromhex(row["object_id"][:16])[::-1].hex()
    return ObjectState(
        object_id=row["object_id"],
        object_size=row["size"],
        state=row["state"],
        node_id=row["node"],
        pid=pids.get(owner),
        ip=addresses.get(row["node"]),
        holders=len(row["holders"]),
    )


def _worker(row: Json, addresses: Mapping[str, str]) -> WorkerState:
    return WorkerState(
        worker_id=row["worker_id"],
        is_alive=True,
        worker_type=row["kind"].upper(),
        node_id=row["node"],
        ip=addresses.get(row["node"]),
        pid=row["pid"],
        job_id=row["job_id"],
        name=row["title"],
        state=row["state"],
        start_time_ms=_ms(row["started_us"]),
    )


def _past_worker(row: Json, addresses: Mapping[str, str]) -> WorkerState:
    return WorkerState(
        worker_id=row["worker_id"],
        is_alive=False,
        worker_type=row["kind"].upper(),
        node_id=row["node"],
        ip=addresses.get(row["node"]),
        pid=row["pid"] or None,
        job_id=row["job_id"],
        name=row["title"],
        state=row["state"],
        start_time_ms=_ms(row["started_us"]),
        end_time_ms=_ms(row["ended_us"]),
        exit_type=EXIT_TYPES[row["cause"]],
        exit_detail=row["reason"],
    )


EXIT_TYPES = {
    "left": "INTENDED_USER_EXIT",
    "exited": "SYSTEM_ERROR",
    "signaled": "SYSTEM_ERROR",
    "out of memory": "NODE_OUT_OF_MEMORY",
    "stopped": "INTENDED_SYSTEM_EXIT",
    "lost": "SYSTEM_ERROR",
    "not started": "SYSTEM_ERROR",
    "bad environment": "USER_ERROR",
}


def _node(row: Json) -> NodeState:
    return NodeState(
        node_id=row["NodeID"],
        state=row["State"],
        node_ip=row["NodeManagerAddress"],
        node_name=row["NodeManagerHostname"],
        is_head_node=row["Head"],
        state_message=row["Reason"],
        resources_total=row["Resources"],
        labels=row["Labels"],
    )


def _job(row: Json) -> JobState:
    return JobState(
        job_id=row["job_id"],
        type="DRIVER",
        status="RUNNING" if row["ended_us"] is None else "SUCCEEDED",
        entrypoint=row["entrypoint"],
        start_time=_ms(row["started_us"]),
        end_time=_ms(row["ended_us"]),
        driver_info={"id": row["job_id"], "pid": row["pid"]},
        driver_node_id=row["node"],
        ray_namespace=row["namespace"],
    )


def _group(row: Json) -> PlacementGroupState:
    return PlacementGroupState(
        placement_group_id=row["placement_group_id"],
        name=row["name"],
        creator_job_id=row["job_id"],
        state=row["state"],
        bundles=[
            {"bundle_index": index, "resources": resources, "node_id": node}
            for index, (resources, node) in enumerate(
                zip(row["bundles"], row["nodes"], strict=True)
            )
        ],
        strategy=row["strategy"],
        is_detached=row["detached"],
        stats={"scheduling_state": row["reason"]},
    )
