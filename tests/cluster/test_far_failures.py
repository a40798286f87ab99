"""Nodes die under load: what ran there runs again or is told as failed, and nothing hangs."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
from far import MIB, Counter, busy, count_bytes, echo, here, ones, where
from machines import until

import hoplo
from hoplo.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    HoploError,
    NodeDiedError,
    ObjectLostError,
    WorkerCrashedError,
)

LOST = (NodeDiedError, ObjectLostError, WorkerCrashedError)

ENDS = pytest.mark.parametrize("ends", ["node", "daemon"])
"""All of its processes at once, or the daemon alone."""


def end(far: Any, number: int, ends: str) -> None:
    (far.kill_node if ends == "node" else far.kill_daemon)(number)


@ENDS
def test_tasks_of_a_node_that_dies_run_elsewhere(make_far: Any, notes: Any, ends: str) -> None:
    far = make_far(3)

    @hoplo.remote(max_retries=2, num_cpus=1)
    def work(i: int) -> tuple[int, str]:
        notes.add(here())
        time.sleep(0.05)  # a task that takes its time
        return i, here()

    refs = [work.options(scheduling_strategy="SPREAD").remote(i) for i in range(100)]
    until(lambda: notes.lines().count(far.ids[2]) >= 3, what="it runs some of them")
    end(far, 2, ends)
    results = hoplo.get(refs, timeout=60)
    assert [i for i, _ in results] == list(range(100))
    assert len(notes.lines()) < 150, "what had ended did not run again"


def test_tasks_bound_to_a_node_that_dies_fail(make_far: Any, gate: Any) -> None:
    far = make_far(2)

    @hoplo.remote(max_retries=0)
    def held() -> None:
        gate.wait()

    refs = [held.options(scheduling_strategy=far.on(1)).remote() for _ in range(4)]
    until(lambda: gate.arrived() == 2)
    far.kill_node(1)
    failed = 0
    for ref in refs:
        try:
            hoplo.get(ref, timeout=5)
        except HoploError:
            failed += 1
    assert failed == 4
    for ref in refs:
        hoplo.cancel(ref)


def test_a_soft_affinity_goes_elsewhere_when_its_node_died(make_far: Any) -> None:
    far = make_far(2)
    strategy = far.on(1, soft=True)
    assert hoplo.get(where.options(scheduling_strategy=strategy).remote(), timeout=20) == far.ids[1]
    far.kill_node(1)
    ref = where.options(scheduling_strategy=strategy).remote()
    assert hoplo.get(ref, timeout=20) == far.ids[0]


@ENDS
def test_an_actor_of_a_node_that_dies_is_dead(make_far: Any, ends: str) -> None:
    far = make_far(2)
    counter = Counter.options(scheduling_strategy=far.on(1), num_cpus=0).remote()
    assert hoplo.get(counter.add.remote(), timeout=20) == 1
    end(far, 1, ends)
    with pytest.raises((ActorDiedError, ActorUnavailableError)):
        hoplo.get(counter.add.remote(), timeout=20)

    def says() -> str | None:
        try:
            hoplo.get(counter.add.remote(), timeout=20)
        except ActorDiedError as error:
            return str(error)
        return None

    said = until(says)
    assert re.search(r"its node \(.*\) died: ", said), said
    assert "was stopped: its node" not in said, "nothing was stopped"


def test_an_actor_that_may_restart_does_so_on_another_node(make_far: Any) -> None:
    far = make_far(3)
    options = {"max_restarts": 1, "max_task_retries": 2, "num_cpus": 0}
    counter = Counter.options(scheduling_strategy=far.on(1, soft=True), **options).remote()
    assert hoplo.get(counter.where.remote(), timeout=20) == far.ids[1]
    far.kill_node(1)
    assert hoplo.get(counter.where.remote(), timeout=20) in (far.ids[0], far.ids[2])


def test_a_value_that_was_read_before_its_node_died_is_still_here(make_far: Any) -> None:
    far = make_far(2)
    ref = ones.options(scheduling_strategy=far.on(1)).remote(MIB)
    assert hoplo.get(ref, timeout=20).nbytes == MIB
    far.kill_node(1)
    until(lambda: far.machines[0].states() == ["ALIVE", "DEAD"])
    assert hoplo.get(count_bytes.remote(ref), timeout=20) == MIB


def test_a_node_dies_while_its_bytes_move(make_far: Any) -> None:
    far = make_far(3)
    refs = [ones.options(scheduling_strategy=far.on(1)).remote(50 * MIB) for _ in range(4)]
    hoplo.wait(refs, num_returns=4, timeout=30, fetch_local=False)
    readers = [count_bytes.options(scheduling_strategy=far.on(2)).remote(ref) for ref in refs]
    far.kill_node(1)
    for ref in readers:
        try:
            assert hoplo.get(ref, timeout=20) == 50 * MIB
        except LOST:
            pass
    # Nothing of it is stuck: the same node reads something else.
    array = hoplo.put(b"x" * MIB)
    assert len(hoplo.get(echo.options(scheduling_strategy=far.on(2)).remote(array), timeout=20))


def test_what_a_dead_node_borrowed_is_freed(make_far: Any) -> None:
    from far import Keeper

    far = make_far(2)
    keeper = Keeper.options(scheduling_strategy=far.on(1), num_cpus=0).remote()
    value = hoplo.put(b"x" * MIB)
    hoplo.get(keeper.keep.remote([value]), timeout=20)
    del value
    assert far.machines[0].objects()
    far.kill_node(1)
    del keeper
    far.until_no_objects()


def test_a_driver_whose_node_dies_has_nothing_left_on_others(make_far: Any) -> None:
    far = make_far(3)
    source = """
    from far import Counter
    from hoplo.util.scheduling_strategies import NodeAffinitySchedulingStrategy
    hoplo.init(address="auto")
    strategies = [NodeAffinitySchedulingStrategy(node) for node in sys.argv[1:]]
    actors = [Counter.options(scheduling_strategy=s, num_cpus=0).remote() for s in strategies]
    say(hoplo.get([actor.pid.remote() for actor in actors]))
    heard()
    """
    path = os.path.dirname(os.path.abspath(__file__))
    driver = far.machines[1].program(source, *far.ids, PYTHONPATH=path)
    pids = driver.heard()
    far.kill_node(1)
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), 5)


def test_nodes_come_and_go_while_tasks_run(make_far: Any) -> None:
    far = make_far(2)
    refs = [
        busy.options(scheduling_strategy="SPREAD", num_cpus=1, max_retries=-1).remote(0.02)
        for _ in range(200)
    ]
    for _ in range(3):
        number = far.add()
        until(lambda: far.machines[0].states().count("ALIVE") == 3)
        far.kill_node(number)
        until(lambda: far.machines[0].states().count("ALIVE") == 2)
    assert len(hoplo.get(refs, timeout=60)) == 200


def test_a_node_that_is_cut_off_for_300_ms_goes_on_with_its_calls(make_lab: Any) -> None:
    source = """
    from far import Counter
    from hoplo.util.scheduling_strategies import NodeAffinitySchedulingStrategy
    hoplo.init(address="auto")
    [there] = [n["NodeID"] for n in hoplo.nodes() if n["NodeManagerAddress"] != "10.199.0.1"]
    counter = Counter.options(
        scheduling_strategy=NodeAffinitySchedulingStrategy(there), num_cpus=0).remote()
    say(hoplo.get(counter.add.remote()))
    heard()
    refs = [counter.add.remote() for _ in range(1000)]
    say("called")
    say(hoplo.get(refs) == list(range(2, 1002)))
    """
    path = os.path.dirname(os.path.abspath(__file__))

    def cut_off() -> float:
        """How long it really was, on this machine."""
        lab = make_lab(nodes=2)
        lab.cluster()
        program = lab[1].program(source, PYTHONPATH=path)
        assert program.heard() == 1
        began = time.monotonic()
        with lab.without(2):
            program.tell()
            assert program.heard() == "called"
            time.sleep(0.3)  # the length of the cut is what is tried
        lasted = time.monotonic() - began
        if lasted < 0.4:
            assert program.heard() is True
            program.end()
            assert lab[1].states() == ["ALIVE", "ALIVE"]
        return lasted

    lasted = [cut_off()]
    while lasted[-1] >= 0.4 and len(lasted) < 10:
        lasted.append(cut_off())  # too long, which proves nothing
    assert min(lasted) < 0.4, f"this machine is too busy to cut a link for 0.3 s: {lasted}"


def test_a_node_that_is_cut_off_for_long_runs_nothing_twice_at_a_time(
    make_lab: Any, notes: Any
) -> None:
    """What ran on it is run elsewhere after the verdict; the node itself ends its workers."""
    lab = make_lab(nodes=3)
    head, *_ = lab.cluster()
    source = """
    import processes
    from hoplo.util.scheduling_strategies import NodeAffinitySchedulingStrategy
    hoplo.init(address="auto")
    [there] = [n["NodeID"] for n in hoplo.nodes() if n["NodeManagerAddress"] == "10.199.0.2"]
    notes = processes.Notes(sys.argv[1])

    @hoplo.remote(max_retries=1)
    def runs():
        place = hoplo.get_runtime_context().get_node_id()
        if notes.add(os.getpid()) == 1:
            processes.forever()
        return place

    strategy = NodeAffinitySchedulingStrategy(there, soft=True)
    ref = runs.options(scheduling_strategy=strategy).remote()
    say(there)
    say(hoplo.get(ref))
    """
    tests = Path(__file__).resolve().parents[2] / "python" / "tests"
    program = head.program(source, notes.path, PYTHONPATH=str(tests))
    there = program.heard()
    [pid] = until(notes.pids)
    lab.cut(2)
    assert program.heard() != there
    program.end()
    lab.heal(2)
    until(lambda: not Path(f"/proc/{pid}").exists(), what="the fenced worker has ended")
    until(lambda: head.states() == ["ALIVE", "ALIVE", "ALIVE", "DEAD"])
