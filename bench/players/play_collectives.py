"""Collectives of hoplo or Ray, from the head of a cluster, one member of each at every node.

Its arguments: which of them, and JSON: the addresses of the nodes, the sizes of a member, the
number of the node whose link is slow, and the file that says how a node dies.

A broadcast and what many read is word for word the same. Ray has no collectives over refs: there a
reduce is a tree of tasks that add two, which run where Ray puts them, and what goes from all to all
is a task with many returns at each. Each round has members of its own. The clock begins when they
are made, and it is the same for all nodes.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from player import Player

SYSTEM, TOLD = sys.argv[1], json.loads(sys.argv[2])
ADDRESSES: list[str] = TOLD["addresses"]
SIZES: list[int] = TOLD["sizes"]
COUNT = len(ADDRESSES)
TOTAL = sum(range(COUNT))
GAP = 0.1
"""Seconds between two that come late."""
WARM = 1 << 20
VICTIM = TOLD.get("victim", 0)
"""The index of the node that dies."""

api: Any = importlib.import_module(SYSTEM)
now = time.perf_counter
play = Player()
Read = tuple[float, float, float]
"""The last element, when the reader began, when it had all."""


NODES: list[str] = []
"""The ids of the nodes. They are looked up before the clock begins: after a death one is new."""


def look_up() -> None:
    alive = {n["NodeManagerAddress"]: str(n["NodeID"]) for n in api.nodes() if n["Alive"]}
    NODES[:] = [alive[address] for address in ADDRESSES]


def places(soft: bool = False) -> list[Any]:
    strategies = importlib.import_module(f"{SYSTEM}.util.scheduling_strategies")
    return [strategies.NodeAffinitySchedulingStrategy(node, soft=soft) for node in NODES]


# ------------------------------------------------------------------------------- tasks


@api.remote
def member(number, nbytes):
    return np.full(nbytes // 4, number, "f4")


@api.remote(num_returns=2)
def late_member(number, nbytes, at):
    time.sleep(max(0, at - now()))
    return np.full(nbytes // 4, number, "f4"), now()


@api.remote
def parts(number, nbytes):
    return [np.full(nbytes // COUNT // 4, number, "f4") for _ in range(COUNT)]


@api.remote(num_returns=COUNT)
def parts_apart(number, nbytes):
    return tuple(np.full(nbytes // COUNT // 4, number, "f4") for _ in range(COUNT))


@api.remote
def reads(refs, at=0.0):
    time.sleep(max(0, at - now()))
    began = now()
    value = api.get(refs[0] if len(refs) == 1 else refs)
    return float(value[-1][-1] if isinstance(value, list) else value[-1]), began, now()


@api.remote
def returned(value):
    """The same numbers, as a new object."""
    return value.copy()


@api.remote
def added(one, other):
    return one + other


def at_each(function: Any, *each: Callable[[int], Any], soft: bool = False) -> list[Any]:
    """It runs once at every node, with what these give for its index."""
    made = [function.options(scheduling_strategy=at) for at in places(soft)]
    return [one.remote(*(it(i) for it in each)) for i, one in enumerate(made)]


def members(nbytes: int, soft: bool = False) -> list[Any]:
    refs = at_each(member, lambda i: i, lambda _: nbytes, soft=soft)
    api.wait(refs, num_returns=COUNT, fetch_local=False)
    return refs


def read(
    refs: Callable[[int], list[Any]],
    want: Callable[[int], float],
    at: Callable[[int], float] = lambda _: 0.0,
) -> list[Read]:
    """What a reader at every node is given, which must be as wanted."""
    got: list[Read] = api.get(at_each(reads, refs, at))
    wrong = [i for i, (value, _, _) in enumerate(got) if value != want(i)]
    assert not wrong, f"readers {wrong} got something else: {got}"
    return got


def last(got: list[Read]) -> float:
    return max(end for *_, end in got)


def reduced(refs: list[Any]) -> Any:
    if SYSTEM == "hoplo":
        return api.reduce(refs)
    while len(refs) > 1:
        refs = [*refs[2:], added.remote(refs[0], refs[1])]
    return refs[0]


def for_all(refs: list[Any]) -> Any:
    return api.allreduce(refs) if SYSTEM == "hoplo" else reduced(refs)


# ------------------------------------------------------------------------------- cases


def point_to_point(nbytes: int) -> float:
    refs = members(nbytes)
    began = now()
    assert api.get(refs[1])[-1] == 1
    return now() - began


def round_trip(nbytes: int) -> float:
    """A new object to the second node, and one from there."""
    value = np.full(nbytes // 4, 3, "f4")
    there = returned.options(scheduling_strategy=places()[1])
    began = now()
    assert api.get(there.remote(api.put(value)))[-1] == 3
    return now() - began


def broadcast(nbytes: int) -> float:
    refs = members(nbytes)
    began = now()
    return last(read(lambda _: refs[:1], lambda _: 0)) - began


def reduce(nbytes: int) -> float:
    refs = members(nbytes)
    began = now()
    assert api.get(reduced(refs))[-1] == TOTAL
    return now() - began


def allreduce(nbytes: int) -> float:
    refs = members(nbytes)
    began = now()
    ref = for_all(refs)
    return last(read(lambda _: [ref], lambda _: TOTAL)) - began


def gather(nbytes: int) -> float:
    refs = members(nbytes)
    began = now()
    values = api.get(api.gather(refs) if SYSTEM == "hoplo" else refs)
    ended = now()
    assert [value[-1] for value in values] == list(range(COUNT))
    return ended - began


def all_to_all(nbytes: int) -> float:
    if SYSTEM == "hoplo":
        refs = at_each(parts, lambda i: i, lambda _: nbytes)
        made = refs
    else:
        refs = at_each(parts_apart, lambda i: i, lambda _: nbytes)
        made = [ref for row in refs for ref in row]
    api.wait(made, num_returns=len(made), fetch_local=False)
    began = now()
    if SYSTEM == "hoplo":
        rows = [[ref] for ref in api.all_to_all(refs)]
    else:
        rows = [list(row) for row in zip(*refs, strict=True)]
    return last(read(lambda i: rows[i], lambda _: COUNT - 1)) - began


def late_broadcast(nbytes: int) -> float:
    """The mean of the receivers, who come one after the other."""
    refs = members(nbytes)
    began = now() + GAP
    got = read(lambda _: refs[:1], lambda _: 0, lambda i: began + GAP * i)[1:]
    return sum(end - began for _, began, end in got) / len(got)


def late(nbytes: int, collective: Callable[[list[Any]], float], n: int) -> float:
    """From when the n-th member was there."""
    began = now() + GAP
    both = at_each(late_member, lambda i: i, lambda _: nbytes, lambda i: began + GAP * i)
    refs, made = zip(*both, strict=True)
    ended = collective(list(refs))
    return ended - float(sorted(api.get(list(made)))[n - 1])


def late_reduce(nbytes: int) -> float:
    def collective(refs: list[Any]) -> float:
        assert api.get(reduced(refs))[-1] == TOTAL
        return now()

    return late(nbytes, collective, COUNT)


def late_first_half(nbytes: int) -> float:
    def collective(refs: list[Any]) -> float:
        value, taken = api.get(list(api.reduce(refs, n=COUNT // 2, with_members=True)))
        ended = now()
        assert value[-1] == sum(taken)
        return ended

    return late(nbytes, collective, COUNT // 2)


def late_allreduce(nbytes: int) -> float:
    def collective(refs: list[Any]) -> float:
        ref = for_all(refs)
        return last(read(lambda _: [ref], lambda _: TOTAL))

    return late(nbytes, collective, COUNT)


def fast_broadcast(nbytes: int) -> float:
    """Until all have it but the one whose link is slow."""
    refs = members(nbytes)
    began = now()
    got = read(lambda _: refs[:1], lambda _: 0)
    return max(end for i, (*_, end) in enumerate(got) if i != TOLD["slow"]) - began


def slow_allreduce(nbytes: int) -> float:
    return allreduce(nbytes)


def apart(operation: str, gap: float) -> Callable[[int], float]:
    """From when the first one comes until the last one has what it wants."""

    def broadcasts(nbytes: int) -> float:
        refs = members(nbytes)
        began = now() + GAP
        return last(read(lambda _: refs[:1], lambda _: 0, lambda i: began + gap * i)) - began

    def reduces(nbytes: int) -> float:
        began = now() + GAP
        made = at_each(late_member, lambda i: i, lambda _: nbytes, lambda i: began + gap * i)
        refs = [ref for ref, _ in made]
        if operation == "allreduce":
            ref = for_all(refs)
            return last(read(lambda _: [ref], lambda _: TOTAL)) - began
        assert api.get(reduced(refs))[-1] == TOTAL
        return now() - began

    return broadcasts if operation == "broadcast" else reduces


CASES = [point_to_point, round_trip, broadcast, reduce, allreduce, gather, all_to_all]
CASES += [late_broadcast, late_reduce, late_allreduce, late_first_half]
CASES += [fast_broadcast, slow_allreduce]

NAMED = {case.__name__: case for case in CASES}
for _operation in ("broadcast", "reduce", "allreduce"):
    for _gap in (0, 50, 100, 200):
        NAMED[f"{_operation}_apart_{_gap}"] = apart(_operation, _gap / 1e3)

for _name, _case in NAMED.items():
    for _nbytes in SIZES:

        @play.measure(f"{_name}.{_nbytes}")
        def _(case=_case, nbytes=_nbytes):
            look_up()
            case(min(nbytes, WARM))  # workers and links are warm
            yield lambda count: sum(case(nbytes) for _ in range(count))


# ------------------------------------------------------------------------------- a node dies


class Death:
    """Of the victim, at a moment that is told; and when the head took it for dead."""

    def __init__(self) -> None:
        how = json.loads(Path(os.environ["BENCH_DEATH"]).read_text())
        self._signal, self._pids, self._line = how["signal"], how["pids"], how["line"]
        self._node = NODES[VICTIM]
        self._threads: list[threading.Thread] = []
        self.began = self.noticed = 0.0

    def comes(self, at: float) -> None:
        self._threads.append(threading.Thread(target=self._come, args=(at,)))
        self._threads[-1].start()

    def _come(self, at: float) -> None:
        time.sleep(max(0, at - now()))
        self.began = now()
        for pid in self._pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, self._signal)
        if self._line:
            subprocess.run(self._line, check=True)
        until = now() + 20
        while now() < until:
            if not any(n["Alive"] and n["NodeID"] == self._node for n in api.nodes()):
                self.noticed = now()
                return
            time.sleep(0.005)

    def detection(self) -> float:
        for thread in self._threads:
            thread.join()
        assert self.noticed, "the head never took it for dead"
        return self.noticed - self.began


def dying_broadcast(nbytes: int, half: float) -> dict[str, float]:
    refs = members(nbytes)
    death = Death()
    readers = at_each(reads, lambda _: refs[:1], lambda _: 0.0)
    began = now()
    death.comes(began + half)
    got = api.get([ref for i, ref in enumerate(readers) if i != VICTIM], timeout=60)
    assert all(value == 0 for value, _, _ in got), got
    return {"seconds": last(got) - began, "detection": death.detection()}


def dying_reduce(nbytes: int, half: float) -> dict[str, float]:
    refs = members(nbytes, soft=True)
    death = Death()
    began = now()
    death.comes(began + half)
    assert api.get(api.reduce(refs), timeout=60)[-1] == TOTAL
    ended = now()
    return {"seconds": ended - began, "detection": death.detection()}


for _dying in (dying_broadcast, dying_reduce):
    for _nbytes in SIZES:

        @play.measure(f"{_dying.__name__}.{_nbytes}")
        def _(case=_dying, nbytes=_nbytes):
            """`count` is when the node dies, in milliseconds after the clock began."""
            look_up()
            broadcast(WARM)
            reduce(WARM)
            yield lambda count: case(nbytes, count / 1e3)


# ------------------------------------------------------------------------------- in one node


@play.measure("own_reduce")
def _() -> Iterator[Callable[[int], float]]:
    """8 actors have 64 MB each; their sum."""
    makers = [Maker.remote(number) for number in range(8)]

    def run(count: int) -> float:
        seconds = 0.0
        for _ in range(count):
            refs = [maker.make.remote(64_000_000) for maker in makers]
            api.wait(refs, num_returns=8)
            began = now()
            value = api.get(api.reduce(refs))
            seconds += now() - began
            assert value[-1] == sum(range(8))
            del value, refs
        return seconds

    yield run
    for maker in makers:
        api.kill(maker)


@api.remote
class Maker:
    def __init__(self, number):
        self.number = number

    def make(self, nbytes):
        return np.full(nbytes // 4, self.number, "f4")


if __name__ == "__main__":
    if not ADDRESSES:
        api.init(num_cpus=8)
    elif SYSTEM == "ray":
        api.init(address=f"{ADDRESSES[0]}:6379", log_to_driver=False, logging_level="ERROR")
    else:
        api.init(address="auto")
    play.serve(api.shutdown)
