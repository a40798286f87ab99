"""Reduces whose result is lost with a node, and made again."""

from __future__ import annotations

from typing import Any

import numpy as np

import hoplo

ELEMENTS = 300_000


@hoplo.remote
def filled(number: float) -> Any:
    return np.full(ELEMENTS, number)


@hoplo.remote
def after(gate: Any, value: Any) -> Any:
    return gate.wait(value)


def test_a_result_that_is_made_again_is_of_the_members_that_were_told(
    make_far: Any, gate: Any
) -> None:
    far = make_far(3)
    here = far.on(1)
    refs = [after.options(scheduling_strategy=here).remote(gate, np.full(ELEMENTS, 1.0))]
    refs += [filled.options(scheduling_strategy=here).remote(number) for number in (10, 100)]
    soft = far.on(2, soft=True)
    total, members = hoplo.reduce(refs, n=2, with_members=True, on=soft)
    assert hoplo.get(members) == [1, 2]
    hoplo.wait([total], fetch_local=False)
    gate.open()
    hoplo.wait(refs, num_returns=3, fetch_local=False)
    far.kill_node(2)
    assert set(hoplo.get(total, timeout=60)) == {110}, "the first member is there by now"
