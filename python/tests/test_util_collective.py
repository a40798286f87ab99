"""hoplo.util.collective: every operation beside numpy, every wrong call, and ranks that die."""

import functools
import os
import pickle
import signal
import time
import types

import ml_dtypes
import numpy as np
import pytest
from conftest import eventually

import hoplo
from hoplo.exceptions import (
    CollectiveGroupError,
    CollectiveTimeoutError,
    ObjectLostError,
    TaskError,
)
from hoplo.util import collective
from hoplo.util.collective import Backend, ReduceOp
from hoplo.util.collective._meeting import Call, Meeting
from hoplo.util.collective._rendezvous import _reason

NODE = {"num_cpus": 4}

SMALL, LARGE = 5, 40_000
"""Elements of arrays that travel in messages and by refs, whatever they are."""

SECONDS = 60
"""More than anything takes here."""


@hoplo.remote(num_cpus=0)
class Member:
    """Calls what it is told to."""

    def call(self, function, *args, **options):
        return function(*args, **options)

    def pid(self):
        return os.getpid()


def members_of(count):
    return [Member.remote() for _ in range(count)]


def everywhere(members, function, *args, **options):
    """What each gives, in order."""
    refs = [member.call.remote(function, *args, **options) for member in members]
    return hoplo.get(refs, timeout=SECONDS)


def join(members, name="default", **options):
    size = len(members)
    refs = [
        member.call.remote(collective.init_collective_group, size, rank, group_name=name, **options)
        for rank, member in enumerate(members)
    ]
    hoplo.get(refs, timeout=SECONDS)


def text_of(ref):
    """Of the ValueError that it gives, if it does."""
    try:
        hoplo.get(ref, timeout=SECONDS)
    except ValueError as error:
        return str(error)
    return None


def kill(member):
    os.kill(hoplo.get(member.pid.remote(), timeout=SECONDS), signal.SIGKILL)


@pytest.fixture(scope="module")
def four(node):
    return members_of(4)


@pytest.fixture
def group(four):
    """Four members of the group "default"."""
    join(four)
    yield four
    everywhere(four, collective.destroy_collective_group)


@pytest.fixture
def alone(node):
    """This process as a group of its own."""
    collective.init_collective_group(1, 0, group_name="alone")
    yield "alone"
    collective.destroy_collective_group("alone")


# ---- wrong calls ----


def test_a_group_that_is_not_there(node):
    assert not collective.is_group_initialized("nothing")
    assert collective.get_rank("nothing") == collective.get_collective_group_size("nothing") == -1
    collective.destroy_collective_group("nothing")
    array = np.zeros(2)
    for attempt in (
        lambda: collective.allreduce(array, "nothing"),
        lambda: collective.barrier("nothing"),
        lambda: collective.send(array, 1, "nothing"),
        lambda: collective.get_group_handle("nothing"),
        lambda: collective.shrink("nothing"),
    ):
        with pytest.raises(RuntimeError, match=r"belong to a group 'nothing': call init_coll"):
            attempt()
    with pytest.raises(RuntimeError, match="there is no group 'nothing'"):
        collective.rejoin("nothing")


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((0, 0), ValueError, "world_size must be a whole number from 1 on"),
        ((2, 2), ValueError, "rank must be less than world_size=2, not 2"),
        ((2, -1), ValueError, "rank must be a whole number from 0 on"),
        ((2, 0.5), TypeError, "rank must be a whole number"),
        ((True, 0), ValueError, "world_size"),
        ((1, 0, "nccl"), ValueError, "write backend='gloo' and give tensor.cpu()"),
        ((1, 0, "horovod"), ValueError, "'auto', 'gloo', 'torch_gloo', 'mpi', not 'horovod'"),
        ((1, 0, None), TypeError, "backend must be a name"),
        ((1, 0, "gloo", ""), ValueError, "group_name must be a text"),
        ((1, 0, "gloo", 3), ValueError, "group_name must be a text"),
    ],
)
def test_wrong_arguments_of_init(node, arguments, error, text):
    with pytest.raises(error, match=text.replace("(", r"\(").replace(")", r"\)")):
        collective.init_collective_group(*arguments)
    assert not collective.is_group_initialized()


@pytest.mark.parametrize("backend", ["auto", "gloo", "torch_gloo", "mpi", "GLOO", Backend.GLOO])
def test_every_backend_that_means_the_host_is_taken(node, backend):
    collective.init_collective_group(1, 0, backend, "backend")
    collective.barrier("backend")
    collective.destroy_collective_group("backend")


def test_a_process_joins_a_group_once(alone):
    with pytest.raises(RuntimeError, match="belongs to group 'alone' already"):
        collective.init_collective_group(1, 0, group_name=alone)


