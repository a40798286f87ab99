"""A node dies, and what was at home there is as before for everybody else: another node is in
charge of it.

Node 0 has the driver, node 1 dies. What an actor there puts, and the results of what it calls, are
at home at node 1.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from far import MIB, Keeper, count_bytes, here, ones
from machines import until

import hoplo
from hoplo.exceptions import ObjectLostError

ENDS = pytest.mark.parametrize("ends", ["node", "daemon"])
"""All of its processes at once, or the daemon alone."""


@hoplo.remote
class Maker:
    """Makes objects whose home is its node, and gives their refs away."""

    def put(self, value: Any) -> list[hoplo.ObjectRef]:
        return [hoplo.put(value)]

    def put_box(self, boxed: list[hoplo.ObjectRef]) -> list[hoplo.ObjectRef]:
        """A large value with these refs inside."""
        return [hoplo.put((np.ones(MIB, np.uint8), boxed))]

    def call(self, function: Any, options: dict[str, Any], *args: Any) -> list[hoplo.ObjectRef]:
        return [function.options(**options).remote(*args)]


def make(far: Any, cls: Any, number: int) -> Any:
    return cls.options(scheduling_strategy=far.on(number), num_cpus=0).remote()


def one(call: hoplo.ObjectRef) -> hoplo.ObjectRef:
    (ref,) = hoplo.get(call, timeout=20)
    return ref


def dies(far: Any, ends: str = "node") -> None:
    states = far.machines[0].states()
    (far.kill_node if ends == "node" else far.kill_daemon)(1)
    until(lambda: far.machines[0].states() == [*states[1:], "DEAD"], what="its death is known")


@ENDS
def test_what_another_node_has_a_copy_of_is_read_by_everybody(make_far: Any, ends: str) -> None:
    far = make_far(3)
    ref = one(make(far, Maker, 1).put.remote(np.ones(MIB, np.uint8)))
    # A copy is made at node 2, and none at node 0.
    there = count_bytes.options(scheduling_strategy=far.on(2))
    assert hoplo.get(there.remote(ref), timeout=20) == MIB
    dies(far, ends)
    assert hoplo.get(ref, timeout=20).sum() == MIB
    assert hoplo.get(there.remote(ref), timeout=20) == MIB
    del ref
    far.until_no_objects()


def test_a_small_value_that_a_node_has_read_is_read_by_others(make_far: Any) -> None:
    far = make_far(3)
    maker, keeper = make(far, Maker, 1), make(far, Keeper, 2)
    ref = one(maker.put.remote("small"))
    hoplo.get(keeper.keep.remote([ref]), timeout=20)
    assert hoplo.get(keeper.read.remote(), timeout=20) == "small"
    dies(far)
    assert hoplo.get(ref, timeout=20) == "small"
    # A node that joins afterwards knows whom to ask.
    number = far.add()
    late = make(far, Keeper, number)
    hoplo.get(late.keep.remote([ref]), timeout=20)
    assert hoplo.get(late.read.remote(), timeout=20) == "small"
    for actor in (keeper, late):
        hoplo.get(actor.drop.remote(), timeout=20)
    del ref
    far.until_no_objects()


def test_without_a_copy_it_is_lost_and_the_error_says_with_which_node(make_far: Any) -> None:
    far = make_far(3)
    ref = one(make(far, Maker, 1).put.remote(np.ones(MIB, np.uint8)))
    dies(far)
    with pytest.raises(ObjectLostError) as caught:
        hoplo.get(ref, timeout=20)
    text = str(caught.value)
    assert ref.hex() in text or "obj:" in text, text
    assert far.ids[1] in text, text
    assert "no other node has a copy" in text, text
    del ref, caught
    far.until_no_objects()


def test_refs_inside_a_value_of_a_dead_home_are_read_out_of_it(make_far: Any) -> None:
    far = make_far(3)
    maker, keeper = make(far, Maker, 1), make(far, Keeper, 2)
    inner = one(maker.put.remote(np.full(MIB, 2, np.uint8)))
    outer = one(maker.put_box.remote([inner]))
    there = count_bytes.options(scheduling_strategy=far.on(2))
    assert hoplo.get(there.remote(inner), timeout=20) == 2 * MIB
    hoplo.get(keeper.keep.remote([outer]), timeout=20)
    hoplo.get(keeper.read.remote(), timeout=20)
    hoplo.get(keeper.drop.remote(), timeout=20)
    del inner
    dies(far)
    array, boxed = hoplo.get(outer, timeout=20)
    assert array.sum() == MIB
    assert hoplo.get(boxed[0], timeout=20).sum() == 2 * MIB
    del array, boxed, outer
    far.until_no_objects()


def test_results_that_lie_elsewhere_outlive_the_node_of_who_called(make_far: Any) -> None:
    far = make_far(3)
    maker = make(far, Maker, 1)
    options = {"scheduling_strategy": far.on(2)}
    ref = one(maker.call.remote(ones, options, MIB))
    ready, _ = hoplo.wait([ref], timeout=20, fetch_local=False)
    assert ready == [ref]
    dies(far)
    assert hoplo.get(ref, timeout=20).sum() == MIB
    del ref, ready
    far.until_no_objects()


def test_a_result_that_is_being_made_comes_though_the_node_of_who_called_died(
    make_far: Any, notes: Any, gate: Any
) -> None:
    far = make_far(3)

    @hoplo.remote(max_retries=3)
    def held() -> str:
        notes.add(here())
        gate.wait()
        return "made"

    ref = one(make(far, Maker, 1).call.remote(held, {"scheduling_strategy": far.on(2)}))
    got: list[Any] = []

    def read(boxed: list[hoplo.ObjectRef]) -> None:
        got.append(hoplo.get(boxed.pop(), timeout=40))

    reader = threading.Thread(target=read, args=([ref],))
    reader.start()
    until(lambda: len(notes.lines()) == 1, what="it runs")
    dies(far)
    gate.open()
    reader.join(40)
    assert got == ["made"]
    assert notes.lines()[0] == far.ids[2]
    del ref
    far.until_no_objects()
