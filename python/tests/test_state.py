"""`hoplo.util.state`: what runs and what has run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import eventually, run_driver

import hoplo
from hoplo import _core
from hoplo.util import placement_group, state
from hoplo.util.state.errors import StateError
from hoplo.util.state.rows import JobState, TaskState, WorkerState


@hoplo.remote
def double(x: int) -> int:
    return 2 * x


@hoplo.remote
def fails(text: str) -> None:
    raise ValueError(text)


@hoplo.remote(num_cpus=1)
def waits(folder: str) -> None:
    Path(folder, "begun").touch()
    while not Path(folder, "go").exists():
        time.sleep(0.01)


@hoplo.remote
class Counter:
    def __init__(self) -> None:
        self.value = 0

    def add(self) -> int:
        self.value += 1
        return self.value


def test_a_task_that_finished_is_there_with_its_times_and_its_worker() -> None:
    before = time.time()
    ref = double.options(name="doubled").remote(2)
    assert hoplo.get(ref) == 4
    task = state.get_task(ref.task_id())
    assert isinstance(task, TaskState)
    assert task["name"] == task.name == "doubled"
    assert (task.state, task.type, task.attempt_number) == ("FINISHED", "NORMAL_TASK", 0)
    assert task.job_id == hoplo.get_runtime_context().get_job_id()
    assert task.required_resources == {"CPU": 1.0}
    assert task.parent_task_id is None
    assert task.start_time_ms is not None
    assert task.end_time_ms is not None
    assert before * 1000 - 1000 <= task.start_time_ms <= task.end_time_ms <= time.time() * 1000
    worker = state.get_worker(task.worker_id or "")
    assert worker is not None
    assert worker.pid == task.worker_pid
    assert worker.node_id == task.node_id


def test_a_task_that_failed_says_why_and_each_try_is_a_row() -> None:
    ref = fails.options(max_retries=1, retry_exceptions=True).remote("no such thing")
    with pytest.raises(ValueError, match="no such thing"):
        hoplo.get(ref)
    tries = state.get_task(ref.task_id())
    assert isinstance(tries, list)
    assert [one.attempt_number for one in tries] == [0, 1]
    for one in tries:
        assert one.state == "FAILED"
        assert one.error_type == "TASK_EXECUTION_EXCEPTION"
        assert one.error_message == "ValueError: no such thing"


def test_a_long_text_of_an_error_is_cut() -> None:
    ref = fails.remote("x" * 100_000)
    with pytest.raises(ValueError, match="xxx"):
        hoplo.get(ref)
    task = state.get_task(ref.task_id())
    assert isinstance(task, TaskState)
    assert task.error_message is not None
    assert len(task.error_message) < 2000


def test_a_task_whose_worker_died_failed_for_that() -> None:
    @hoplo.remote(max_retries=0)
    def dies() -> None:
        os._exit(3)

    ref = dies.remote()
    with pytest.raises(hoplo.exceptions.WorkerCrashedError):
        hoplo.get(ref)
    task = state.get_task(ref.task_id())
    assert isinstance(task, TaskState)
    assert (task.state, task.error_type) == ("FAILED", "WORKER_DIED")

    def dead() -> list[WorkerState]:
        return state.list_workers(filters=[("is_alive", "=", False)])

    eventually(lambda: any("code 3" in (worker.exit_detail or "") for worker in dead()))
    (worker,) = [one for one in dead() if "code 3" in (one.exit_detail or "")]
    assert worker.exit_type == "SYSTEM_ERROR"
    assert worker.end_time_ms is not None
    assert worker.start_time_ms is not None
    assert worker.start_time_ms <= worker.end_time_ms


def test_a_task_that_runs_and_those_that_wait_say_so(tmp_path: Path) -> None:
    running = waits.remote(str(tmp_path))
    eventually((tmp_path / "begun").exists)
    waiting = double.remote(running)
    rows = {task.task_id: task for task in state.list_tasks()}
    first, second = rows[running.task_id()], rows[waiting.task_id()]
    assert first.state == "RUNNING"
    assert first.start_time_ms is not None
    assert first.worker_pid is not None
    assert second.state == "PENDING_ARGS_AVAIL"
    assert second.reason is not None
    assert "argument" in second.reason
    only = state.list_tasks(filters=[("state", "=", "running")])
    assert [task.task_id for task in only] == [running.task_id()]
    (tmp_path / "go").touch()
    with pytest.raises(TypeError):
        hoplo.get(waiting)


def test_of_dead_nodes_as_many_actors_are_read_as_are_wanted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, query = [], _core.query

    def watched(kind: str, argument: str | None = None, missing: list[str] | None = None) -> str:
        asked.append(argument)
        return query(kind, argument, missing)

    monkeypatch.setattr(_core, "query", watched)
    for filters in ([("state", "=", "alive")], [("name", "!=", "a"), ("state", "!=", "DEAD")]):
        state.list_actors(filters=filters)
    state.list_actors(limit=3)
    for filters in ([("state", "=", "dead")], [("state", "!=", "ALIVE")], [("name", "=", "a")]):
        state.list_actors(filters=filters)
    state.list_actors(explain=True)
    assert asked == ["0", "0", "3", "", "", "", ""]
    del asked[:]
    one = "0123456789abcdef" * 2
    state.get_actor(one)
    state.list_actors(filters=[("state", "=", "dead"), ("actor_id", "=", one.upper())])
    state.get_actor("nobody")
    state.list_actors(filters=[("actor_id", "!=", one)])
    assert asked == [one, one, "0", ""]


def test_calls_of_actors_name_their_actor_and_dead_actors_their_cause(tmp_path: Path) -> None:
    counter = Counter.options(name="the counter").remote()
    assert hoplo.get(counter.add.remote()) == 1
    (call,) = state.list_tasks(filters=[("name", "=", "Counter.add")])[:1]
    assert (call.type, call.actor_id) == ("ACTOR_TASK", counter._actor_id)
    alive = state.get_actor(counter._actor_id)
    assert alive is not None
    assert (alive.state, alive.name, alive.death_cause) == ("ALIVE", "the counter", None)
    assert alive.pid == call.worker_pid
    hoplo.kill(counter)

    def is_dead() -> bool:
        actor = state.get_actor(counter._actor_id)
        return actor is not None and actor.state == "DEAD" and bool(actor.death_cause)

    eventually(is_dead)


def test_calls_of_an_async_actor_run_as_soon_as_it_has_them() -> None:
    @hoplo.remote
    class Sleeper:
        async def sleep(self) -> None:
            import asyncio

            await asyncio.sleep(1000)

        async def ready(self) -> None:
            pass

    sleeper = Sleeper.remote()
    ref = sleeper.sleep.remote()
    hoplo.get(sleeper.ready.remote())
    task = state.get_task(ref.task_id())
    assert isinstance(task, TaskState)
    assert task.state == "RUNNING"
    hoplo.kill(sleeper)


def test_tasks_of_tasks_name_their_parent() -> None:
    @hoplo.remote
    def outer() -> str:
        ref = double.options(name="inner one").remote(1)
        hoplo.get(ref)
        return ref.task_id()

    ref = outer.remote()
    inner = state.get_task(hoplo.get(ref))
    assert isinstance(inner, TaskState)
    assert inner.parent_task_id == ref.task_id()


def test_what_is_not_to_be_remembered_is_not() -> None:
    hoplo.get([double.options(enable_task_events=False, name="secret").remote(1)])
    quiet = Counter.options(enable_task_events=False).remote()
    hoplo.get(quiet.add.remote())
    hoplo.get(quiet.add.options(enable_task_events=True, name="loud").remote())
    names = [task.name for task in state.list_tasks(limit=1000)]
    assert "secret" not in names
    assert "loud" in names
    mine = [task for task in state.list_tasks(limit=1000) if task.actor_id == quiet._actor_id]
    assert [task.name for task in mine] == ["loud"]


def test_a_job_may_have_nothing_remembered() -> None:
    program = """