def test_another_process_does_not_get_into_a_group_that_is_there(alone, four):
    with pytest.raises(RuntimeError, match=r"there already, of size 1.*rejoin"):
        everywhere(four[:1], collective.init_collective_group, 1, 0, group_name=alone)


def test_ranks_that_do_not_come_are_told(four):
    with pytest.raises(CollectiveTimeoutError, match=r"ranks 0, 2 of 3 did not join .* 0\.05 s"):
        everywhere(four[:1], collective.init_collective_group, 3, 1, timeout=0.05)
    join(four[:2])  # nothing is left of the first try
    everywhere(four[:2], collective.destroy_collective_group)


def test_a_rank_that_two_want_is_told_to_the_second(four):
    init = collective.init_collective_group
    first = four[0].call.remote(init, 2, 0, group_name="twice")
    second = four[1].call.remote(init, 2, 0, group_name="twice")
    hoplo.wait([first, second], num_returns=1, timeout=SECONDS)
    [third] = everywhere([four[2]], lambda: init(2, 1, group_name="twice"))
    assert third is None
    texts = [text_of(ref) for ref in (first, second)]
    [text] = [text for text in texts if text is not None]
    assert "rank 0 of group 'twice' is taken: by actor " in text
    everywhere(four[:3], collective.destroy_collective_group, "twice")


def test_world_sizes_that_differ_are_told_to_all(four):
    refs = [
        member.call.remote(collective.init_collective_group, size, rank)
        for rank, (member, size) in enumerate(zip(four, (4, 3), strict=False))
    ]
    for ref in refs:
        with pytest.raises(ValueError, match=r"world_size=[34], and rank \d has world_size=[34]"):
            hoplo.get(ref, timeout=SECONDS)


@pytest.mark.parametrize("tensor", [None, 3, [1.0, 2.0], np.float64(3), "text"])
def test_what_is_no_tensor_is_refused(alone, tensor):
    for function in (collective.allreduce, collective.broadcast):
        with pytest.raises(TypeError, match="tensor must be an array of numpy or a tensor"):
            function(tensor, group_name=alone)


def test_arrays_that_operations_cannot_take(alone):
    for array in (np.array([None]), np.zeros(2, [("at", "i4"), ("of", "O")])):
        with pytest.raises(
            TypeError, match=r"array of .*'?O|object.*, which has objects of Python"
        ):
            collective.broadcast(array, group_name=alone)
    for array in (np.array(["text"]), np.zeros(2, "V3"), np.zeros(2, [("at", "i4")])):
        with pytest.raises(TypeError, match="what is to be folded must be numbers or times"):
            collective.allreduce(array, group_name=alone)
    for dtype, op, names in (
        ("m8[s]", ReduceOp.PRODUCT, "ReduceOp.SUM, ReduceOp.MIN, ReduceOp.MAX"),
        ("M8[s]", ReduceOp.SUM, "ReduceOp.MIN, ReduceOp.MAX"),
        (ml_dtypes.int4, ReduceOp.MIN, "ReduceOp.SUM, ReduceOp.PRODUCT"),
    ):
        text = f"of these op may be {names}, not {op}"
        with pytest.raises(TypeError, match=text):
            collective.allreduce(np.zeros(2, dtype), alone, op)
        with pytest.raises(TypeError, match=text):
            collective.reducescatter(np.zeros(2, dtype), [np.zeros(2, dtype)], alone, op)


def test_a_result_is_not_written_into_what_is_read_only(alone):
    array = hoplo.get(hoplo.put(np.zeros(LARGE)))
    for attempt in (
        lambda: collective.allreduce(array, alone),
        lambda: collective.allgather([array], np.zeros(LARGE), alone),
        lambda: collective.reducescatter(array, [np.zeros(LARGE)], alone),
    ):
        with pytest.raises(ValueError, match=r"is read-only.*array\.copy\(\)"):
            attempt()
    collective.broadcast(array, 0, alone)  # the root's is only read


def test_roots_ops_and_timeouts_are_checked(alone):
    array = np.zeros(2)
    for function in (collective.broadcast, collective.reduce):
        with pytest.raises(ValueError, match="must be less than the size of the group, 1, not 1"):
            function(array, 1, alone)
    with pytest.raises(ValueError, match="dst_rank=0 is this process itself"):
        collective.send(array, 0, alone)
    with pytest.raises(ValueError, match="src_rank=0 is this process itself"):
        collective.recv(array, 0, alone)
    with pytest.raises(TypeError, match=r"ReduceOp\.SUM.*not 'sum'"):
        collective.allreduce(array, alone, "sum")
    with pytest.raises(ValueError, match="timeout must be 0 or more"):
        collective.barrier(alone, timeout=-1)
    with pytest.raises(TypeError, match="timeout must be seconds"):
        collective.barrier(alone, timeout="1")


