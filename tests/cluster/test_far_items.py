"""Items of a stream that were lost with a node are made again, by another run of the generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from far import MIB, Keeper, here, ones
from machines import until

import hoplo
from hoplo.exceptions import ObjectLostError

Array = np.ndarray[Any, Any]


@hoplo.remote
def pieces(notes: Any, count: int, first: Any = 0) -> Iterator[Array]:
    notes.add(here())
    for value in range(count):
        yield np.full(MIB, np.max(first) + value, np.uint8)


@hoplo.remote
def endless(notes: Any) -> Iterator[Array]:
    notes.add(here())
    value = 0
    try:
        while True:
            yield np.full(MIB, value % 200, np.uint8)
            value += 1
    finally:
        notes.add("stopped")


def all_made(refs: list[hoplo.ObjectRef]) -> list[hoplo.ObjectRef]:
    """They have their values, wherever those lie."""
    ready, _ = hoplo.wait(refs, num_returns=len(refs), timeout=20, fetch_local=False)
    assert len(ready) == len(refs)
    return refs


def values(refs: list[hoplo.ObjectRef]) -> list[tuple[int, int]]:
    """Of each its least and its largest number."""
    arrays = hoplo.get(refs, timeout=30)
    return [(int(array.min()), int(array.max())) for array in arrays]


def test_items_of_a_stream_that_has_ended_are_made_again_in_one_run(
    make_far: Any, notes: Any
) -> None:
    far = make_far(2)
    refs = list(pieces.options(scheduling_strategy=far.on(1, soft=True)).remote(notes, 4))
    all_made(refs)
    assert int(hoplo.get(refs[1]).max()) == 1, "this one has a copy here"
    far.kill_node(1)
    assert values(refs) == [(value, value) for value in range(4)]
    assert notes.lines() == [far.ids[1], far.ids[0]]
    del refs
    far.until_no_objects()


def test_a_stream_that_runs_goes_on_and_gives_its_lost_items_again(
    make_far: Any, notes: Any
) -> None:
    far = make_far(2)
    options = {"_generator_backpressure_num_objects": 2, "max_retries": 1}
    stream = endless.options(scheduling_strategy=far.on(1, soft=True), **options).remote(notes)
    refs = all_made([next(stream) for _ in range(3)])
    far.kill_node(1)
    assert values(refs) == [(0, 0), (1, 1), (2, 2)]
    assert values([next(stream) for _ in range(3)]) == [(3, 3), (4, 4), (5, 5)]
    assert notes.lines() == [far.ids[1], far.ids[0]], "one run for both"
    del stream, refs
    far.until_no_objects()


def test_a_generator_without_an_end_runs_again_as_far_as_the_lost_item_and_no_further(
    make_far: Any, notes: Any
) -> None:
    far = make_far(3)
    options = {"_generator_backpressure_num_objects": 8}
    stream = endless.options(scheduling_strategy=far.on(1, soft=True), **options).remote(notes)
    refs = all_made([next(stream) for _ in range(5)])
    del stream
    until(lambda: notes.lines() == [far.ids[1], "stopped"], what="its reader is gone")
    keeper = Keeper.options(scheduling_strategy=far.on(2), num_cpus=0).remote()
    hoplo.get(keeper.keep.remote([refs[4]]), timeout=20)
    del refs
    far.kill_node(1)
    # The driver has no ref of it any more, and makes it again all the same.
    assert int(hoplo.get(keeper.read.remote(), timeout=30).max()) == 4
    until(lambda: notes.lines()[3:] == ["stopped"], what="nobody needs more of it")
    hoplo.get(keeper.drop.remote(), timeout=20)
    far.until_no_objects()


def test_the_argument_of_a_generator_that_is_lost_too_is_made_again_first(
    make_far: Any, notes: Any
) -> None:
    far = make_far(2)
    there = {"scheduling_strategy": far.on(1, soft=True)}
    argument = ones.options(**there).remote(MIB)
    refs = all_made(list(pieces.options(**there).remote(notes, 2, argument)))
    del argument
    far.kill_node(1)
    assert values(refs) == [(1, 1), (2, 2)]


def test_without_retries_the_error_of_an_item_says_which_node_and_what_to_set(
    make_far: Any, notes: Any
) -> None:
    far = make_far(2)
    options = {"max_retries": 0, "scheduling_strategy": far.on(1, soft=True)}
    [ref] = all_made(list(pieces.options(**options).remote(notes, 1)))
    far.kill_node(1)
    with pytest.raises(ObjectLostError) as caught:
        hoplo.get(ref, timeout=20)
    assert far.ids[1] in str(caught.value), str(caught.value)
    assert "max_retries=0" in str(caught.value), str(caught.value)


def test_a_generator_that_yields_less_when_it_makes_items_again_says_so(
    make_far: Any, notes: Any
) -> None:
    far = make_far(2)

    @hoplo.remote
    def fewer() -> Iterator[Array]:
        runs = len(notes.lines())
        notes.add(here())
        for _ in range(3 - runs):
            yield np.ones(MIB, np.uint8)

    refs = all_made(list(fewer.options(scheduling_strategy=far.on(1, soft=True)).remote()))
    far.kill_node(1)
    assert values(refs[:2]) == [(1, 1), (1, 1)]
    with pytest.raises(ObjectLostError) as caught:
        hoplo.get(refs[2], timeout=20)
    text = str(caught.value)
    assert "attempt 1" in text, text
    assert "yielded 2 values, where an earlier one had yielded 3 values or more" in text, text
    assert far.ids[1] in text, text
