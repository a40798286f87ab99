"""A reduce over links of 200 Mbit/s: what each carries, and a node that is lost meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from far import MIB
from machines import until

BYTES = 40 * MIB
MEMBERS = range(2, 6)

SOURCE = """
import json, pathlib, sys, time
import numpy as np
from hoplo.util.scheduling_strategies import NodeAffinitySchedulingStrategy

hoplo.init(address="auto")
nbytes = int(sys.argv[1])
ran, seconds = pathlib.Path(sys.argv[3]), float(sys.argv[4])

@hoplo.remote
def member(number):
    if (ran / str(number)).exists():
        time.sleep(seconds)  # it is made again
    (ran / str(number)).touch()
    return np.arange(nbytes // 8, dtype=np.uint64) + number

def at(address):
    [node] = [n["NodeID"] for n in hoplo.nodes() if n["NodeManagerAddress"] == address]
    return member.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=True))

tasks = [at(address) for address in json.loads(sys.argv[2])]
hoplo.get(hoplo.reduce([hoplo.put(np.zeros(1))]))  # its worker is warm
refs = [task.remote(number) for number, task in enumerate(tasks)]
hoplo.wait(refs, num_returns=len(refs), fetch_local=False)
say("ready")
heard()
got = hoplo.get(hoplo.reduce(refs), timeout=100)
want = len(refs) * np.arange(nbytes // 8, dtype=np.uint64) + sum(range(len(refs)))
say(bool(np.array_equal(got, want)))
del refs, got
heard()
"""


class Reduce:
    """A head and four nodes with a member each, which are about to be reduced at the head."""

    def __init__(self, lab: Any, ran: Path, seconds: float) -> None:
        """It takes so many seconds to make a member again."""
        self.lab = lab
        lab.cluster()
        addresses = [lab.address(number) for number in MEMBERS]
        arguments = (str(BYTES), str(addresses).replace("'", '"'), str(ran), str(seconds))
        self.program = lab[1].program(SOURCE, *arguments)
        assert self.program.heard() == "ready"
        self.before = {number: lab.moved(number) for number in (1, *MEMBERS)}

    def sent(self, number: int) -> int:
        return self._moved(number, "tx_bytes")

    def got(self, number: int) -> int:
        return self._moved(number, "rx_bytes")

    def folding(self) -> list[int]:
        """Nodes that got half of the others' members, and sent half of what they made."""
        busy = [number for number in MEMBERS if self.sent(number) > BYTES // 2]
        return [number for number in busy if BYTES // 2 < self.got(number) < BYTES - 8 * MIB]

    def end(self) -> None:
        self.program.tell()
        self.program.end()

    def _moved(self, number: int, what: str) -> int:
        return int(self.lab.moved(number)[what] - self.before[number][what])


@pytest.fixture
def reduce(make_lab: Any, tmp_path: Path) -> Reduce:
    return Reduce(make_lab(nodes=5, rate=200e6), tmp_path, 0.0)


def test_each_link_carries_one_member(reduce: Reduce) -> None:
    reduce.program.tell("go")
    assert reduce.program.heard() is True
    sent = {number: reduce.sent(number) for number in MEMBERS}
    assert all(nbytes < 1.2 * BYTES for nbytes in sent.values()), sent
    assert reduce.got(1) < 1.2 * BYTES
    assert reduce.sent(1) < 0.1 * BYTES
    reduce.end()


def kill(reduce: Reduce, number: int) -> None:
    reduce.lab[number].kill()


def silence(reduce: Reduce, number: int) -> None:
    reduce.lab.cut(number)


@pytest.mark.parametrize("ends", [kill, silence])
def test_a_node_of_the_chain_is_lost_and_the_sum_is_right(
    reduce: Reduce, ends: Callable[[Reduce, int], None]
) -> None:
    reduce.program.tell("go")
    lost = until(reduce.folding)[0]
    ends(reduce, lost)
    assert reduce.program.heard() is True
    # Nobody sends again what others have folded (COLL-3).
    sent = {number: reduce.sent(number) for number in MEMBERS if number != lost}
    assert all(nbytes < 1.3 * BYTES for nbytes in sent.values()), sent
    # What comes of all, and what the lost member, made again there, is folded into.
    assert reduce.got(1) < 2.2 * BYTES
    reduce.end()


def test_nobody_keeps_what_it_folded_for_a_member_that_takes_long_to_make_again(
    make_lab: Any, tmp_path: Path
) -> None:
    """After 5 s the reduce is given up, and begun anew when the member is there."""
    reduce = Reduce(make_lab(nodes=5, rate=200e6), tmp_path, 8.0)
    reduce.program.tell("go")
    lost = until(reduce.folding)[0]
    kill(reduce, lost)
    assert reduce.program.heard() is True
    living = [number for number in MEMBERS if number != lost]
    # All but the last of them sent what they folded twice, or more of it than once.
    assert any(reduce.sent(number) > 1.3 * BYTES for number in living)
    reduce.end()