def test_lists_have_one_tensor_for_each_rank_and_all_are_alike(alone):
    array = np.zeros(2)
    with pytest.raises(ValueError, match="tensor_list has 2 tensors, and the group has size 1"):
        collective.allgather([array, array], array, alone)
    with pytest.raises(TypeError, match="tensor_list must be a list"):
        collective.reducescatter(array, array, alone)
    with pytest.raises(ValueError, match=r"float64 of shape \(3,\), and tensor of float64 .*\(2,"):
        collective.allgather([np.zeros(3)], array, alone)
    with pytest.raises(ValueError, match=r"of int64 of shape \(2,\), and input_tensor_list\[0\]"):
        collective.all_to_all([np.zeros(2, int)], [array], alone)


def test_what_is_for_several_gpus_says_what_to_do():
    for name in collective.__all__:
        if name.endswith("_multigpu"):
            with pytest.raises(NotImplementedError, match=r"torch\.distributed with NCCL"):
                getattr(collective, name)([])
    with pytest.raises(NotImplementedError, match="nothing is pending"):
        collective.synchronize(0)
    assert collective.gloo_available()
    assert not collective.nccl_available()


# ---- ranks that do not mean the same ----


def outcomes(members, function):
    """The text of what each raised."""
    texts = [text_of(ref) for ref in [member.call.remote(function) for member in members]]
    assert None not in texts
    return texts


def test_different_operations_are_told_to_all(group):
    def mixed():
        if collective.get_rank() == 2:
            collective.broadcast(np.zeros(3), 1)
        else:
            collective.allreduce(np.zeros(3))

    for text in outcomes(group, mixed):
        assert "broadcast(src_rank=1) with tensors of float64 of shape (3,)" in text
        assert "allreduce(op=sum) with tensors of float64 of shape (3,)" in text
        assert "must call the same operation in the same order" in text
    everywhere(group, collective.barrier)  # the group goes on


@pytest.mark.parametrize(
    ("odd", "text"),
    [
        (lambda: np.zeros(4), "float64 of shape (4,)"),
        (lambda: np.zeros(3, "f4"), "float32 of shape (3,)"),
        (lambda: np.zeros(LARGE), f"float64 of shape ({LARGE},)"),
    ],
    ids=["shape", "dtype", "large"],
)
def test_tensors_that_differ_are_told_to_all_with_both(group, odd, text):
    def mixed():
        collective.allreduce(odd() if collective.get_rank() == 1 else np.zeros(3))

    for said in outcomes(group, mixed):
        assert text in said
        assert "float64 of shape (3,)" in said


def test_roots_and_ops_that_differ_are_told(group):
    for text in outcomes(group, lambda: collective.broadcast(np.zeros(1), collective.get_rank())):
        assert text.count("broadcast(src_rank=") == 2

    def ops():
        collective.allreduce(np.zeros(1), op=list(ReduceOp)[collective.get_rank()])

    for text in outcomes(group, ops):
        assert text.count("allreduce(op=") == 2


def test_what_is_sent_and_what_is_received_must_be_alike(group):
    def pair():
        if collective.get_rank() == 0:
            collective.send(np.zeros(3), 1)
        else:
            collective.recv(np.zeros(4), 0)

    for text in outcomes(group[:2], pair):
        assert "shape (3,)" in text
        assert "shape (4,)" in text


def test_an_operation_that_not_all_call_fails_for_all_that_come(group):
    def patient():
        collective.barrier(timeout=0.05 if collective.get_rank() == 0 else SECONDS)

    early = [member.call.remote(patient) for member in group[:2]]
    for ref in early:
        with pytest.raises(CollectiveTimeoutError, match=r"ranks 2, 3 of group .* as rank 0 did"):
            hoplo.get(ref, timeout=SECONDS)
    for member in group[2:]:
        with pytest.raises(CollectiveTimeoutError, match=r"too late: .* call barrier within 0\.05"):
            hoplo.get(member.call.remote(patient), timeout=SECONDS)
    everywhere(group, collective.barrier, timeout=SECONDS)


# ---- values ----


def inputs(rank, size, dtype, elements):
    """As many arrays as there are ranks, and no two the same."""
    random = np.random.default_rng(rank)
    return [(10 * random.random(elements)).astype(dtype) for _ in range(size)]


