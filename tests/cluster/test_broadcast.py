"""One object and many nodes that get it at the same time: each passes on what has come to it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from far import MIB
from machines import until

BYTES = 40 * MIB
READERS = range(2, 6)

SOURCE = """
import gc, json, sys
import numpy as np
from hoplo.util.scheduling_strategies import NodeAffinitySchedulingStrategy

hoplo.init(address="auto")
nbytes = int(sys.argv[1])

@hoplo.remote(max_retries=0)
def is_right(array):
    pattern = np.arange(array.nbytes // 8, dtype=np.uint64)
    return bool(np.array_equal(array, pattern))

def at(address):
    [node] = [n["NodeID"] for n in hoplo.nodes() if n["NodeManagerAddress"] == address]
    return is_right.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node))

def outcome(ref):
    try:
        return hoplo.get(ref, timeout=60)
    except hoplo.exceptions.HoploError as error:
        return type(error).__name__

tasks = [at(address) for address in json.loads(sys.argv[2])]
say(hoplo.get([task.remote(np.arange(8, dtype=np.uint64)) for task in tasks]))
ref = hoplo.put(np.arange(nbytes // 8, dtype=np.uint64))
results = [task.remote(ref) for task in tasks]
if heard() == "drop":
    del ref
    gc.collect()
    say("dropped")
say([outcome(result) for result in results])
del results
heard()
"""


class Broadcast:
    """A head and four nodes on links of 200 Mbit/s that are about to get one object of the head."""

    def __init__(self, lab: Any) -> None:
        self.lab = lab
        lab.cluster()
        addresses = [lab.address(number) for number in READERS]
        arguments = (str(BYTES), str(addresses).replace("'", '"'))
        self.program = lab[1].program(SOURCE, *arguments)
        assert self.program.heard() == [True] * 4
        self.before = {number: lab.moved(number) for number in (1, *READERS)}

    def sent(self, number: int) -> int:
        return self._moved(number, "tx_bytes")

    def got(self, number: int) -> int:
        return self._moved(number, "rx_bytes")

    def relays(self) -> list[int]:
        """Nodes that pass it on, and do not have all of it."""
        busy = [number for number in READERS if self.sent(number) > 2 * MIB]
        return [number for number in busy if self.got(number) < BYTES - 8 * MIB]

    def outcomes(self) -> list[Any]:
        heard = self.program.heard()
        assert isinstance(heard, list)
        return heard

    def end(self) -> None:
        self.program.tell()
        self.program.end()

    def _moved(self, number: int, what: str) -> int:
        return int(self.lab.moved(number)[what] - self.before[number][what])


@pytest.fixture
def broadcast(make_lab: Any) -> Broadcast:
    return Broadcast(make_lab(nodes=5, rate=200e6))


def test_each_link_carries_the_object_once(broadcast: Broadcast) -> None:
    broadcast.program.tell("go")
    assert broadcast.outcomes() == [True] * 4
    sent = {number: broadcast.sent(number) for number in (1, *READERS)}
    assert all(nbytes < 1.3 * BYTES for nbytes in sent.values()), sent
    assert all(broadcast.got(number) < 1.3 * BYTES for number in READERS)
    broadcast.end()


def kill(broadcast: Broadcast, number: int) -> None:
    broadcast.lab[number].kill()


def silence(broadcast: Broadcast, number: int) -> None:
    broadcast.lab.cut(number)


@pytest.mark.parametrize("ends", [kill, silence])
def test_a_node_that_passes_it_on_is_lost_and_the_others_read_all(
    broadcast: Broadcast, ends: Callable[[Broadcast, int], None]
) -> None:
    relay = until(broadcast.relays)[0]
    ends(broadcast, relay)
    broadcast.program.tell("go")
    outcomes = broadcast.outcomes()
    lost = outcomes.pop(relay - READERS[0])
    assert outcomes == [True] * 3
    assert isinstance(lost, str), lost
    broadcast.end()


def test_a_link_breaks_for_a_moment_and_all_read_all(broadcast: Broadcast) -> None:
    import time

    relay = until(broadcast.relays)[0]
    with broadcast.lab.without(relay):
        time.sleep(0.3)  # the length of the cut is what is tried
    broadcast.program.tell("go")
    assert broadcast.outcomes() == [True] * 4
    broadcast.end()


def test_its_owner_drops_it_meanwhile_and_nothing_is_left(broadcast: Broadcast) -> None:
    until(broadcast.relays)
    broadcast.program.tell("drop")
    assert broadcast.program.heard() == "dropped"
    assert broadcast.outcomes() == [True] * 4
    machines = [broadcast.lab[number] for number in (1, *READERS)]
    until(lambda: not any(row["nbytes"] >= BYTES for it in machines for row in it.objects()))
    broadcast.end()


SLOW = 3
SHORT = 8 * MIB

ROUNDS = (
    SOURCE.split("tasks =")[0]
    + """
tasks = {number: at(address) for number, address in json.loads(sys.argv[2]).items()}
while numbers := heard().split():
    ref = hoplo.put(np.arange(nbytes // 8, dtype=np.uint64))
    say(hoplo.get([tasks[number].remote(ref) for number in numbers]))
"""
)


def test_a_node_with_a_slow_link_passes_nothing_on(make_lab: Any) -> None:
    lab = make_lab(nodes=5, rate=200e6)
    lab.cluster()
    lab.shape(SLOW, 50e6)
    addresses = json.dumps({str(number): lab.address(number) for number in READERS})
    program = lab[1].program(ROUNDS, str(SHORT), addresses)
    fast = [str(number) for number in READERS if number != SLOW]
    for alone in (fast[0], str(SLOW)):
        program.tell(alone)
        assert program.heard() == [True], "its home sees how long it takes"
    before = lab.moved(SLOW)["tx_bytes"]
    program.tell(" ".join([str(SLOW), *fast]))
    assert program.heard() == [True] * 4
    assert lab.moved(SLOW)["tx_bytes"] - before < SHORT / 4
    program.tell()
    program.end()