import hoplo
from hoplo.util import state

@hoplo.remote
def inner():
    return 1

@hoplo.remote
def outer():
    return hoplo.get(inner.remote())

hoplo.init(num_cpus=2, enable_task_events=False)
print(hoplo.get(outer.remote()), state.list_tasks(), hoplo.timeline())
"""
    assert run_driver(program).stdout == "1 [] []\n"


def test_filters_choose_and_what_is_none_says_what_there_is() -> None:
    hoplo.get([double.options(name=f"filtered {x}").remote(x) for x in range(3)])
    names = {task.name for task in state.list_tasks(filters=[("name", "!=", "filtered 1")])}
    assert {"filtered 0", "filtered 2"} <= names
    assert "filtered 1" not in names
    both = [("name", "=", "FILTERED 1"), ("attempt_number", "=", "0")]
    assert len(state.list_tasks(filters=both)) == 1
    assert len(state.list_tasks(limit=2)) == 2
    for filters, text in [
        ([("nam", "=", 1)], "did you mean 'name'"),
        ([("zzz", "=", 1)], "they have task_id, attempt_number"),
        ([("name", ">", 1)], "= or !="),
        ([("name", "=")], "a filter is"),
        ("name=1", "must be a list"),
        (3, "must be a list"),
    ]:
        with pytest.raises(StateError, match=text):
            state.list_tasks(filters=filters)  # type: ignore[arg-type]
    for limit in (0, -1, True, 1.5):
        with pytest.raises(StateError, match="limit"):
            state.list_tasks(limit=limit)  # type: ignore[arg-type]
    with pytest.raises(StateError, match="timeout"):
        state.list_nodes(timeout=0)
    with pytest.raises(TypeError, match="nothing"):
        state.list_nodes(nothing=1)


@pytest.mark.near
def test_each_kind_of_thing_is_listed() -> None:
    context = hoplo.get_runtime_context()
    (node,) = state.list_nodes()
    assert (node.node_id, node.state) == (context.get_node_id(), "ALIVE")
    assert node.resources_total is not None
    assert node.resources_total["CPU"] > 0
    (job,) = state.list_jobs(filters=[("job_id", "=", context.get_job_id())])
    assert (job.status, job.type, job.end_time) == ("RUNNING", "DRIVER", None)
    assert job.driver_info == {"id": job.job_id, "pid": os.getpid()}
    ref = hoplo.put(bytes(1_000_000))
    (stored,) = state.get_objects(ref.hex())
    assert stored.object_size is not None
    assert stored.object_size >= 1_000_000
    assert stored.pid == os.getpid()
    group = placement_group([{"CPU": 1}], name="listed")
    assert group.wait(20)
    row = state.get_placement_group(group.id)
    assert row is not None
    assert (row.name, row.state, row.bundles[0]["node_id"]) == ("listed", "CREATED", node.node_id)
    assert "worker" in {worker.worker_type.lower() for worker in state.list_workers()}
    assert state.get_actor("0" * 32) is None
    assert state.get_task("0" * 32) is None
    assert state.get_worker("0" * 16) is None
    with pytest.raises(StateError, match="an id is text"):
        state.get_task(3)  # type: ignore[arg-type]
    with pytest.raises(StateError, match="an id is text"):
        state.get_actor(3)  # type: ignore[arg-type]


def test_rows_are_mappings_with_the_fields_that_there_are() -> None:
    job = JobState(job_id="1", type="DRIVER", status="RUNNING")
    assert dict(job) == job.asdict()
    assert job.get("status") == "RUNNING"
    assert job.get("message", "none") == "none"
    with pytest.raises(KeyError):
        job["message"]
    with pytest.raises(AttributeError):
        job.message  # type: ignore[attr-defined]
    assert json.dumps(job.asdict())


def test_summaries_count_by_name_class_and_state() -> None:
    hoplo.get([double.options(name="summed").remote(x) for x in range(4)])
    tasks = state.summarize_tasks()["cluster"]
    assert tasks["summary"]["summed"]["state_counts"] == {"FINISHED": 4}
    assert tasks["summary"]["summed"]["type"] == "NORMAL_TASK"
    counter = Counter.remote()
    hoplo.get(counter.add.remote())
    actors = state.summarize_actors()["cluster"]
    assert actors["summary"]["Counter"]["state_counts"]["ALIVE"] >= 1
    ref = hoplo.put(bytes(2_000_000))
    objects = state.summarize_objects()["cluster"]
    assert objects["total_size_mb"] >= 2
    del ref


def test_logs_are_listed_and_read() -> None:
    @hoplo.remote
    def says() -> int:
        print("said for the log")
        return os.getpid()

    ref = says.remote()
    pid = hoplo.get(ref)
    # What it printed is written behind its reply.
    name = f"worker-{pid}.out"
    eventually(lambda: name in state.list_logs(glob_filter="*.out").get("worker_out", []))

    def said(**whose: Any) -> bool:
        return any("said for the log" in line for line in state.get_log(**whose))

    eventually(lambda: said(pid=pid))
    assert said(task_id=ref.task_id(), tail=1000)
    assert said(filename=f"worker-{pid}.out")
    with pytest.raises(StateError, match="no node has a log"):
        state.get_log(filename="nothing")
    with pytest.raises(StateError, match="needs a filename"):
        state.get_log()


def test_what_a_driver_did_is_there_when_it_has_ended(tmp_path: Path) -> None:
    """Also when it was killed: what it had told by then."""
    program = """
