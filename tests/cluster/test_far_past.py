"""What has run is known when the daemon that remembered it is dead: the control store has it."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

from machines import Machine, alive, until
from test_heads import heads  # noqa: F401

RUNS = """
    import sys
    hoplo.init(address="auto")
    @hoplo.remote(num_cpus=0)
    def square(x):
        return x * x
    @hoplo.remote(num_cpus=0)
    def fails():
        raise ValueError("no such thing")
    @hoplo.remote(num_cpus=0)
    class Shop:
        def sell(self, price):
            return price
    assert hoplo.get([square.remote(x) for x in range(int(sys.argv[1]))])
    shop = Shop.remote()
    assert hoplo.get(shop.sell.remote(3)) == 3
    hoplo.wait([fails.remote()])
    say(1)
"""

STATE = """
    from hoplo.util import state
    hoplo.init(address="auto")
    tasks = state.list_tasks(limit=1_000_000)
    [failed] = [task for task in tasks if task.state == "FAILED"]
    [square] = [task for task in tasks if task.name == "square"][:1]
    [job] = [job for job in state.list_jobs() if job.job_id == square.job_id]
    say(
        sum(task.name == "square" for task in tasks),
        [task.type for task in tasks if task.name == "Shop.sell"],
        failed.error_message,
        job.status,
        [actor.state for actor in state.list_actors() if actor.class_name == "Shop"],
        square.start_time_ms is not None and job.start_time <= square.start_time_ms
            <= square.end_time_ms <= job.end_time + 1000,
    )
"""

ALL_OF_IT = ["ACTOR_TASK"], "ValueError: no such thing", "SUCCEEDED", ["DEAD"], True


def squares(machine: Machine) -> int:
    told = json.loads(machine.hoplo("list", "tasks", "--ended", "--json").stdout)
    rows = told["tasks"] if isinstance(told, dict) else told
    return sum(row["name"] == "square" for row in rows)


def wait_until_written(machine: Machine, count: int) -> None:
    """The daemon has read all that a driver that left told of its tasks, and has written it."""
    until(lambda: squares(machine) == count, what="it knows of all that ran")
    until(lambda: machine.status()["history_written"] is True, what="its rows are written")


def test_what_ran_on_a_head_is_known_after_it_was_killed_and_started_again(make_far: Any) -> None:
    far = make_far(1)
    assert far.machines[0].run(RUNS, "50") == 1
    wait_until_written(far.machines[0], 50)
    for _ in range(2):
        far.kill_daemon(0)
        far.head_again()
        assert squares(far.machines[0]) == 50
        assert far.machines[0].run(STATE) == [50, *ALL_OF_IT]


def test_what_the_callers_of_a_node_ran_is_known_after_its_death_and_that_of_the_head(
    make_far: Any,
) -> None:
    far = make_far(3)
    assert far.machines[1].run(RUNS, "300") == 1
    wait_until_written(far.machines[1], 300)
    far.kill_node(1)
    for machine in (far.machines[0], far.machines[2]):
        until(lambda m=machine: m.states().count("ALIVE") == 2)
        assert machine.run(STATE) == [300, *ALL_OF_IT]
    far.kill_daemon(0)
    far.head_again()
    assert far.machines[0].run(STATE) == [300, *ALL_OF_IT]


def test_a_node_that_stops_in_order_leaves_all_that_its_callers_ran(make_far: Any) -> None:
    far = make_far(2)
    assert far.machines[1].run(RUNS, "20") == 1
    far.machines[1].leave()  # at once: nothing was due to be written
    until(lambda: far.machines[0].states().count("ALIVE") == 1)
    assert far.machines[0].run(STATE) == [20, *ALL_OF_IT]


def test_heads_over_control_nodes_know_what_ran_on_those_before(heads: Any) -> None:  # noqa: F811
    one = heads()
    first, second = one.machine(2), one.machine(2)
    one.head(first)
    assert one.head(second) is None
    assert first.run(RUNS, "20") == 1
    wait_until_written(first, 20)
    pid = first.pid
    os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(pid))
    until(lambda: second.states().count("ALIVE") == 1, what="the other one is head")
    assert second.run(STATE) == [20, *ALL_OF_IT]


def test_heads_over_control_nodes_know_that_a_job_ended_with_its_drivers_node(
    heads: Any,  # noqa: F811
) -> None:
    one = heads()
    head = one.machine()
    joining = one.head(head)
    # At the second death the head reads again what it wrote at the first one.
    for count in (1, 2):
        node = one.machine(2)
        node.join(joining)
        program = node.program("import hoplo\nhoplo.init(address='auto')\nsay(1)\nheard()\n")
        assert program.heard() == 1
        node.kill()
        ended = ["ended"] * count
        until(lambda e=ended: [row["state"] for row in head.listed("jobs")] == e, what="it ended")