def all_operations(dtype, elements, root, name):
    """What each operation gives to this rank."""
    rank, size = collective.get_rank(name), collective.get_collective_group_size(name)
    mine = inputs(rank, size, dtype, elements)
    got = {}
    for op in ReduceOp:
        got[f"allreduce {op.name}"] = one = mine[0].copy()
        collective.allreduce(one, name, op)
    got["reduce"] = one = mine[0].copy()
    collective.reduce(one, root, name)
    got["broadcast"] = one = mine[0].copy()
    collective.broadcast(one, root, name)
    got["allgather"] = many = np.zeros((size, elements), dtype)
    collective.allgather(list(many), mine[0], name)
    got["gather"] = many = np.zeros((size, elements), dtype)
    collective.gather(mine[0], list(many) if rank == root else None, root, name)
    got["scatter"] = one = np.zeros(elements, dtype)
    collective.scatter(one, mine if rank == root else None, root, name)
    got["reducescatter"] = one = np.zeros(elements, dtype)
    collective.reducescatter(one, mine, name)
    got["all_to_all"] = many = np.zeros((size, elements), dtype)
    collective.all_to_all(list(many), mine, name)
    got["ring"] = one = np.zeros(elements, dtype)
    if size > 1:
        before, after = (rank - 1) % size, (rank + 1) % size
        if rank == 0:
            collective.send(mine[0], after, name)
            collective.recv(one, before, name)
        else:
            collective.recv(one, before, name)
            collective.send(mine[0], after, name)
    collective.barrier(name)
    return got


UFUNCS = {"SUM": np.add, "PRODUCT": np.multiply, "MIN": np.minimum, "MAX": np.maximum}


def model(rank, size, dtype, elements, root):
    """The same by numpy alone."""
    all_ranks = [inputs(at, size, dtype, elements) for at in range(size)]
    mine = all_ranks[rank]
    first = [arrays[0] for arrays in all_ranks]
    zeros = np.zeros((size, elements), dtype)
    want = {f"allreduce {op}": functools.reduce(ufunc, first) for op, ufunc in UFUNCS.items()}
    want["reduce"] = functools.reduce(np.add, first) if rank == root else mine[0]
    want["broadcast"] = first[root]
    want["allgather"] = np.array(first)
    want["gather"] = np.array(first) if rank == root else zeros
    want["scatter"] = all_ranks[root][rank]
    want["reducescatter"] = functools.reduce(np.add, [arrays[rank] for arrays in all_ranks])
    want["all_to_all"] = np.array([arrays[rank] for arrays in all_ranks])
    want["ring"] = first[(rank - 1) % size] if size > 1 else zeros[0]
    return want


def compare(got, size, dtype, elements, root):
    for rank, found in enumerate(got):
        want = model(rank, size, dtype, elements, root)
        assert found.keys() == want.keys()
        for name in want:
            assert found[name].dtype == np.dtype(dtype), name
            if dtype is ml_dtypes.bfloat16:
                # Large ones are folded in any order, and have 8 bits.
                got_as, want_as = (one.astype("f4") for one in (found[name], want[name]))
                np.testing.assert_allclose(got_as, want_as, 0.02, err_msg=name)
            elif np.dtype(dtype).kind in "fc":
                np.testing.assert_allclose(found[name], want[name], 1e-5, err_msg=name)
            else:
                np.testing.assert_array_equal(found[name], want[name], name)


@pytest.mark.parametrize("elements", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "u1", "c16", "?", ml_dtypes.bfloat16])
def test_every_operation_does_what_numpy_does(group, dtype, elements):
    if dtype == "u1":
        elements *= 3
    got = everywhere(group, all_operations, dtype, elements, 2, "default")
    compare(got, 4, dtype, elements, 2)


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("elements", [SMALL, LARGE], ids=["small", "large"])
def test_groups_of_other_sizes(four, size, elements):
    join(four[:size])
    got = everywhere(four[:size], all_operations, "f8", elements, 0, "default")
    compare(got, size, "f8", elements, 0)
    everywhere(four[:size], collective.destroy_collective_group)


def test_two_groups_at_once_with_the_driver_and_a_task_among_them(group):
    @hoplo.remote(num_cpus=0)
    def third():
        collective.init_collective_group(3, 2, group_name="mixed")
        try:
            return all_operations("f8", SMALL, 1, "mixed")
        finally:
            collective.destroy_collective_group("mixed")

    def second():
        collective.init_collective_group(3, 1, group_name="mixed")
        assert collective.get_rank("mixed") == 1
        assert collective.get_rank() == 0
        got = all_operations("f8", SMALL, 1, "mixed")
        collective.barrier()
        collective.destroy_collective_group("mixed")
        return got

    refs = [group[0].call.remote(second), third.remote()]
    others = [member.call.remote(collective.barrier) for member in group[1:]]
    collective.init_collective_group(3, 0, group_name="mixed")
    mine = all_operations("f8", SMALL, 1, "mixed")
    collective.destroy_collective_group("mixed")
    compare([mine, *hoplo.get(refs, timeout=SECONDS)], 3, "f8", SMALL, 1)
    hoplo.get(others, timeout=SECONDS)


