"""A node that is drained leaves nothing behind that others need: its objects are handed over."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from far import MIB

import hoplo
from hoplo.exceptions import TaskError


@hoplo.remote(num_cpus=0, max_retries=0)
def raises() -> None:
    raise ValueError("handed over, too")


@hoplo.remote(num_cpus=0)
class Puts:
    """What it puts is at home at its node."""

    def small(self) -> list[Any]:
        return [hoplo.put({"number": number}) for number in range(20)]

    def large(self) -> list[Any]:
        return [hoplo.put(np.full(MIB, number, np.uint8)) for number in range(5)]

    def nested(self) -> list[Any]:
        inner = hoplo.put("inside")
        array = hoplo.put(np.arange(100_000))
        return [hoplo.put([inner, array]), hoplo.put([array, np.zeros(MIB, np.uint8)])]

    def failed(self) -> list[Any]:
        ref = raises.remote()
        hoplo.wait([ref])
        return [ref]


def drained(far: Any, actor: Any) -> None:
    """Node 1 leaves, of which this process holds refs, and the actor there is gone."""
    hoplo.kill(actor)
    del actor
    told = far.machines[0].hoplo("drain", "--deadline", "60", far.ids[1], seconds=90).stdout
    assert "it was drained" in told
    assert "over" not in told, told
    far.killed.add(1)


@pytest.fixture
def puts(make_far: Any) -> tuple[Any, Any]:
    far = make_far(3)
    return far, Puts.options(scheduling_strategy=far.on(1)).remote()


def test_objects_of_a_node_that_is_drained_are_on_others_when_it_leaves(puts: Any) -> None:
    far, actor = puts
    small = hoplo.get(actor.small.remote(), timeout=20)
    large = hoplo.get(actor.large.remote(), timeout=20)
    drained(far, actor)
    assert hoplo.get(small, timeout=20) == [{"number": number} for number in range(20)]
    for number, array in enumerate(hoplo.get(large, timeout=20)):
        assert array.nbytes == MIB
        assert (array == number).all()
    del small, large, array
    far.until_no_objects()


def test_what_is_inside_of_them_is_as_well(puts: Any) -> None:
    far, actor = puts
    refs = hoplo.get(actor.nested.remote(), timeout=20)
    drained(far, actor)
    [[inner, array], [same, zeros]] = hoplo.get(refs, timeout=20)
    assert hoplo.get(inner, timeout=20) == "inside"
    assert hoplo.get(array, timeout=20).sum() == hoplo.get(same, timeout=20).sum()
    assert zeros.nbytes == MIB


def test_an_error_is_handed_over(puts: Any) -> None:
    far, actor = puts
    refs = hoplo.get(actor.failed.remote(), timeout=20)
    drained(far, actor)
    with pytest.raises(TaskError, match="handed over, too"):
        hoplo.get(refs, timeout=20)


def test_the_next_node_that_is_drained_hands_them_on(make_far: Any) -> None:
    far = make_far(4)
    actor = Puts.options(scheduling_strategy=far.on(1)).remote()
    refs = hoplo.get(actor.small.remote(), timeout=20)
    refs += hoplo.get(actor.large.remote(), timeout=20)
    drained(far, actor)
    del actor
    for number in (2, 3):
        told = far.machines[0].hoplo("drain", far.ids[number], seconds=90).stdout
        assert "it was drained" in told
        far.killed.add(number)
    values = hoplo.get(refs, timeout=20)
    assert values[:20] == [{"number": number} for number in range(20)]
    assert [int(array[0]) for array in values[20:]] == list(range(5))