import sys, time
import hoplo
hoplo.init(address=sys.argv[1])

@hoplo.remote
def of_the_past(x):
    return x

hoplo.get([of_the_past.options(name=sys.argv[2]).remote(x) for x in range(5)])
if sys.argv[2] == "killed":
    print("done", flush=True)
    time.sleep(1000)
"""
    address = _core.runtime_context()["address"]
    file = tmp_path / "program.py"
    file.write_text(program)
    subprocess.run([sys.executable, str(file), address, "left"], check=True, timeout=60)

    def finished(name: str) -> int:
        return len(state.list_tasks(filters=[("name", "=", name), ("state", "=", "FINISHED")]))

    assert finished("left") == 5
    ended = [job for job in state.list_jobs() if job.status == "SUCCEEDED"]
    assert any("program.py" in job.entrypoint and job.end_time for job in ended)
    with subprocess.Popen(
        [sys.executable, str(file), address, "killed"], stdout=subprocess.PIPE
    ) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == b"done\n"
        # Within its second.
        eventually(lambda: finished("killed") == 5)
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    assert finished("killed") == 5
    assert sum(event["name"] == "left" for event in hoplo.timeline() or []) == 5


def test_a_look_from_without_joins_the_node_that_runs() -> None:
    program = """
import sys
from hoplo.util import state
print([job.status for job in state.list_jobs(address=sys.argv[1])].count("RUNNING") >= 2)
"""
    address = _core.runtime_context()["address"]
    assert run_driver(program, address).stdout == "True\n"
    with pytest.raises(StateError, match="leave out address"):
        state.list_jobs(address="10.0.0.1:1234")


PROGRAM_OF_RAYS = """
import time