@pytest.mark.parametrize("elements", [SMALL, LARGE], ids=["small", "large"])
def test_times_are_folded_and_arrays_with_fields_are_moved(group, elements):
    def everything():
        rank, size = collective.get_rank(), collective.get_collective_group_size()
        spans, times = np.full(elements, rank, "m8[s]"), np.full(elements, rank, "M8[s]")
        collective.allreduce(spans)
        collective.allreduce(times, op=ReduceOp.MAX)
        fields = np.zeros(elements, [("at", "i4"), ("of", "f8"), ("name", "S2")])
        fields["at"], fields["name"] = rank, b"ab"
        all_fields = np.zeros((size, elements), fields.dtype)
        collective.allgather(list(all_fields), fields)
        collective.broadcast(fields, 3)
        raw = np.full(elements, np.void(b"abc"))
        if rank == 0:
            collective.send(raw, 1)
        elif rank == 1:
            collective.recv(raw := np.zeros(elements, "V3"), 0)
        return spans, times, all_fields, fields, raw

    for spans, times, all_fields, fields, raw in everywhere(group, everything):
        assert (spans == np.timedelta64(6, "s")).all()
        assert (times == np.datetime64(3, "s")).all()
        assert (all_fields["at"] == np.arange(4)[:, None]).all()
        assert (fields["at"] == 3).all()
        assert (fields["name"] == b"ab").all()
        assert (raw == np.void(b"abc")).all()


def test_arrays_of_any_layout_and_of_no_element(group):
    def layouts():
        rank = collective.get_rank()
        columns = np.full((3, 4), rank, float)
        collective.allreduce(columns[:, 1])
        turned = np.full((3, 4), rank, float).T
        collective.allreduce(turned)
        number = np.array(rank)
        collective.allreduce(number)
        nothing = np.zeros((0, 3))
        collective.allreduce(nothing)
        times = np.full(2, rank, "M8[s]")
        collective.broadcast(times, 3)
        return columns, turned, number, nothing, times

    for rank, (columns, turned, number, nothing, times) in enumerate(everywhere(group, layouts)):
        assert (columns[:, 1] == 6).all()
        assert (columns[:, 0] == rank).all()
        assert (turned == 6).all()
        assert number == 6
        assert nothing.shape == (0, 3)
        assert (times == np.datetime64(3, "s")).all()


def test_a_group_is_made_again_under_its_name(four):
    def again():
        for size in (4, 4):
            rank = int(collective.get_rank("others"))
            collective.init_collective_group(size, rank)
            array = np.ones(1)
            collective.allreduce(array)
            collective.destroy_collective_group()
        return array[0]

    join(four, "others")
    assert everywhere(four, again) == [4.0] * 4
    everywhere(four, collective.destroy_collective_group, "others")


def test_actors_are_declared_to_be_a_group(four):
    collective.create_collective_group(four, 4, [3, 2, 1, 0], "gloo", "declared")
    with pytest.raises(RuntimeError, match="group 'declared' is there already"):
        collective.create_collective_group(four, 4, [3, 2, 1, 0], "gloo", "declared")
    with pytest.raises(RuntimeError, match="belong to a group 'declared'"):
        collective.barrier("declared")  # the driver is none of them

    def first():
        array = np.array([10.0])
        collective.broadcast(array, 3, "declared")
        array += collective.get_rank("declared")
        return array[0]

    assert everywhere(four, first) == [13.0, 12.0, 11.0, 10.0]
    everywhere(four, collective.destroy_collective_group, "declared")
    collective.destroy_collective_group("declared")


def test_what_cannot_be_declared(four):
    make = collective.create_collective_group
    with pytest.raises(TypeError, match="handles of actors"):
        make([3], 1, [0])
    with pytest.raises(ValueError, match="2 ranks of world_size needs an actor"):
        make(four, 2, [0, 1])
    with pytest.raises(ValueError, match="numbers from 0 to 3"):
        make(four, 4, [0, 1, 2, 2])
    with pytest.raises(ValueError, match="given twice"):
        make([four[0], four[0]], 2, [0, 1])


def test_tensors_of_torch(group):
    pytest.importorskip("torch")

    def both():
        import torch

        tensor = torch.full((3,), float(collective.get_rank()), requires_grad=True)
        collective.allreduce(tensor)
        large = torch.ones(LARGE)
        collective.allreduce(large)
        return tensor.tolist(), float(large.sum())

    assert everywhere(group, both) == [([6.0] * 3, 4.0 * LARGE)] * 4


