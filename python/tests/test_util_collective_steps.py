"""Groups whose ranks do not call the same: refused, late, once too often, or not at all."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from conftest import command, eventually

import hoplo
from hoplo.exceptions import CollectiveGroupError
from hoplo.util import collective
from hoplo.util.collective._meeting import Call
from hoplo.util.collective.types import AllReduceOptions, SendOptions

NODE = {"num_cpus": 4}

LARGE = 40_000
SECONDS = 60
"""More than anything takes here."""

LONG = 10 * SECONDS
"""The timeout of operations: who waits for it fails the test."""

SHORT = 0.05
"""That of operations whose timeout passes."""


@hoplo.remote(num_cpus=0)
class Member:
    def join(self, rank: int) -> None:
        collective.init_collective_group(4, rank, timeout=LONG)

    def call(self, function: Any, *args: Any) -> Any:
        return function(*args)

    def said(self, function: Any) -> str | None:
        """What is raised, with its type."""
        try:
            function()
        except (Exception, CollectiveGroupError) as error:
            return f"{type(error).__name__}: {error}"
        return None


@pytest.fixture(scope="module")
def four(node):
    return [Member.remote() for _ in range(4)]


@pytest.fixture
def group(four):
    hoplo.get([member.join.remote(rank) for rank, member in enumerate(four)], timeout=SECONDS)
    yield four
    hoplo.get([member.call.remote(collective.destroy_collective_group) for member in four])


def said(members, function):
    return hoplo.get([member.said.remote(function) for member in members], timeout=SECONDS)


def calls(members, function):
    return hoplo.get([member.call.remote(function) for member in members], timeout=SECONDS)


def summed():
    array = np.full(3, 1.0 + collective.get_rank())
    collective.allreduce(array)
    return array.tolist()


def in_step(group):
    """All operations are met by those that mean them."""
    assert calls(group, summed) == [[10.0] * 3] * 4
    calls(group, collective.barrier)


def others(group, rank):
    return group[:rank] + group[rank + 1 :]


# ---- refused ----

REFUSED = {
    "no tensor": (
        lambda odd: collective.allreduce([1.0] if odd else np.ones(3)),
        "allreduce, which was refused: TypeError: tensor must be an array of numpy",
    ),
    "read-only": (
        lambda odd: collective.allreduce(np.broadcast_to(1.0, (LARGE,)) if odd else np.ones(LARGE)),
        "allreduce, which was refused: ValueError: tensor is read-only",
    ),
    "no op": (
        lambda odd: collective.reduce(np.ones(3), 0, op="sum" if odd else collective.ReduceOp.SUM),
        "reduce, which was refused: TypeError: op must be one of",
    ),
    "a short list": (
        lambda odd: collective.allgather([np.ones(3) for _ in range(4 - odd)], np.ones(3)),
        "allgather, which was refused: ValueError: tensor_list has 3 tensors, and the group has si",
    ),
    "no such root": (
        lambda odd: collective.broadcast(np.ones(3), 9 if odd else 0),
        "broadcast, which was refused: ValueError: src_rank must be less than the size of the gro",
    ),
    "no timeout": (
        lambda odd: collective.barrier(timeout=-1 if odd else LONG),
        "barrier, which was refused: ValueError: timeout must be 0 or more seconds, not -1",
    ),
    "a handle's": (
        lambda odd: collective.get_group_handle().allreduce(
            [np.ones(3)] * (1 + odd), AllReduceOptions()
        ),
        "allreduce, which was refused: ValueError: tensor must be one tensor, or a list with it",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("last", [False, True], ids=["while others wait", "before they come"])
def test_what_one_rank_is_refused_is_told_to_all_at_once(group, name, last):
    function, text = REFUSED[name]

    def call():
        function(collective.get_rank() == 2)

    if last:
        own = said(group[2:3], call)
        got = said(others(group, 2), call)
    else:
        waiting = [member.said.remote(call) for member in others(group, 2)]
        own = said(group[2:3], call)
        got = hoplo.get(waiting, timeout=SECONDS)
    assert own == [text.partition("refused: ")[2].partition(": ")[0] + own[0][own[0].index(":") :]]
    for one in got:
        assert one.startswith("ValueError: rank 2 of group 'default' called ")
        assert text in one
        assert "so operation 1 has failed for all, and all may go on with the next one" in one
    in_step(group)


def test_what_all_are_refused_leaves_them_in_step(group):
    for text in said(group, lambda: collective.allreduce([1.0])):
        assert text.startswith("TypeError: tensor must be")
    in_step(group)


@pytest.mark.parametrize("with_handle", [False, True])
def test_what_a_sender_is_refused_is_told_to_the_receiver(group, with_handle):
    def send():
        if with_handle:
            collective.get_group_handle().send(np.ones(3), SendOptions(1, n_elements=2))
        else:
            collective.send([1.0], 1)

    own = group[0].said.remote(send)
    [text] = said(group[1:2], lambda: collective.recv(np.ones(3), 0))
    refused = "n_elements is for GPUs" if with_handle else "tensor must be an array"
    assert refused in hoplo.get(own, timeout=SECONDS)
    assert "ValueError: rank 0 of group 'default' called send, which was refused: " in text
    assert refused in text
    assert "so message 1 from rank 0 to rank 1 has failed for all" in text
    pass_on(group)


def pass_on(group):
    """From rank 0 to rank 1."""

    def received():
        array = np.zeros(3)
        collective.recv(array, 0)
        return array.tolist()

    sent = group[0].call.remote(lambda: collective.send(np.full(3, 7.0), 1))
    assert calls(group[1:2], received) == [[7.0] * 3]
    hoplo.get(sent, timeout=SECONDS)


# ---- late, once too often, or not at all ----


def brief_sum():
    collective.allreduce(np.ones(3), timeout=SHORT)


def test_who_is_late_hears_what_is_over_and_then_is_in_step(group):
    for text in said(others(group, 1), brief_sum):
        assert text.startswith("CollectiveTimeoutError: rank")
        assert "of group 'default' did not call allreduce within 0.05 s, as rank " in text
        assert "has failed for all, and all may go on with the next one" in text
    [text] = said(group[1:2], summed)
    assert re.search(
        r"^CollectiveTimeoutError: rank 1 called allreduce too late: operation 1 failed for all "
        r"\d+\.\d s ago, since ranks? .*1.* of group 'default' did not call allreduce within "
        r"0.05 s. The next call of rank 1 is the next one; if it left out a call of allreduce, "
        r"call shrink\('default'\) in all ranks$",
        text,
    )
    in_step(group)


def test_who_left_out_another_operation_is_brought_into_step(group):
    for _ in range(2):
        for text in said(others(group, 1), lambda: collective.barrier(timeout=SHORT)):
            assert "did not call barrier within 0.05 s" in text
    in_step(group)


def test_who_called_something_once_too_often_is_in_step_afterwards(group):
    calls(group, collective.barrier)
    [text] = said(group[:1], lambda: collective.barrier(timeout=SHORT))
    assert "ranks 1, 2, 3 of group 'default' did not call barrier within 0.05 s" in text
    assert "operation 2 has failed for all" in text
    in_step(group)


def test_what_is_sent_and_not_received_is_over(group):
    def send():
        collective.send(np.ones(5), 1, timeout=SHORT)

    [text] = said(group[:1], send)
    assert "rank 1 of group 'default' did not call recv within 0.05 s, as rank 0 called s" in text
    assert "message 1 from rank 0 to rank 1 has failed for all" in text
    pass_on(group)  # another one, which has another shape
    said(group[:1], send)
    [text] = said(group[1:2], lambda: collective.recv(np.ones(5), 0))
    assert "rank 1 called recv too late: message 3 from rank 0 to rank 1 failed for all" in text
    pass_on(group)
    in_step(group)


def test_who_stays_behind_does_not_cost_all_a_timeout_for_each_operation(group):
    said(others(group, 1), brief_sum)
    # Rank 1 left that one out, and the next is the same: it may be late or behind.
    [text] = said(group[1:2], brief_sum)
    assert "too late: operation 1" in text
    for text in said(others(group, 1), brief_sum):
        assert text.startswith("CollectiveGroupError: rank 1 is out of step: it came too late to ")
        assert "operation 1, and for the next one rank" in text
        assert "call shrink('default') in all ranks, which then go on in step" in text
    for text in said(group, summed):  # with a long timeout
        assert text.startswith("CollectiveGroupError: rank 1 is out of step")
    assert calls(group, collective.shrink) == [(rank, 4) for rank in range(4)]
    in_step(group)


def test_ranks_that_wait_hear_at_once_that_one_wants_to_shrink(group):
    waiting = [member.said.remote(collective.barrier) for member in group[:2]]
    shrunk = [group[3].call.remote(collective.shrink)]
    for text in [*hoplo.get(waiting, timeout=SECONDS), *said(group[2:3], collective.barrier)]:
        assert text.startswith("CollectiveGroupError: rank 3 called shrink('default'), so ")
        assert text.endswith("operation 1 has failed for all: call shrink('default') in all ranks")
    shrunk += [member.call.remote(collective.shrink) for member in group[:3]]
    assert hoplo.get(shrunk, timeout=SECONDS) == [(3, 4), (0, 4), (1, 4), (2, 4)]
    in_step(group)


# ---- what the timeout bounds ----


def test_a_timeout_bounds_what_comes_after_all_have_called(group, gate):
    @hoplo.remote(num_cpus=0)
    def late():
        gate.wait()

    def folds_late(rendezvous):
        rendezvous._fold = lambda op, pieces, at: late.remote()

    def folds(rendezvous):
        del rendezvous._fold

    namespace = f"hoplo.util.collective/{hoplo.get_runtime_context().namespace}"
    rendezvous = hoplo.get_actor("default", namespace=namespace)
    hoplo.get(rendezvous.__hoplo_call__.remote(folds_late), timeout=SECONDS)

    def attempt():
        array = np.ones(LARGE)
        try:
            collective.allreduce(array, timeout=1)
        finally:
            assert (array == 1).all()

    for rank, text in enumerate(said(group, attempt)):
        assert text.startswith(
            f"CollectiveTimeoutError: allreduce of group 'default' did not end within 1 s in rank "
            f"{rank}: all have called it, and what this rank gets has not come yet"
        )
        assert "the result was not there in time" in text
    gate.open()
    hoplo.get(rendezvous.__hoplo_call__.remote(folds), timeout=SECONDS)
    in_step(group)


# ---- hoplo why ----


def test_why_tells_whom_a_group_waits_for(four):
    def told(ref, text):
        eventually(lambda: text in command("why", ref.hex()).stdout, SECONDS, what=text)

    joined = [four[0].join.remote(0)]
    told(joined[0], "in the making of group 'default': ranks 1, 2, 3 of 4 did not join it yet")
    joined += [member.join.remote(rank) for rank, member in enumerate(four[1:], 1)]
    hoplo.get(joined, timeout=SECONDS)
    met = [member.call.remote(collective.barrier) for member in four[:2]]
    told(met[0], "in barrier: ranks 2, 3 of group 'default' did not call barrier yet")
    met += [member.call.remote(collective.barrier) for member in four[2:]]
    hoplo.get(met, timeout=SECONDS)
    agreed = [member.call.remote(collective.rejoin) for member in four[1:]]
    told(agreed[0], "in rejoin of group 'default': rank 0 did not call rejoin yet")
    hoplo.get([*agreed, four[0].call.remote(collective.rejoin)], timeout=SECONDS)
    calls(four, collective.destroy_collective_group)


# ---- what has no process ----


def test_calls_that_may_be_the_same_operation():
    one = Call("broadcast", None, 0, "f8", (3,))
    assert one.may_be(one)
    assert not one.may_be(one._replace(shape=(4,)))
    assert one.may_be(Call("broadcast", refused="no tensor"))
    assert not Call("barrier", refused="no timeout").may_be(one)
    assert [Call("send/recv", root=2).named(rank) for rank in (2, 3)] == ["send", "recv"]
