"""A node whose store and disk are full: what may run elsewhere does, and nobody fails for it."""

from __future__ import annotations

import resource
from collections import Counter as Counts
from typing import Any

import numpy as np
import pytest
from far import MIB, here, where
from machines import until

import hoplo
from hoplo.exceptions import OutOfDiskError

STORE = ("--object-store-memory", "64M")
NO_CPUS = (*STORE, "--num-cpus", "0")


@hoplo.remote(num_cpus=0)
class Hoarder:
    """Another job's actor."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def fill(self) -> None:
        """Keeps as much as its node has room for."""
        for nbytes in (4 * MIB, MIB, MIB // 4):
            try:
                while True:
                    self.kept.append(hoplo.put(np.ones(nbytes, np.uint8)))
            except OutOfDiskError:
                pass

    def drop(self) -> None:
        self.kept.clear()


def mark_of(node: str) -> int:
    """What a node fills its arrays with: not 0, whatever its id ends with."""
    return 1 + int(node[-2:], 16) % 255


@hoplo.remote(max_retries=0)
def make(nbytes: int) -> Any:
    return np.full(nbytes, mark_of(here()), np.uint8)


@hoplo.remote(max_retries=0)
def read(array: Any) -> str:
    assert array.all()
    return here()


def is_full(far: Any, number: int) -> bool:
    return bool(far.machines[number].status()["store"]["full"])


def fill(far: Any, number: int) -> Any:
    """The node's disk takes no more, and its store is filled; who fills it."""
    pid = far.machines[number].pid
    hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
    # The daemon writes no file beyond this size.
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (8 * MIB, hard))
    hoarder = Hoarder.options(scheduling_strategy=far.on(number)).remote()
    hoplo.get(hoarder.fill.remote(), timeout=60)
    until(lambda: is_full(far, number), what="it says that it is full")
    return hoarder


def test_tasks_of_other_jobs_failed_at_a_full_node_and_more_of_them_came(
    make_far: Any, gate: Any
) -> None:
    far = make_far(flags=[NO_CPUS, STORE, STORE])
    hoarder = fill(far, 1)
    for strategy in ("DEFAULT", "SPREAD"):
        refs = [make.options(scheduling_strategy=strategy).remote(MIB) for _ in range(24)]
        values = hoplo.get(refs, timeout=60)
        assert {int(value[-1]) for value in values} == {mark_of(far.ids[2])}
        del refs, values
        argument = hoplo.put(np.ones(8 * MIB, np.uint8))
        options = read.options(scheduling_strategy=strategy)
        ran = hoplo.get([options.remote(argument) for _ in range(24)], timeout=60)
        assert set(ran) == {far.ids[2]}
    # What is bound to it runs there, and hears that there is no room for what it makes.
    assert hoplo.get(where.options(scheduling_strategy=far.on(1)).remote()) == far.ids[1]
    with pytest.raises(OutOfDiskError):
        hoplo.get(make.options(scheduling_strategy=far.on(1)).remote(MIB))
    assert "full" in far.machines[1].hoplo("status").stdout
    # Room comes free there: it is used again.
    hoplo.get(hoarder.drop.remote())
    until(lambda: not is_full(far, 1), what="it has room")

    @hoplo.remote(max_retries=0)
    def held() -> Any:
        gate.wait()
        return np.full(MIB, mark_of(here()), np.uint8)

    refs = [held.options(scheduling_strategy="SPREAD").remote() for _ in range(4)]
    until(lambda: gate.arrived() == 4, what="two run at each node")
    gate.open()
    # What was dropped comes free bit by bit: one of the two may still have found no room there.
    made = {int(value[-1]) for value in hoplo.get(refs, timeout=60)}
    assert made == {mark_of(node) for node in far.ids[1:]}


def test_a_task_whose_result_found_no_room_was_not_tried_elsewhere(
    make_far: Any, gate: Any, notes: Any
) -> None:
    far = make_far(flags=[NO_CPUS, STORE, STORE])

    @hoplo.remote
    def held(nbytes: int) -> Any:
        notes.add(here())
        gate.wait()
        return np.ones(nbytes, np.uint8)

    refs = [held.options(scheduling_strategy="SPREAD").remote(2 * MIB) for _ in range(4)]
    until(lambda: gate.arrived() == 4, what="two run at each node")
    kept = fill(far, 1)
    gate.open()
    assert [value.nbytes for value in hoplo.get(refs, timeout=60)] == [2 * MIB] * 4
    ran = Counts(notes.lines())
    assert ran[far.ids[2]] == 4, "what found no room at the one ran at the other"
    assert 2 <= ran[far.ids[1]] <= 4
    del kept


def test_a_full_node_runs_its_own_tasks_elsewhere(make_far: Any) -> None:
    far = make_far(flags=[STORE, STORE])
    kept = fill(far, 0)
    made = [make.remote(MIB) for _ in range(8)]
    ready, _ = hoplo.wait(made, num_returns=8, timeout=60, fetch_local=False)
    assert len(ready) == 8
    # They would not find room here, either.
    assert set(hoplo.get([read.remote(ref) for ref in made], timeout=60)) == {far.ids[1]}
    del kept


def test_where_all_nodes_are_full_a_task_fails_soon(make_far: Any, notes: Any) -> None:
    far = make_far(flags=[NO_CPUS, STORE, STORE])
    kept = [fill(far, 1), fill(far, 2)]

    @hoplo.remote(max_retries=-1)
    def make_again() -> Any:
        notes.add(here())
        return np.ones(2 * MIB, np.uint8)

    with pytest.raises(OutOfDiskError, match="free disk space"):
        hoplo.get(make_again.remote(), timeout=60)
    assert len(notes.lines()) == 4
    # What needs no room runs.
    assert hoplo.get(where.remote(), timeout=60) in far.ids[1:]
    del kept
