"""An allreduce over links of 200 Mbit/s: what each carries, and a node that is lost meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from far import MIB
from machines import until

BYTES = 32 * MIB
NODES = range(1, 5)

SOURCE = """
import json, sys
import numpy as np
from hoplo.util.scheduling_strategies import NodeAffinitySchedulingStrategy

hoplo.init(address="auto")
nbytes = int(sys.argv[1])

@hoplo.remote
def member(number):
    return np.arange(nbytes // 8, dtype=np.uint64) + number

@hoplo.remote
def reads(refs, want):
    right = np.arange(nbytes // 8, dtype=np.uint64) * want[0] + want[1]
    return bool(np.array_equal(hoplo.get(refs[0]), right))

def at(task, address):
    [node] = [n["NodeID"] for n in hoplo.nodes() if n["NodeManagerAddress"] == address]
    return task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=True))

addresses = json.loads(sys.argv[2])
hoplo.get(hoplo.reduce([hoplo.put(np.zeros(1))]))  # its worker is warm
refs = [at(member, address).remote(number) for number, address in enumerate(addresses)]
hoplo.wait(refs, num_returns=len(refs), fetch_local=False)
say("ready")
heard()
want = (len(refs), sum(range(len(refs))))
total = hoplo.allreduce(refs)
right = [at(reads, address).remote([total], want) for address in addresses]
say(hoplo.get(right, timeout=100))
del refs, total, right
heard()
"""


class Allreduce:
    """Four nodes with a member each, which are about to be reduced at all of them."""

    def __init__(self, lab: Any) -> None:
        self.lab = lab
        lab.cluster()
        addresses = [lab.address(number) for number in NODES]
        arguments = (str(BYTES), str(addresses).replace("'", '"'))
        self.program = lab[1].program(SOURCE, *arguments)
        assert self.program.heard() == "ready"
        self.before = {number: lab.moved(number) for number in NODES}

    def moved(self, what: str) -> dict[int, int]:
        now = {number: self.lab.moved(number) for number in NODES}
        return {number: int(now[number][what] - self.before[number][what]) for number in NODES}

    def is_half_way(self) -> bool:
        return all(moved > BYTES // 2 for moved in self.moved("rx_bytes").values())

    def end(self) -> None:
        self.program.tell()
        self.program.end()


@pytest.fixture
def allreduce(make_lab: Any) -> Allreduce:
    return Allreduce(make_lab(nodes=4, rate=200e6))


def test_each_link_carries_three_halves_of_a_member(allreduce: Allreduce) -> None:
    allreduce.program.tell("go")
    assert allreduce.program.heard() == [True] * 4
    # 2 (n - 1) / n: a chain and its readers would take 2 of the nodes in its middle.
    for what in ("tx_bytes", "rx_bytes"):
        moved = allreduce.moved(what)
        assert all(1.5 * BYTES < nbytes < 1.65 * BYTES for nbytes in moved.values()), (what, moved)
    allreduce.end()


def kill(allreduce: Allreduce, number: int) -> None:
    allreduce.lab[number].kill()


def silence(allreduce: Allreduce, number: int) -> None:
    allreduce.lab.cut(number)


@pytest.mark.parametrize("ends", [kill, silence])
def test_a_node_of_the_ring_is_lost_and_the_sums_are_right(
    allreduce: Allreduce, ends: Callable[[Allreduce, int], None]
) -> None:
    allreduce.program.tell("go")
    until(allreduce.is_half_way)
    ends(allreduce, 3)
    assert allreduce.program.heard() == [True] * 4
    allreduce.end()
