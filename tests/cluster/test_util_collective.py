"""Groups of hoplo.util.collective whose ranks are on several nodes, and nodes that die."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from far import here
from machines import until

import hoplo
from hoplo.exceptions import CollectiveGroupError
from hoplo.util import collective

SMALL, LARGE = 5, 300_000
SECONDS = 60


@hoplo.remote(num_cpus=0)
class Member:
    def call(self, function: Any, *args: Any, **options: Any) -> Any:
        return function(*args, **options)

    def pid(self) -> int:
        return os.getpid()


def member_on(far: Any, node: int) -> Any:
    return Member.options(scheduling_strategy=far.on(node)).remote()


def everywhere(members: list[Any], function: Any, *args: Any, **options: Any) -> list[Any]:
    refs = [member.call.remote(function, *args, **options) for member in members]
    return list(hoplo.get(refs, timeout=SECONDS))


def join(members: list[Any]) -> None:
    init, size = collective.init_collective_group, len(members)
    refs = [members[0].call.remote(init, size, 0)]
    # The first one makes the rendezvous, on its node.
    until(rendezvous_is_there, what="the rendezvous")
    refs += [member.call.remote(init, size, at) for at, member in enumerate(members[1:], 1)]
    hoplo.get(refs, timeout=SECONDS)


def rendezvous() -> Any:
    namespace = f"hoplo.util.collective/{hoplo.get_runtime_context().namespace}"
    return hoplo.get_actor("default", namespace=namespace)


def rendezvous_is_there() -> bool:
    try:
        rendezvous()
    except ValueError:
        return False
    return True


def raised() -> tuple[tuple[int, ...], str]:
    array = np.zeros(LARGE)
    try:
        collective.allreduce(array)
    except CollectiveGroupError as error:
        return error.ranks, str(error)
    raise AssertionError("nothing was raised")


def operations() -> None:
    """With small arrays and large ones; each checks what it got."""
    rank, size = collective.get_rank(), collective.get_collective_group_size()
    for elements in (SMALL, LARGE):
        array = np.full(elements, rank + 1.0)
        collective.allreduce(array)
        assert (array == size * (size + 1) / 2).all()
        collective.broadcast(array := np.full(elements, rank), size - 1)
        assert (array == size - 1).all()
        rows = [np.zeros(elements) for _ in range(size)]
        collective.allgather(rows, np.full(elements, float(rank)))
        for at, row in enumerate(rows):
            assert (row == at).all(), (elements, at, row)
        collective.reducescatter(part := np.zeros(elements), [row + rank for row in rows])
        want = size * rank + size * (size - 1) / 2
        assert (part == want).all(), (elements, np.unique(part), want)
        collective.all_to_all(rows, [np.full(elements, 10.0 * rank + at) for at in range(size)])
        assert [row[0] for row in rows] == [10 * at + rank for at in range(size)]
        if rank == 0:
            collective.send(part, size - 1)
        elif rank == size - 1:
            collective.recv(part, 0)
            assert (part == size * (size - 1) / 2).all()
    collective.barrier()


@pytest.mark.parametrize("dies", [2, 1], ids=["a-member's", "that-of-the-rendezvous"])
def test_ranks_go_on_when_a_node_dies(make_far: Any, dies: int) -> None:
    far = make_far(3)
    members = [member_on(far, node) for node in (1, 0, 2, 2)]
    join(members)
    assert hoplo.get(rendezvous().__hoplo_call__.remote(lambda _: here())) == far.ids[1]
    everywhere(members, operations)

    if dies == 2:
        survivors, gone, text = members[:2], (2, 3), "ranks 2, 3 of 4 of group 'default' are gone"
        dying = {2, 3}
    else:
        survivors, gone, text = members[1:], (), "the process in which the members of group"
        dying = {0}  # the rendezvous may hear of it before it dies itself
    # All that are to hear of it wait, but one whose rank is on the node.
    waiting = [member.call.remote(raised) for member in survivors]
    until(lambda: waiting_in_it() == len(survivors), what="all wait")
    far.kill_node(dies)
    for ranks, said in hoplo.get(waiting, timeout=SECONDS):
        assert set(ranks) <= dying
        assert "group 'default'" in said
    # What is on the node dies one after the other: the last word has all.
    until(lambda: everywhere(survivors, raised)[0][0] == gone, what="all are gone")
    for ranks, said in everywhere(survivors, raised):
        assert ranks == gone
        assert text in said
        told = [line for line in said.splitlines() if line.startswith("  rank ")]
        assert len(told) == len(gone)
        for line in told:
            why = line.partition(f"on node {far.ids[dies]}; ")[2]
            # The daemon may have told of a process that died before it died itself.
            assert why.startswith(f"its node {far.ids[dies]} died (") or "SIGKILL" in why, said
        assert "obj:" not in said
        assert "copies=2" not in said

    size = len(survivors)
    assert everywhere(survivors, collective.shrink) == [(at, size) for at in range(size)]
    everywhere(survivors, operations)
    everyone = [*survivors, *(member_on(far, 0) for _ in range(4 - size))]
    assert sorted(everywhere(everyone, collective.rejoin)) == [(at, 4) for at in range(4)]
    everywhere(everyone, operations)
    everywhere(everyone, collective.destroy_collective_group)


def waiting_in_it() -> int:
    def count(rendezvous: Any) -> int:
        return sum(len(met.answers) for met in rendezvous._meetings.values())

    return int(hoplo.get(rendezvous().__hoplo_call__.remote(count), timeout=SECONDS))
