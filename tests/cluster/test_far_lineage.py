"""A result that was lost with a node is made again by its owner, and who waits for it gets it."""

from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np
import pytest
from far import MIB, Keeper, count_bytes, here, ones
from machines import until

import hoplo
from hoplo.exceptions import ObjectLostError

ENDS = pytest.mark.parametrize("ends", ["node", "daemon"])
"""All of its processes at once, or the daemon alone."""


@hoplo.remote(max_retries=3)
def grow(notes: Any, array: Any) -> np.ndarray[Any, Any]:
    """One more than what it gets, and a note that it ran."""
    notes.add(here())
    return np.asarray(array) + 1


def made(ref: hoplo.ObjectRef) -> hoplo.ObjectRef:
    """It has its value, wherever that lies."""
    ready, _ = hoplo.wait([ref], timeout=20, fetch_local=False)
    assert ready == [ref]
    return ref


def known(far: Any) -> set[str]:
    """Objects that some node has a record of."""
    return {row["id"] for row in far.machines[0].objects()}


@ENDS
def test_a_result_whose_only_copy_died_is_made_again(make_far: Any, notes: Any, ends: str) -> None:
    far = make_far(2)
    zeros = np.zeros(MIB, np.uint8)
    ref = made(grow.options(scheduling_strategy=far.on(1, soft=True)).remote(notes, zeros))
    (far.kill_node if ends == "node" else far.kill_daemon)(1)
    until(lambda: far.machines[0].states() == ["ALIVE", "DEAD"])
    assert hoplo.get(ref, timeout=20).sum() == MIB
    assert notes.lines() == [far.ids[1], far.ids[0]]
    # It is as any other result now.
    assert hoplo.get(count_bytes.remote(ref), timeout=20) == MIB


def test_a_chain_whose_refs_were_dropped_is_made_again_from_its_start(
    make_far: Any, notes: Any
) -> None:
    far = make_far(3)
    there = grow.options(scheduling_strategy=far.on(1, soft=True))
    ref = ones.options(scheduling_strategy=far.on(1, soft=True)).remote(MIB)
    for _ in range(5):
        ref = there.remote(notes, ref)
    made(ref)
    until(lambda: len(known(far)) == 1, what="only the last one is there")
    far.kill_node(1)
    assert hoplo.get(ref, timeout=30).sum() == 6 * MIB
    assert len(notes.lines()) == 10, "each ran twice"
    del ref
    far.until_no_objects()


def test_a_process_at_a_third_node_gets_what_its_owner_makes_again(
    make_far: Any, notes: Any
) -> None:
    far = make_far(3)
    zeros = np.zeros(MIB, np.uint8)
    ref = made(grow.options(scheduling_strategy=far.on(1, soft=True)).remote(notes, zeros))
    keeper = Keeper.options(scheduling_strategy=far.on(2), num_cpus=0).remote()
    hoplo.get(keeper.keep.remote([ref]), timeout=20)
    del ref
    far.kill_node(1)
    # The driver holds it no more, and makes it again all the same.
    assert hoplo.get(keeper.read.remote(), timeout=20).sum() == MIB
    hoplo.get(keeper.drop.remote(), timeout=20)
    far.until_no_objects()


def test_a_task_that_waits_for_its_argument_gets_it_and_why_says_that_it_is_made_again(
    make_far: Any, notes: Any, gate: Any
) -> None:
    far = make_far(3)

    @hoplo.remote(max_retries=3)
    def held() -> np.ndarray[Any, Any]:
        if here() in notes.lines():
            return np.ones(MIB, np.uint8)
        notes.add(here())
        if len(notes.lines()) > 1:
            gate.wait()
        return np.ones(MIB, np.uint8)

    ref = made(held.options(scheduling_strategy=far.on(1, soft=True)).remote())
    far.kill_node(1)
    reader = count_bytes.options(scheduling_strategy=far.on(2)).remote(ref)
    until(lambda: gate.arrived() == 1, what="it is made again")
    text = far.machines[0].hoplo("why", ref.hex()).stdout
    assert "made again" in text, text
    assert far.ids[1] in text, text
    gate.open()
    assert hoplo.get(reader, timeout=20) == MIB


