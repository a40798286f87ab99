"""Drivers: each on a node of its own, and what is left of them on all nodes when they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
from far import Counter, echo
from machines import CommandError, alive, until

import hoplo

HERE = str(Path(__file__).resolve().parent)

BEGINS = """
from far import Counter, Keeper, echo, ones, where
from processes import forever
from hoplo.util.scheduling_strategies import NodeAffinitySchedulingStrategy
hoplo.init(address="auto")
strategies = [NodeAffinitySchedulingStrategy(node) for node in sys.argv[1:]]
"""

WORKS = (
    BEGINS
    + """
notes = os.environ["NOTES"]  # of this program: workers elsewhere have the environment of their node

@hoplo.remote
def sleeps():
    open(os.path.join(notes, str(os.getpid())), "w").close()
    forever()

actors = [Counter.options(scheduling_strategy=s, num_cpus=0).remote() for s in strategies]
hoplo.get([actor.add.remote() for actor in actors])
objects = [ones.options(scheduling_strategy=s).remote(1_000_000) for s in strategies]
hoplo.wait(objects, num_returns=len(objects))
running = [sleeps.options(scheduling_strategy=s).remote() for s in strategies]
queued = [sleeps.options(scheduling_strategy=s, num_cpus=2).remote() for s in strategies]
say(hoplo.get([actor.pid.remote() for actor in actors]))
heard()
"""
)


def paths() -> str:
    tests = Path(HERE).parents[1] / "python" / "tests"
    return os.pathsep.join((HERE, str(tests)))


def program(far: Any, number: int, source: str, **more: str) -> Any:
    return far.machines[number].program(source, *far.ids, PYTHONPATH=paths(), **more)


def rows(far: Any) -> list[Any]:
    """Of workers that do something, actors that live, objects and unfinished tasks."""
    found: list[Any] = far.objects()
    for machine in far.machines:
        found += machine.listed("tasks")
        found += [row for row in machine.listed("actors") if row["state"] != "DEAD"]
    return found


# Refs go to actors of all nodes faster than the tasks run that make them.
SPREADS_REFS = (
    BEGINS
    + """
@hoplo.remote
class Holds:
    def __init__(self):
        self.held = []
    def hold(self, inside):
        self.held.append(inside)

@hoplo.remote
def makes():
    return np.ones(500_000, np.uint8)

import numpy as np
actors = [Holds.options(scheduling_strategy=s, num_cpus=0).remote() for s in strategies * 2]
while True:
    refs = [makes.options(scheduling_strategy="SPREAD").remote() for _ in range(20)]
    hoplo.get([actor.hold.remote([ref]) for actor in actors for ref in refs])
    say("round")