import ray
from ray.util.state import (
    get_actor, get_task, list_actors, list_nodes, list_objects, list_tasks, summarize_tasks,
)
from ray.util.state.common import TaskState
from ray.util.state.exception import RayStateApiException

ray.init(num_cpus=4)


@ray.remote
def task_running_300_seconds():
    time.sleep(300)


@ray.remote
def quick(x):
    return x


@ray.remote
class Actor:
    def ping(self):
        return "pong"


tasks = [task_running_300_seconds.remote() for _ in range(2)]
actors = [Actor.options(name=f"actor {i}").remote() for i in range(2)]
ray.get([actor.ping.remote() for actor in actors] + [quick.remote(i) for i in range(3)])
while len(list_tasks(filters=[("state", "=", "RUNNING")])) < 2:
    time.sleep(0.01)

running = list_tasks(filters=[("name", "=", "task_running_300_seconds")], detail=True)
print([(task.state, task["type"]) for task in running], isinstance(running[0], TaskState))
print(get_task(tasks[0].task_id()).task_id == tasks[0].task_id().hex())
alive = list_actors(address="auto", filters=[("state", "=", "ALIVE")], limit=10, timeout=30)
print(sorted(actor.name for actor in alive), get_actor(actors[0]._actor_id).class_name)
print(list_nodes()[0].state, list_nodes()[0].is_head_node in (True, False))
big = ray.put(bytes(1_000_000))
print(any(o.object_id == big.hex() for o in list_objects(raise_on_missing_output=False)))
print(summarize_tasks()["cluster"]["summary"]["quick"]["state_counts"])
try:
    list_tasks(filters=[("nothing", "=", 1)])
except RayStateApiException:
    print("refused")
for task in tasks:
    ray.cancel(task)
"""


def test_a_program_in_the_style_of_rays_documentation_runs_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM_OF_RAYS)
    done = subprocess.run(
        [sys.executable, "-m", "hoplo.ray", str(file)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.splitlines() == [
        "[('RUNNING', 'NORMAL_TASK'), ('RUNNING', 'NORMAL_TASK')] True",
        "True",
        "['actor 0', 'actor 1'] Actor",
        "ALIVE True",
        "True",
        "{'FINISHED': 3}",
        "refused",
    ], done.stderr
