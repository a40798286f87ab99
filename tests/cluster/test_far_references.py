"""Who uses an object keeps it, wherever that is; who does not use it any more keeps nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from far import MIB, Counter, Keeper, count_bytes, echo, ones, where
from machines import until

import hoplo
from hoplo.exceptions import HoploError, ObjectLostError

SMALL, LARGE = 10, 2 * MIB


@pytest.fixture(autouse=True)
def nothing_stays(far: Any) -> Any:
    """Each test drops what it made: by then no node has a record of any of it."""
    yield
    far.until_no_objects()


@pytest.mark.parametrize("nbytes", [SMALL, LARGE])
@pytest.mark.parametrize("number", [1, 2])
def test_a_far_result_that_was_dropped_is_gone_everywhere(
    far: Any, nbytes: int, number: int
) -> None:
    refs = [ones.options(scheduling_strategy=far.on(number)).remote(nbytes) for _ in range(10)]
    assert hoplo.wait(refs, num_returns=10, timeout=20)[1] == []
    assert nbytes == SMALL or far.objects()
    del refs
    far.until_no_objects()


def test_a_result_that_was_dropped_before_it_was_made(far: Any, gate: Any) -> None:
    @hoplo.remote
    def late() -> Any:
        gate.wait()
        return np.ones(LARGE, np.uint8)

    ref = late.options(scheduling_strategy=far.on(1)).remote()
    until(lambda: gate.arrived() == 1)
    del ref
    gate.open()


def test_an_argument_lives_until_its_far_task_has_run(far: Any, gate: Any) -> None:
    @hoplo.remote
    def reads(array: Any) -> int:
        gate.wait()
        return int(array.sum(dtype=np.int64))

    value = hoplo.put(np.ones(LARGE, np.uint8))
    result = reads.options(scheduling_strategy=far.on(1)).remote(value)
    del value
    until(lambda: gate.arrived() == 1)
    gate.open()
    assert hoplo.get(result, timeout=20) == LARGE


def test_a_ref_inside_an_argument_lives_until_its_far_task_has_run(far: Any, gate: Any) -> None:
    @hoplo.remote
    def reads(boxed: Any) -> int:
        gate.wait()
        return int(hoplo.get(boxed[0]).sum(dtype=np.int64))

    boxed = [hoplo.put(np.ones(LARGE, np.uint8))]
    result = reads.options(scheduling_strategy=far.on(1)).remote(boxed)
    del boxed
    until(lambda: gate.arrived() == 1)
    gate.open()
    assert hoplo.get(result, timeout=20) == LARGE


@pytest.mark.parametrize("nbytes", [SMALL, LARGE])
def test_an_actor_elsewhere_keeps_what_it_borrowed(far: Any, nbytes: int) -> None:
    keeper = Keeper.options(scheduling_strategy=far.on(1), num_cpus=0).remote()
    value = hoplo.put(np.ones(nbytes, np.uint8))
    assert hoplo.get(keeper.keep.remote([value]), timeout=20) == far.ids[1]
    del value
    for _ in range(3):
        got = hoplo.get(keeper.read.remote(), timeout=20)
        assert int(got.sum(dtype=np.int64)) == nbytes
    del got
    hoplo.get(keeper.drop.remote(), timeout=20)
    far.until_no_objects()


def test_a_borrower_that_is_killed_keeps_nothing(far: Any) -> None:
    keeper = Keeper.options(scheduling_strategy=far.on(2), num_cpus=0).remote()
    hoplo.get(keeper.keep.remote([hoplo.put(np.ones(LARGE, np.uint8))]), timeout=20)
    assert far.objects()
    hoplo.kill(keeper)


def test_a_ref_that_went_round_all_nodes_and_came_back(far: Any) -> None:
    ref = hoplo.put([hoplo.put(np.ones(LARGE, np.uint8))])
    for number in (1, 2, 0, 2, 1):
        ref = echo.options(scheduling_strategy=far.on(number)).remote(ref)
    [inner] = hoplo.get(ref, timeout=20)
    assert hoplo.get(inner, timeout=20).nbytes == LARGE


def test_the_owner_ends_and_the_borrower_elsewhere_still_reads(far: Any) -> None:
    """The object was made by a process that is gone; its node keeps it for the other one."""

    @hoplo.remote(num_cpus=0)
    class Owner:
        def make(self) -> list[Any]:
            return [hoplo.put(np.ones(LARGE, np.uint8))]

    owner = Owner.options(scheduling_strategy=far.on(1)).remote()
    keeper = Keeper.options(scheduling_strategy=far.on(2), num_cpus=0).remote()
    hoplo.get(keeper.keep.remote(owner.make.remote()), timeout=20)
    # The keeper has a ref in a list: what `make` gave was an argument, and is its value there.
    hoplo.kill(owner)
    assert hoplo.get(keeper.read.remote(), timeout=20).nbytes == LARGE
    hoplo.get(keeper.drop.remote(), timeout=20)


def test_a_ref_is_handed_on_by_its_borrower_while_the_owner_drops_it(far: Any) -> None:
    first = Keeper.options(scheduling_strategy=far.on(1), num_cpus=0).remote()
    second = Keeper.options(scheduling_strategy=far.on(2), num_cpus=0).remote()

    @hoplo.remote(num_cpus=0)
    class Between:
        def hand_on(self, boxed: Any, to: Any) -> None:
            hoplo.get(to.keep.remote(boxed))

    between = Between.options(scheduling_strategy=far.on(1)).remote()
    for _ in range(20):
        value = hoplo.put(np.ones(200_000, np.uint8))
        done = [between.hand_on.remote([value], keeper) for keeper in (first, second)]
        del value
        hoplo.get(done, timeout=20)
        for keeper in (first, second):
            assert hoplo.get(keeper.read.remote(), timeout=20).nbytes == 200_000


def test_a_thousand_refs_cross_and_are_dropped(far: Any) -> None:
    @hoplo.remote
    def reads(boxed: Any) -> int:
        return sum(hoplo.get(boxed))

    refs = [hoplo.put(i) for i in range(1000)]
    for number in (1, 2):
        got = hoplo.get(reads.options(scheduling_strategy=far.on(number)).remote(refs), timeout=30)
        assert got == 499_500
    del refs


def test_refs_that_a_far_task_made_and_dropped_unread(far: Any) -> None:
    @hoplo.remote
    def makes() -> int:
        refs = [hoplo.put(np.ones(200_000, np.uint8)) for _ in range(10)]
        refs += [where.options(scheduling_strategy=far.on(2)).remote() for _ in range(10)]
        return len(refs)

    far_on = makes.options(scheduling_strategy=far.on(1))
    assert hoplo.get([far_on.remote() for _ in range(4)], timeout=20) == [20] * 4


def test_a_copy_that_a_reader_made_goes_with_the_object(far: Any) -> None:
    value = hoplo.put(np.ones(LARGE, np.uint8))
    for number in (1, 2):
        ref = count_bytes.options(scheduling_strategy=far.on(number)).remote(value)
        assert hoplo.get(ref, timeout=20) == LARGE
    del value, ref
    far.until_no_objects()
    for machine in far.machines:
        text = machine.hoplo("status").stdout
        assert "objects  0 in 0 B" in text, text


def test_what_is_read_of_a_far_object_stays_readable_though_the_ref_is_gone(far: Any) -> None:
    ref = ones.options(scheduling_strategy=far.on(1)).remote(LARGE)
    array = hoplo.get(ref, timeout=20)
    del ref
    assert hoplo.get(echo.options(scheduling_strategy=far.on(1)).remote(1), timeout=20) == 1
    assert int(array.sum(dtype=np.int64)) == LARGE
    del array


def test_a_stream_that_was_read_in_part_leaves_nothing(far: Any) -> None:
    @hoplo.remote(_generator_backpressure_num_objects=3)
    def arrays() -> Any:
        while True:
            yield np.ones(200_000, np.uint8)

    stream = arrays.options(scheduling_strategy=far.on(1)).remote()
    for _ in range(5):
        assert hoplo.get(next(stream), timeout=20).nbytes == 200_000
    del stream


def test_an_actor_that_ends_holding_refs_of_three_nodes(far: Any) -> None:
    keeper = Keeper.options(scheduling_strategy=far.on(1), num_cpus=0).remote()
    refs = [ones.options(scheduling_strategy=far.on(n)).remote(200_000) for n in range(3)]
    hoplo.get(keeper.keep.remote(refs), timeout=20)
    del refs
    assert hoplo.get(keeper.read.remote(), timeout=20).nbytes == 200_000
    del keeper


def test_an_actors_handle_that_crossed_keeps_the_actor_and_nothing_else(far: Any) -> None:
    counter = Counter.options(scheduling_strategy=far.on(1), num_cpus=0).remote()
    keeper = Keeper.options(scheduling_strategy=far.on(2), num_cpus=0).remote()
    hoplo.get(keeper.keep.remote([counter]), timeout=20)
    assert hoplo.get(counter.add.remote(), timeout=20) == 1
    hoplo.get(keeper.drop.remote(), timeout=20)
    assert hoplo.get(counter.add.remote(), timeout=20) == 2


def test_an_object_whose_node_died_is_told_as_lost(make_far: Any) -> None:
    far = make_far(2)

    @hoplo.remote(num_cpus=0)
    class Owner:
        def make(self) -> list[Any]:
            return [hoplo.put(np.ones(LARGE, np.uint8))]

    owner = Owner.options(scheduling_strategy=far.on(1)).remote()
    [ref] = hoplo.get(owner.make.remote(), timeout=20)
    far.kill_node(1)
    with pytest.raises(ObjectLostError) as caught:
        hoplo.get(ref, timeout=20)
    assert isinstance(caught.value, HoploError)