"""
)

# ------------------------------------------------------------------------------- they end


def test_what_a_node_said_was_heard_in_another_order_at_the_end_of_a_sweep(make_far: Any) -> None:
    """Then no claim and no release of that node counted any more, and all that it used stayed."""
    far = make_far(nodes=3)
    hoplo.shutdown()
    for round_ in range(5):
        programs = [program(far, number, SPREADS_REFS) for number in range(3)]
        for running in programs:
            for _ in range(60 + 10 * round_):
                assert running.heard() == "round"
        for running in programs:
            running.kill()
        until(lambda: rows(far) == [], 20, "nothing is left")


@pytest.mark.parametrize("number", [0, 1], ids=["at the head", "at a node that joined"])
def test_nothing_is_left_anywhere_of_a_driver_that_was_killed(
    far: Any, number: int, tmp_path: Path
) -> None:
    driver = program(far, number, WORKS, NOTES=str(tmp_path))
    actors = driver.heard()
    until(lambda: len(list(tmp_path.iterdir())) == 3, what="a task runs on each node")
    pids = actors + [int(path.name) for path in tmp_path.iterdir()]
    assert all(alive(pid) for pid in pids)
    driver.kill()
    began = time.monotonic()
    until(lambda: not any(alive(pid) for pid in pids), 3, "its processes are gone")
    until(lambda: not rows(far), 3, "no node knows anything of it")
    assert time.monotonic() - began < 3


def test_nothing_is_left_of_a_driver_that_ends_in_order(far: Any, tmp_path: Path) -> None:
    driver = program(far, 1, WORKS, NOTES=str(tmp_path))
    pids = driver.heard()
    driver.tell()
    driver.end()
    until(lambda: not any(alive(pid) for pid in pids), 3)
    until(lambda: not rows(far), 3)


def test_a_driver_that_is_stopped_keeps_what_it_has(far: Any, tmp_path: Path) -> None:
    driver = program(far, 2, WORKS, NOTES=str(tmp_path))
    pids = driver.heard()
    driver.kill(signal.SIGSTOP)
    # Another driver works meanwhile, on the same nodes.
    refs = [echo.options(scheduling_strategy=far.on(n), num_cpus=0).remote(n) for n in range(3)]
    assert hoplo.get(refs, timeout=20) == [0, 1, 2]
    assert all(alive(pid) for pid in pids)
    driver.kill(signal.SIGCONT)
    driver.tell()
    driver.end()
    until(lambda: not any(alive(pid) for pid in pids), 3)


def test_an_error_of_one_driver_is_not_anothers(far: Any) -> None:
    counter = Counter.options(scheduling_strategy=far.on(1), num_cpus=0).remote()
    assert hoplo.get(counter.add.remote(), timeout=20) == 1
    bad = BEGINS + "hoplo.get(echo.options(scheduling_strategy=strategies[1]).remote(1))\n1 / 0\n"
    with pytest.raises(CommandError, match="ZeroDivisionError"):
        program(far, 1, bad).end()
    assert hoplo.get(counter.add.remote(), timeout=20) == 2


# ------------------------------------------------------------------------------- they work


@pytest.mark.parametrize("number", [1, 2])
def test_a_driver_at_a_node_that_joined_uses_all_nodes(far: Any, number: int) -> None:
    source = BEGINS + (
        "say(hoplo.get([where.options(scheduling_strategy=s).remote() for s in strategies]))\n"
        "say(hoplo.get_runtime_context().get_node_id())\n"
    )
    driver = program(far, number, source)
    assert driver.heard() == far.ids
    assert driver.heard() == far.ids[number]
    driver.end()


def test_drivers_on_all_nodes_at_once(far: Any) -> None:
    source = BEGINS + (
        "refs = [echo.options(scheduling_strategy=strategies[i % 3]).remote(i)\n"
        "        for i in range(300)]\n"
        "say(sum(hoplo.get(refs)))\n"
    )
    drivers = [program(far, number, source) for number in (0, 1, 2, 0, 1, 2)]
    for driver in drivers:
        assert driver.heard() == 44850
    for driver in drivers:
        driver.end()


def test_two_drivers_meet_by_a_named_actor(far: Any) -> None:
    one = BEGINS + (
        "actor = Counter.options(name='meeting', namespace='both', lifetime='detached',\n"
        "    scheduling_strategy=strategies[2], num_cpus=0).remote()\n"
        "say(hoplo.get(actor.add.remote()))\n"
    )
    two = BEGINS + (
        "say(hoplo.get(hoplo.get_actor('meeting', namespace='both').add.remote()))\n"
        "hoplo.kill(hoplo.get_actor('meeting', namespace='both'))\n"
    )
    for number, source, count in ((0, one, 1), (1, two, 2)):
        driver = program(far, number, source)
        assert driver.heard() == count
        driver.end()


def test_a_program_that_a_far_worker_imports_from_the_drivers_folder(
    far: Any, tmp_path: Path
) -> None:
    (tmp_path / "beside.py").write_text("COLOUR = 'green'\n")
    source = BEGINS + (
        "sys.path.insert(0, os.environ['BESIDE'])\n"
        "@hoplo.remote\n"
        "def colour():\n"
        "    import beside\n"
        "    return beside.COLOUR\n"
        "hoplo.shutdown()\n"
        "hoplo.init(address='auto')\n"
        "say(hoplo.get(colour.options(scheduling_strategy=strategies[1]).remote()))\n"
    )
    driver = program(far, 0, source, BESIDE=str(tmp_path))
    assert driver.heard() == "green"
    driver.end()


def test_a_job_whose_drivers_node_died_ran_until_the_head_started_again(make_far: Any) -> None:
    far = make_far(3)
    waits = "import hoplo\nhoplo.init(address='auto')\nsay(1)\nheard()\n"
    program = far.machines[1].program(waits)
    assert program.heard() == 1
    far.kill_node(1)

    def jobs(machine: Any) -> list[str]:
        found = machine.listed("jobs")
        return [row["state"] for row in found if row["node"] == far.ids[1]]

    for machine in (far.machines[0], far.machines[2]):
        until(lambda m=machine: jobs(m) == ["ended"], what="it is known that it ended")


SHARES = textwrap.dedent("""
    import os, sys, hoplo
    from hoplo.util.scheduling_strategies import NodeAffinitySchedulingStrategy as At
    ids = sys.argv[2].split(",")
    hoplo.init(address=sys.argv[1], namespace="shares")
    @hoplo.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)
    class Kept:
        def pid(self):
            return os.getpid()
    @hoplo.remote(num_cpus=0)
    def makes(name):
        options = {"name": name, "lifetime": "detached"} if name else {}
        return hoplo.get(Kept.options(**options).remote().pid.remote())
    def at(number):
        return At(ids[number], soft=False)
    near = Kept.options(name="near", lifetime="detached", scheduling_strategy=at(0)).remote()
    hoplo.get([near.pid.remote(), makes.options(scheduling_strategy=at(1)).remote("")])
    hoplo.get(makes.options(scheduling_strategy=at(2)).remote("far"))
""")


def test_a_detached_actor_starts_again_when_no_other_node_needs_its_class(make_far: Any) -> None:
    """The first node that had no use for it any more deleted it for all."""
    far = make_far(3)
    session, ids = str(far.machines[0].session), ",".join(far.ids)
    subprocess.run([sys.executable, "-c", SHARES, session, ids], check=True, timeout=60)
    head = far.machines[0]
    [job] = [row["job_id"] for row in head.listed("jobs") if row["namespace"] == "shares"]

    def left() -> list[Any]:
        rows = [row for row in head.listed("workers") if row["job_id"] == job]
        return [row for row in rows if row["node"] == far.ids[1] or row["kind"] == "driver"]

    until(lambda: not left(), 10, "its job has ended, and left that node")
    for name in ("near", "far"):
        actor = hoplo.get_actor(name, namespace="shares")
        pid = hoplo.get(actor.pid.remote(), timeout=20)
        os.kill(pid, signal.SIGKILL)
        assert hoplo.get(actor.pid.remote(), timeout=30) != pid
        hoplo.kill(actor)
