"""The head is away: what it alone knows is not known, and nobody is told that it is not there."""

from __future__ import annotations

import os
import signal
from typing import Any

from machines import alive, until

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