def test_tensors_of_gpus_and_of_odd_dtypes_are_refused(alone, monkeypatch):
    class Tensor:
        """As much of torch.Tensor as is looked at."""

        def __init__(self, device):
            self.device = types.SimpleNamespace(type=device)
            self.dtype = "torch.bfloat16"

        def detach(self):
            return self

        def numpy(self):
            raise TypeError("Got unsupported ScalarType BFloat16")

    torch = types.ModuleType("torch")
    torch.Tensor = Tensor
    monkeypatch.setitem(__import__("sys").modules, "torch", torch)
    with pytest.raises(TypeError, match=r"give tensor\.cpu\(\)"):
        collective.allreduce(Tensor("cuda"), alone)
    with pytest.raises(TypeError, match=r"bfloat16 that numpy cannot see .*tensor\.float\(\)"):
        collective.allreduce(Tensor("cpu"), alone)


# ---- ranks that are gone ----


def raised(function, *args, **options):
    """The ranks that were gone, the text, and when it was heard."""
    try:
        function(*args, **options)
    except CollectiveGroupError as error:
        return error.ranks, str(error), time.time()
    raise AssertionError("nothing was raised")


def raised_by_allreduce():
    return raised(collective.allreduce, np.zeros(LARGE))


def test_a_rank_that_dies_ends_what_others_wait_for_then_shrink_then_rejoin(node):
    members = members_of(4)
    join(members)
    survivors = [members[0], members[1], members[3]]
    pid = hoplo.get(members[2].pid.remote(), timeout=SECONDS)
    waiting = [member.call.remote(raised_by_allreduce) for member in survivors]
    eventually(lambda: asked("default", waiting_in_it) == 3, SECONDS)
    os.kill(pid, signal.SIGKILL)
    killed = time.time()
    for ranks, text, when in hoplo.get(waiting, timeout=SECONDS):
        assert ranks == (2,)
        assert "rank 2 of 4 of group 'default' is gone: call shrink('default')" in text
        assert f"pid {pid} was killed by SIGKILL" in text
        assert when - killed < SECONDS / 2, "and no timeout passed"
    # What they call next says the same, until they have agreed.
    for ranks, _, _ in everywhere(survivors, raised_by_allreduce):
        assert ranks == (2,)

    assert everywhere(survivors, collective.shrink) == [(0, 3), (1, 3), (2, 3)]
    compare(everywhere(survivors, all_operations, "f8", LARGE, 2, "default"), 3, "f8", LARGE, 2)

    everyone = [*survivors, Member.remote()]
    assert everywhere(everyone, collective.rejoin) == [(0, 4), (1, 4), (2, 4), (3, 4)]
    compare(everywhere(everyone, all_operations, "f8", SMALL, 3, "default"), 4, "f8", SMALL, 3)
    with pytest.raises(ValueError, match="all 4 ranks of group 'default' live"):
        everywhere([Member.remote()], collective.rejoin)
    everywhere(everyone, collective.destroy_collective_group)


def test_a_new_process_takes_the_place_of_a_rank_that_died(node):
    members = members_of(3)
    join(members, timeout=SECONDS)
    hoplo.kill(members[0])
    survivors = members[1:]
    for ranks, _, _ in everywhere(survivors, raised_by_allreduce):
        assert ranks == (0,)
    with pytest.raises(ValueError, match="rank 1 of group 'default' is not free: rank 0 of 3 is"):
        everywhere([Member.remote()], collective.rejoin, rank=1)
    with pytest.raises(ValueError, match="this process is rank 2, and keeps it"):
        everywhere(survivors[1:], collective.rejoin, rank=0)
    with pytest.raises(
        CollectiveTimeoutError, match="rank 2 did not call rejoin and nobody took the place of rank"
    ):
        everywhere(survivors[:1], collective.rejoin, timeout=0.05)

    new = Member.remote()
    rejoined = [member.call.remote(collective.rejoin) for member in survivors]
    rejoined.append(new.call.remote(collective.rejoin, rank=0))
    assert hoplo.get(rejoined, timeout=SECONDS) == [(1, 3), (2, 3), (0, 3)]
    everyone = [new, *survivors]
    compare(everywhere(everyone, all_operations, "i8", LARGE, 0, "default"), 3, "i8", LARGE, 0)
    everywhere(everyone, collective.destroy_collective_group)


def test_a_rank_that_dies_while_others_shrink_is_left_out_too(node):
    members = members_of(4)
    join(members)
    kill(members[3])
    shrinking = [member.call.remote(collective.shrink) for member in members[:2]]
    kill(members[2])
    assert hoplo.get(shrinking, timeout=SECONDS) == [(0, 2), (1, 2)]
    everywhere(members[:2], collective.destroy_collective_group)


