"""The head is away: what it alone knows is not known, and nobody is told that it is not there."""

from __future__ import annotations

import os
import resource
import signal
from typing import Any

from machines import Machine, alive, until

MAKES = """
import concurrent.futures
import hoplo.util as util
import hoplo.util.scheduling_strategies

hoplo.init(address="auto", namespace="t")

@hoplo.remote(num_cpus=0)
class Counter:
    def __init__(self):
        self.count = 0
    def add(self):
        self.count += 1
        return self.count

def outcome(call):
    try:
        return ["found", str(call())]
    except Exception as error:
        return [type(error).__name__, str(error)]

@hoplo.remote(num_cpus=0)
def makes():
    made = Counter.options(name="kept", lifetime="detached").remote()
    return hoplo.get(made.add.remote())

# Its home is not this node, which would know.
there = util.scheduling_strategies.NodeAffinitySchedulingStrategy(sys.argv[1], soft=False)
count = hoplo.get(makes.options(scheduling_strategy=there).remote())
counter = hoplo.get_actor("kept")
group = util.placement_group([{"CPU": 1}], name="kept", lifetime="detached")
say(count, group.wait(20))
heard()

def again():
    return Counter.options(name="kept", get_if_exists=True).remote()

ASKS = {
    "lookup": lambda: hoplo.get_actor("kept") == counter,
    "get_if_exists": lambda: again() == counter,
    "group": lambda: util.get_placement_group("kept") == group,
    "table": lambda: util.placement_group_table(group)["name"],
    "all": lambda: [row["name"] for row in util.placement_group_table().values() if row["name"]],
}

with concurrent.futures.ThreadPoolExecutor(8) as pool:
    made = pool.submit(lambda: util.placement_group([{"CPU": 1}]).wait(60))
    futures = {name: pool.submit(outcome, ask) for name, ask in ASKS.items()}
    say({name: future.result() for name, future in futures.items()})
    say(hoplo.get(counter.add.remote()), made.done())
    heard()
    say({name: outcome(ask) for name, ask in ASKS.items()})
    say(made.result())
"""


def kill_head(far: Any) -> None:
    pid = far.machines[0].pid
    os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(pid))


def test_an_actor_and_a_group_were_said_to_be_gone_while_the_head_was_away(make_far: Any) -> None:
    far = make_far(3)
    program = far.machines[1].program(MAKES, far.ids[2])
    assert program.heard() == [1, True]
    kill_head(far)
    program.tell()
    said = program.heard()
    kinds = {name: kind for name, (kind, _) in said.items()}
    assert kinds == {
        "lookup": "ActorUnavailableError",
        "get_if_exists": "ActorUnavailableError",
        "group": "HoploError",
        "table": "HoploError",
        "all": "HoploError",
    }
    silence = f"the head ({far.joining.address}) has not answered for 1"
    assert all(silence in text for _, text in said.values()), said
    assert program.heard() == [2, False], "the actor lives, and a new group waits"
    line = f"a placement group is not made yet: the head ({far.joining.address})"
    assert line in program.errors.read_text()
    far.head_again()
    program.tell()
    assert program.heard() == {
        "lookup": ["found", "True"],
        "get_if_exists": ["found", "True"],
        "group": ["found", "True"],
        "table": ["found", "kept"],
        "all": ["found", "['kept']"],
    }
    assert program.heard() is True, "a new head makes the group that waited"
    program.end()


MAKES_GROUP = """
import hoplo.util as util

hoplo.init(address="auto", namespace="t")
try:
    say(util.placement_group([{"CPU": 1}], name="kept", lifetime="detached").wait(20))
except hoplo.exceptions.HoploError as error:
    say(type(error).__name__, str(error))
"""

FINDS_GROUP = """
import hoplo.util as util

hoplo.init(address="auto", namespace="t")
try:
    say(util.get_placement_group("kept").wait(20))
except ValueError as error:
    say(str(error))
"""


def limit_files(machine: Machine, nbytes: int) -> None:
    """Lets the daemon write no file beyond this size: its disk is as good as full."""
    hard = resource.prlimit(machine.pid, resource.RLIMIT_FSIZE)[1]
    resource.prlimit(machine.pid, resource.RLIMIT_FSIZE, (nbytes, hard))


def test_a_detached_group_was_lost_with_a_head_whose_disk_was_full(make_far: Any) -> None:
    far = make_far(2)
    head, other = far.machines
    limit_files(head, 1)
    kind, why = other.run(MAKES_GROUP)
    assert kind == "HoploError"
    assert "the control store did not take its row: the disk of the control store is full" in why
    assert "control  the store takes no rows: the disk" in other.hoplo("status").stdout
    limit_files(head, resource.RLIM_INFINITY)
    assert "there is no placement group" in other.run(FINDS_GROUP)
    assert other.run(MAKES_GROUP) is True, "its name is free, and the disk has room"
    assert "takes no rows" not in other.hoplo("status").stdout
    kill_head(far)
    far.head_again()
    assert other.run(FINDS_GROUP) is True
    rows = other.listed("placement-groups")
    assert [row["name"] for row in rows if row["state"] != "REMOVED"] == ["kept"], "and no other"


def test_a_node_that_is_stopped_is_dead_by_its_head_and_waits_for_none(make_far: Any) -> None:
    far = make_far(3)
    far.killed.add(1)
    far.machines[1].leave()
    rows = {row["NodeID"]: row for row in far.machines[0].listed("nodes")}
    stopped = rows[far.ids[1]]
    assert (stopped["State"], stopped["Reason"]) == ("DEAD", "it was stopped")
    far.kill_daemon(0)
    far.killed.add(2)
    pid = far.machines[2].pid
    far.machines[2].leave()
    until(lambda: not alive(pid), 10, "its daemon has ended")