@pytest.mark.parametrize("stopped", [True, False])
def test_a_task_that_waits_for_a_lost_argument_gives_back_what_its_maker_needs(
    make_far: Any, notes: Any, stopped: bool
) -> None:
    spot = ("--resources", '{"spot": 1}')
    far = make_far(flags=[(), spot, spot])
    one_spot = {"num_cpus": 0, "resources": {"spot": 1}}

    @hoplo.remote(max_retries=3, **one_spot)
    def made_on_spot() -> np.ndarray[Any, Any]:
        notes.add(here())
        return np.ones(MIB, np.uint8)

    @hoplo.remote(**one_spot)
    def reads_on_spot(array: np.ndarray[Any, Any]) -> int:
        notes.add("reads")
        return array.nbytes

    ref = made(made_on_spot.options(scheduling_strategy=far.on(1, soft=True)).remote())
    assert notes.lines() == [far.ids[1]]
    if stopped:
        # So that the task waits in its worker when its argument is lost.
        os.kill(far.machines[1].pid, signal.SIGSTOP)
    else:
        far.kill_node(1)
    reader = reads_on_spot.options(scheduling_strategy=far.on(2)).remote(ref)
    if stopped:
        until(lambda: "DEAD" in far.machines[0].states(), what="its node is declared dead")
        far.kill_node(1)
    # Node 2 has the only spot that is left: the reader lets the maker have it.
    assert hoplo.get(reader, timeout=20) == MIB
    assert notes.lines() == [far.ids[1], far.ids[2], "reads"]
    assert hoplo.get(ref, timeout=20).nbytes == MIB
    del ref
    far.until_no_objects()


def test_two_results_of_one_task_are_made_again_in_one_run(make_far: Any, notes: Any) -> None:
    far = make_far(2)

    @hoplo.remote(max_retries=3, num_returns=2)
    def pair() -> tuple[Any, Any]:
        notes.add(here())
        return np.ones(MIB, np.uint8), np.ones(2 * MIB, np.uint8)

    refs = pair.options(scheduling_strategy=far.on(1, soft=True)).remote()
    for ref in refs:
        made(ref)
    far.kill_node(1)
    assert [array.nbytes for array in hoplo.get(refs, timeout=20)] == [MIB, 2 * MIB]
    assert len(notes.lines()) == 2


def test_what_is_lost_twice_is_made_again_twice_and_then_its_retries_are_used_up(
    make_far: Any, notes: Any
) -> None:
    spot = ("--resources", '{"spot": 1}')
    far = make_far(flags=[(), spot, spot, spot])

    @hoplo.remote(max_retries=2, num_cpus=0, resources={"spot": 1})
    def made_on_spot() -> np.ndarray[Any, Any]:
        notes.add(here())
        return np.ones(MIB, np.uint8)

    ref = made(made_on_spot.remote())
    for runs in (1, 2):
        far.kill_node(far.number(notes.lines()[-1]))
        until(lambda runs=runs: len(notes.lines()) == runs + 1, what="it runs again")
        made(ref)
    last = notes.lines()[-1]
    assert len(set(notes.lines())) == 3
    far.kill_node(far.number(last))
    with pytest.raises(ObjectLostError) as caught:
        hoplo.get(ref, timeout=20)
    assert last in str(caught.value)
    assert "max_retries is used up" in str(caught.value)


def test_an_argument_that_was_put_is_there_for_the_call_that_may_run_again(
    make_far: Any, notes: Any
) -> None:
    far = make_far(2)
    argument = hoplo.put(np.zeros(MIB, np.uint8))
    ref = made(grow.options(scheduling_strategy=far.on(1, soft=True)).remote(notes, argument))
    del argument
    far.kill_node(1)
    assert hoplo.get(ref, timeout=20).sum() == MIB
    del ref
    far.until_no_objects()


def test_a_large_argument_that_was_put_and_dropped_is_lost_and_the_error_says_so(
    make_far: Any, notes: Any
) -> None:
    far = make_far(2)
    argument = hoplo.put(np.zeros(9 * MIB, np.uint8))
    ref = made(grow.options(scheduling_strategy=far.on(1, soft=True)).remote(notes, argument))
    del argument
    until(lambda: len(known(far)) == 1, what="only the result is left")
    far.kill_node(1)
    with pytest.raises(ObjectLostError) as caught:
        hoplo.get(ref, timeout=20)
    assert "it was put" in str(caught.value), str(caught.value)


def test_without_retries_the_error_says_which_node_and_what_to_set(make_far: Any) -> None:
    far = make_far(2)
    options = {"max_retries": 0, "scheduling_strategy": far.on(1, soft=True)}
    ref = made(ones.options(**options).remote(MIB))
    far.kill_node(1)
    with pytest.raises(ObjectLostError) as caught:
        hoplo.get(ref, timeout=20)
    text = str(caught.value)
    assert far.ids[1] in text, text
    assert "max_retries=0" in text, text