def test_shrink_and_rejoin_at_once_are_told_to_all(node):
    members = members_of(3)
    join(members)
    kill(members[2])
    for ranks, _, _ in everywhere(members[:2], raised, collective.barrier):
        assert ranks == (2,)
    refs = [
        members[0].call.remote(collective.shrink),
        members[1].call.remote(collective.rejoin),
    ]
    for ref in refs:
        with pytest.raises(ValueError, match="all must call the same"):
            hoplo.get(ref, timeout=SECONDS)
    assert everywhere(members[:2], collective.shrink) == [(0, 2), (1, 2)]
    everywhere(members[:2], collective.destroy_collective_group)


@pytest.mark.parametrize("kind", ["shrink", "rejoin"])
def test_who_gave_up_is_not_told_to_be_one_that_did_not_call(group, kind):
    function = getattr(collective, kind)
    waiting = group[0].call.remote(function, timeout=2)
    eventually(lambda: asked("default", lambda meeting: len(meeting._asked)) == 1, SECONDS)
    gives_up = group[1].call.remote(function, timeout=0.1)
    for ref in (gives_up, waiting):
        with pytest.raises(CollectiveTimeoutError, match=f"ranks 2, 3 did not call {kind} within"):
            hoplo.get(ref, timeout=SECONDS)

    waiting = group[0].call.remote(function, timeout=2)
    eventually(lambda: asked("default", lambda meeting: len(meeting._asked)) == 1, SECONDS)
    gives_up = group[1].call.remote(function, timeout=0.1)
    with pytest.raises(CollectiveTimeoutError, match=f"ranks 2, 3 did not call {kind} within"):
        hoplo.get(gives_up, timeout=SECONDS)
    others = [member.call.remote(function, timeout=SECONDS) for member in group[2:]]
    with pytest.raises(CollectiveTimeoutError, match=f"rank 1 called {kind}, and gave up before"):
        hoplo.get(waiting, timeout=SECONDS)
    again = [member.call.remote(function, timeout=SECONDS) for member in group[:2]]
    assert hoplo.get([*again, *others], timeout=SECONDS) == [(rank, 4) for rank in range(4)]


def test_a_newcomer_that_gave_up_had_come(node):
    members = members_of(3)
    join(members)
    kill(members[2])
    everywhere(members[:2], raised, collective.barrier)
    new = Member.remote()
    hoplo.get(new.pid.remote(), timeout=SECONDS)
    waiting = members[0].call.remote(collective.rejoin, timeout=2)
    eventually(lambda: asked("default", lambda meeting: len(meeting._asked)) == 1, SECONDS)
    gives_up = new.call.remote(collective.rejoin, timeout=0.1)
    for ref in (gives_up, waiting):
        with pytest.raises(CollectiveTimeoutError, match=r"': rank 1 did not call rejoin within"):
            hoplo.get(ref, timeout=SECONDS)
    with pytest.raises(CollectiveTimeoutError, match="nobody took the place of rank 2 within"):
        hoplo.get(members[0].call.remote(collective.rejoin, timeout=0.1), timeout=SECONDS)
    everywhere(members[:2], collective.destroy_collective_group)


def test_a_rank_that_dies_before_all_have_joined_is_told(node):
    members = members_of(2)
    pid = hoplo.get(members[1].pid.remote(), timeout=SECONDS)
    init = collective.init_collective_group
    refs = [member.call.remote(init, 3, rank) for rank, member in enumerate(members)]
    eventually(lambda: asked("default", lambda meeting: len(meeting._forming)) == 2, SECONDS)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(CollectiveGroupError, match="died while group 'default' was made") as caught:
        hoplo.get(refs[0], timeout=SECONDS)
    assert caught.value.ranks == (1,)


def test_who_leaves_is_told_to_those_that_stay(group):
    everywhere(group[3:], collective.destroy_collective_group)
    for ranks, text, _ in everywhere(group[:3], raised, collective.barrier):
        assert ranks == (3,)
        assert "destroyed the group" in text
    assert everywhere(group[:3], collective.shrink) == [(0, 3), (1, 3), (2, 3)]
    everywhere(group[:3], collective.barrier)


def test_a_group_goes_on_when_the_process_dies_in_which_it_meets(node):
    members = members_of(3)
    join(members, "meeting")
    waiting = [member.call.remote(raised, collective.barrier, "meeting") for member in members[:2]]
    hoplo.kill(meeting_place("meeting"))
    for ranks, text, _ in hoplo.get(waiting, timeout=SECONDS):
        assert ranks == ()
        assert "the process in which the members of group 'meeting' meet is gone" in text
    shrunk = everywhere(members, collective.shrink, "meeting")
    assert shrunk == [(0, 3), (1, 3), (2, 3)]
    compare(everywhere(members, all_operations, "f8", SMALL, 0, "meeting"), 3, "f8", SMALL, 0)
    # It watches those that came to it.
    kill(members[0])
    for ranks, _, _ in everywhere(members[1:], raised, collective.barrier, "meeting"):
        assert ranks == (0,)
    everywhere(members[1:], collective.destroy_collective_group, "meeting")


