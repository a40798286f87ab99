"""An allreduce over links of 200 Mbit/s: what each carries, a node that is lost meanwhile, and a
slow link."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from far import MIB
from machines import until

BYTES = 32 * MIB
NODES = range(1, 5)

SOURCE = """
import asyncio, json, sys
import numpy as np
from hoplo import _core
from hoplo.util.scheduling_strategies import NodeAffinitySchedulingStrategy

hoplo.init(address="auto")
nbytes = int(sys.argv[1])

@hoplo.remote(num_cpus=0)
class Gate:
    def __init__(self, count):
        self.events = [asyncio.Event() for _ in range(count)]

    async def opens(self, number):
        self.events[number].set()

    async def passes(self, number):
        await self.events[number].wait()

@hoplo.remote
def member(number, _gate):
    return np.arange(nbytes // 8, dtype=np.uint64) + number

@hoplo.remote
def reads(refs, want):
    right = np.arange(nbytes // 8, dtype=np.uint64) * want[0] + want[1]
    return bool(np.array_equal(hoplo.get(refs[0]), right))

# Not what nodes folded for it, but an array that gets its slot.
@hoplo.remote(num_cpus=0)
def gives_another(refs):
    def batches():
        waiting = refs
        while waiting:
            there, waiting = hoplo.wait(waiting, fetch_local=False)
            yield there, bool(waiting)
    folded = _core.fold_as_they_come("sum", len(refs), batches())
    assert folded is not None
    del folded
    return np.arange(nbytes // 8, dtype=np.uint64)

def at(task, address):
    [node] = [n["NodeID"] for n in hoplo.nodes() if n["NodeManagerAddress"] == address]
    return task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=True))

addresses = json.loads(sys.argv[2])
hoplo.get(hoplo.reduce([hoplo.put(np.zeros(1))]))  # its worker is warm
numbers = range(len(addresses))
gate = Gate.remote(len(addresses))
refs = [at(member, addresses[it]).remote(it, gate.passes.remote(it)) for it in numbers]
is_late, is_another = (word in sys.argv[3:] for word in ("late", "another"))
if not is_late:
    hoplo.get([gate.opens.remote(it) for it in numbers])
    hoplo.wait(refs, num_returns=len(refs), fetch_local=False)
say("ready")
heard()
want = (1, 0) if is_another else (len(refs), sum(numbers))
total = at(gives_another, addresses[0]).remote(refs) if is_another else hoplo.allreduce(refs)
if is_late:
    for number in numbers:
        hoplo.get(gate.opens.remote(number))
        hoplo.wait([refs[number]], fetch_local=False)
        say(number)
        heard()
right = [at(reads, address).remote([total], want) for address in addresses]
say(hoplo.get(right, timeout=100))
del refs, total, right
heard()
"""


class Allreduce:
    """Four nodes with a member each, which are about to be reduced at all of them."""

    def __init__(self, lab: Any, nbytes: int = BYTES, *words: str) -> None:
        self.lab = lab
        self.nbytes = nbytes
        lab.cluster()
        addresses = [lab.address(number) for number in NODES]
        arguments = [str(nbytes), str(addresses).replace("'", '"')]
        self.program = lab[1].program(SOURCE, *arguments, *words)
        assert self.program.heard() == "ready"
        self.before = {number: lab.moved(number) for number in NODES}

    def moved(self, what: str) -> dict[int, int]:
        now = {number: self.lab.moved(number) for number in NODES}
        return {number: int(now[number][what] - self.before[number][what]) for number in NODES}

    def is_half_way(self) -> bool:
        return all(moved > BYTES // 2 for moved in self.moved("rx_bytes").values())

    def all_but_the_last_come(self) -> None:
        for number in NODES[:-1]:
            assert self.program.heard() == number - 1
            if number > 1:  # the first one only sends

                def is_folded(number: int = number) -> bool:
                    return self.moved("rx_bytes")[number] > self.nbytes

                until(is_folded, what=f"all of what came before is at node {number}")
            if number < NODES[-2]:
                self.program.tell()

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


def test_each_late_member_is_added_as_it_comes(make_lab: Any) -> None:
    nbytes = 8 * MIB
    allreduce = Allreduce(make_lab(nodes=4, rate=200e6), nbytes, "late")
    allreduce.program.tell("go")
    allreduce.all_but_the_last_come()
    allreduce.program.tell()
    assert allreduce.program.heard() == NODES[-2]
    allreduce.program.tell()
    assert allreduce.program.heard() == [True] * 4
    # The last one gets what the others gave, and the others the sum.
    moved = allreduce.moved("rx_bytes")
    assert nbytes < moved[4] < 1.2 * nbytes, moved
    assert nbytes < moved[1] < 1.2 * nbytes, moved
    assert all(2 * nbytes < moved[number] < 2.2 * nbytes for number in (2, 3)), moved
    allreduce.end()


def test_another_result_gets_the_slot_of_what_a_slow_link_still_sends(make_lab: Any) -> None:
    """Who read it at another node heard that it was lost."""
    allreduce = Allreduce(make_lab(nodes=4, rate=200e6), 8 * MIB, "late", "another")
    allreduce.program.tell("go")
    allreduce.all_but_the_last_come()
    # The first node sends the second one what was folded when it has all of it.
    allreduce.lab.shape(2, 50e6)
    allreduce.program.tell()
    assert allreduce.program.heard() == NODES[-2]
    allreduce.program.tell()
    assert allreduce.program.heard() == [True] * 4
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
