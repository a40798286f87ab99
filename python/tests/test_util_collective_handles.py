"""Groups as objects, whose methods take objects for their options, as those of Ray do."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest

import hoplo
from hoplo.exceptions import CollectiveTimeoutError
from hoplo.util import collective
from hoplo.util.collective.types import (
    AllGatherOptions,
    AllReduceOptions,
    Backend,
    BarrierOptions,
    BroadcastOptions,
    RecvOptions,
    ReduceOp,
    ReduceOptions,
    ReduceScatterOptions,
    SendOptions,
    cupy_available,
    torch_available,
)

NODE = {"num_cpus": 2}

SECONDS = 60


@hoplo.remote(num_cpus=0)
class Member:
    def join(self, rank: int) -> None:
        collective.init_collective_group(2, rank, "gloo", "pair", timeout=SECONDS)
        self.group = collective.get_group_handle("pair")

    def call(self, function):
        return function(self.group)

    def leave(self) -> None:
        self.group.destroy_group()


@pytest.fixture(scope="module")
def pair(node):
    members = [Member.remote() for _ in range(2)]
    hoplo.get([member.join.remote(rank) for rank, member in enumerate(members)], timeout=SECONDS)
    yield members
    hoplo.get([member.leave.remote() for member in members], timeout=SECONDS)


@pytest.fixture
def alone(node):
    collective.init_collective_group(1, 0, group_name="alone")
    yield collective.get_group_handle("alone")
    collective.destroy_collective_group("alone")


def everywhere(members, function):
    return hoplo.get([member.call.remote(function) for member in members], timeout=SECONDS)


def test_a_handle_knows_its_group(pair, alone):
    told = everywhere(pair, lambda group: (group.group_name, group.rank, group.world_size))
    assert told == [("pair", 0, 2), ("pair", 1, 2)]
    assert alone.check_backend_availability()
    assert Backend(alone.backend()) == alone.backend()
    alone.destroy_group()
    assert (alone.rank, alone.world_size) == (-1, -1)
    with pytest.raises(RuntimeError, match="does not belong to a group 'alone'"):
        alone.barrier()


def test_every_method_does_what_its_options_say(pair):
    def all_of_them(group):
        rank, got = group.rank, []
        mine = [np.array([rank + 1.0, 5.0 * rank])]
        group.allreduce(mine, AllReduceOptions(reduceOp=ReduceOp.PRODUCT))
        got.append(mine[0].tolist())
        mine = np.array([rank + 1.0])
        group.reduce(mine, ReduceOptions(ReduceOp.MAX, root_rank=1))
        got.append(mine.tolist())
        group.broadcast([mine], BroadcastOptions(root_rank=1))
        got.append(mine.tolist())
        both = [np.zeros(1), np.zeros(1)]
        group.allgather([both], [np.array([float(rank)])], AllGatherOptions())
        got.append([one.tolist() for one in both])
        part = np.zeros(1)
        lists = [np.array([rank + 1.0]), np.array([rank + 10.0])]
        group.reducescatter([part], [lists], ReduceScatterOptions(ReduceOp.MIN))
        got.append(part.tolist())
        if rank == 0:
            group.send([np.array([7.0])], SendOptions(dst_rank=1))
        else:
            group.recv([part], RecvOptions(src_rank=0))
        got.append(part.tolist())
        group.barrier(BarrierOptions())
        return got

    first, second = everywhere(pair, all_of_them)
    assert first == [[2.0, 0.0], [1.0], [2.0], [[0.0], [1.0]], [1.0], [1.0]]
    assert second == [[2.0, 0.0], [2.0], [2.0], [[0.0], [1.0]], [10.0], [7.0]]


def test_options_that_are_left_out_are_those_of_the_functions(pair):
    def sums(group):
        mine = np.array([group.rank + 1.0])
        group.allreduce([mine])
        group.reduce(mine)
        both = [np.zeros(1), np.zeros(1)]
        group.allgather(both, mine)
        group.broadcast(mine)
        group.reducescatter(mine, both)
        group.barrier()
        return mine.tolist()

    assert everywhere(pair, sums) == [[12.0], [6.0]]


def test_options_may_be_set_on_the_class_itself(alone):
    class Options(AllReduceOptions):
        reduceOp = ReduceOp.MIN

    array = np.ones(2)
    alone.allreduce([array], Options)
    assert array.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("timeout", [timedelta(milliseconds=50), 50])
def test_a_timeout_of_options_is_that_of_the_call(pair, timeout):
    def waits(group):
        with pytest.raises(CollectiveTimeoutError):
            group.barrier(BarrierOptions(timeout_ms=timeout))

    hoplo.get(pair[0].call.remote(waits), timeout=SECONDS)
    hoplo.get([member.leave.remote() for member in pair], timeout=SECONDS)
    hoplo.get([member.join.remote(rank) for rank, member in enumerate(pair)], timeout=SECONDS)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda g, a: g.allreduce([a, a]), "tensor must be one tensor, .*, not 2 tensors"),
        (lambda g, a: g.allgather([[a], [a]], [a]), "tensor_list must be .*, not 2 tensors"),
        (lambda g, a: g.reduce(a, ReduceOptions(root_tensor=1)), "root_tensor is for GPUs, .* 1"),
        (lambda g, a: g.broadcast(a, BroadcastOptions(0, 2)), "root_tensor is for GPUs, .* 2"),
        (lambda g, a: g.send(a, SendOptions(1, n_elements=3)), "n_elements is for GPUs, .* 3"),
        (lambda g, a: g.recv(a, RecvOptions(1, src_gpu_index=1)), "src_gpu_index is for GPUs"),
        (lambda g, a: g.broadcast(a, BroadcastOptions(root_rank=3)), "must be less than the size"),
    ],
)
def test_what_is_for_several_gpus_is_refused(alone, call, text):
    with pytest.raises(ValueError, match=text):
        call(alone, np.zeros(2))


def test_what_there_is_of_other_libraries_is_told():
    assert [collective.is_backend_available(name) for name in ("GLOO", "nccl", "x")] == [
        True,
        False,
        False,
    ]
    assert not cupy_available()
    assert torch_available() in (True, False)
    with pytest.raises(ValueError, match="must be one of"):
        Backend(Backend.UNRECOGNIZED)