def test_who_does_not_come_to_another_meeting_place_is_left_out(node):
    members = members_of(3)
    join(members, "meeting")
    hoplo.kill(meeting_place("meeting"))
    everywhere(members[:2], raised, collective.barrier, "meeting")
    assert everywhere(members[:2], collective.shrink, "meeting", timeout=1) == [(0, 2), (1, 2)]
    assert everywhere(members[2:], raised, collective.barrier, "meeting")[0][0] == ()
    with pytest.raises(CollectiveGroupError, match="does not belong to group 'meeting' any more"):
        everywhere(members[2:], collective.shrink, "meeting")
    everywhere(members, collective.destroy_collective_group, "meeting")


def asked(name, function):
    """What a function of the rendezvous gives."""
    return hoplo.get(meeting_place(name).__hoplo_call__.remote(function), timeout=SECONDS)


def waiting_in_it(rendezvous):
    """How many members wait in operations."""
    return sum(len(met.answers) for met in rendezvous._meetings.values())


def meeting_place(name):
    namespace = f"hoplo.util.collective/{hoplo.get_runtime_context().namespace}"
    return hoplo.get_actor(name, namespace=namespace)


def test_nothing_is_left_of_a_group_whose_members_are_gone(four):
    join(four, "gone")
    everywhere(four, collective.destroy_collective_group, "gone")

    def gone():
        try:
            meeting_place("gone")
        except ValueError:
            return True
        return False

    eventually(gone, SECONDS)


@pytest.mark.parametrize("ends", ["returns", "raises"])
def test_a_task_that_ends_leaves_its_groups(four, ends):
    @hoplo.remote(num_cpus=0)
    def second():
        collective.init_collective_group(2, 1, group_name="task")
        print("its last line is open", end="")
        if ends == "raises":
            raise LookupError("the task's own")
        return os.getpid()

    def first():
        collective.init_collective_group(2, 0, group_name="task")
        try:
            return raised(collective.barrier, "task")
        finally:
            collective.destroy_collective_group("task")

    ref = four[0].call.remote(first)
    ended = second.remote()
    ranks, text, _ = hoplo.get(ref, timeout=SECONDS)
    assert ranks == (1,)
    assert "rank 1: task " in text
    assert text.endswith("; it ended")
    if ends == "raises":
        with pytest.raises(LookupError, match="the task's own"):
            hoplo.get(ended, timeout=SECONDS)
    else:
        assert hoplo.get(ended, timeout=SECONDS) != os.getpid()


# ---- what has no process ----


def test_a_meeting_is_whole_when_all_have_come_and_tells_who_differs():
    meeting = Meeting([0, 1, 2])
    assert meeting.come(1, Call("barrier"), []) is None
    assert meeting.missing == [0, 2]
    text = meeting.come(0, Call("allreduce", "sum", None, "f8", (3,)), [1])
    assert text == (
        "rank 0 called allreduce(op=sum) with tensors of f8 of shape (3,), and rank 1 barrier()"
    )
    assert meeting.come(0, Call("barrier"), []) is None
    assert meeting.come(2, Call("barrier"), []) is None
    assert meeting.outcome(lambda *_: None) == {0: [], 1: [], 2: []}


@pytest.mark.parametrize(
    "rest",
    [
        " (it was silent (700 ms)), no other node has a copy of it, and none knows how",
        ": it was silent (700 ms)",
        ": it was silent (700 ms). It cannot be made again: no node has its function",
    ],
)
def test_of_a_node_that_died_a_group_tells_the_node_and_why(rest):
    error = ObjectLostError(f"obj:2-2.0@392da9 is lost: its home node 392da9 died{rest}")
    assert _reason(error) == "its node 392da9 died (it was silent (700 ms))"


def test_errors_keep_their_ranks_when_they_travel():
    error = pickle.loads(pickle.dumps(CollectiveGroupError("gone", (1, 3))))
    assert (str(error), error.ranks) == ("gone", (1, 3))
    assert issubclass(CollectiveTimeoutError, TimeoutError)


def test_what_a_member_raises_is_caught_by_its_own_type_elsewhere(four):
    with pytest.raises(TaskError) as caught:
        everywhere(four[:1], collective.barrier, "nothing")
    assert isinstance(caught.value, RuntimeError)


def test_it_is_found_under_the_names_of_rays():
    import hoplo.ray.util.collective as col
    from hoplo.ray.util.collective.collective import allreduce
    from hoplo.ray.util.collective.types import ReduceOp as Op

    assert col is collective
    assert allreduce is collective.allreduce
    assert Op is ReduceOp
