"""The functions of `hoplo.util.collective`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import hoplo
from hoplo import _core
from hoplo._options import shown

from . import _member, _tensors
from ._meeting import Call
from ._member import Membership
from .types import Backend, ReduceOp

if TYPE_CHECKING:
    from .group import Group

__all__ = [
    "all_to_all",
    "allgather",
    "allgather_multigpu",
    "allreduce",
    "allreduce_multigpu",
    "barrier",
    "broadcast",
    "broadcast_multigpu",
    "create_collective_group",
    "destroy_collective_group",
    "gather",
    "get_collective_group_size",
    "get_group_handle",
    "get_rank",
    "gloo_available",
    "init_collective_group",
    "is_backend_available",
    "is_group_initialized",
    "nccl_available",
    "recv",
    "recv_multigpu",
    "reduce",
    "reduce_multigpu",
    "reducescatter",
    "reducescatter_multigpu",
    "rejoin",
    "scatter",
    "send",
    "send_multigpu",
    "shrink",
    "synchronize",
]

# ------------------------------------------------------------------------------- groups


def init_collective_group(
    world_size: int,
    rank: int,
    backend: str = "auto",
    group_name: str = "default",
    gloo_timeout: int = 30_000,
    *,
    timeout: float | None = None,
) -> None:
    """Makes this process rank `rank` of a group of `world_size`, and waits for the others.

    An actor, a task or the driver may be a member, each of any number of groups. A task leaves its
    groups when it ends.

    `timeout` is in seconds: of this call, and of operations that are given none. Without it,
    `gloo_timeout` is taken, in milliseconds. All values of `backend` mean the same, but "nccl",
    which is refused.

    Raises RuntimeError if this process belongs to such a group already, or if other processes make
    up one of that name; ValueError if the rank is taken, is not less than `world_size`, or ranks
    differ in `world_size`; CollectiveTimeoutError, with the ranks that did not come;
    CollectiveGroupError if one that had come dies.

    >>> init_collective_group(world_size=1, rank=0, group_name="example")
    >>> get_rank("example"), get_collective_group_size("example")
    (0, 1)
    >>> destroy_collective_group("example")
    """
    Backend(backend)
    name = _name(group_name)
    size = _whole("world_size", world_size, 1)
    at = _whole("rank", rank, 0)
    if at >= size:
        raise ValueError(f"rank must be less than world_size={size}, not {at}")
    seconds = _seconds(timeout, gloo_timeout / 1000)
    if _member.find(name) is not None:
        raise RuntimeError(
            f"this process belongs to group {name!r} already: call "
            f"destroy_collective_group({name!r}) first, or take another group_name"
        )
    membership = Membership(name, seconds)
    membership.join(at, size, seconds)
    _member.keep(membership)


def create_collective_group(
    actors: Sequence[Any],
    world_size: int,
    ranks: Sequence[int],
    backend: str = "auto",
    group_name: str = "default",
    gloo_timeout: int = 30_000,
) -> None:
    """Says which actors are to be the ranks of a group; they join it by their first operation.

    So the actors need not call `init_collective_group`. The group exists as long as its members, or
    this process until it calls `destroy_collective_group`.

    Raises TypeError and ValueError for actors and ranks that do not go together, and RuntimeError
    if there is such a group already.

    >>> create_collective_group([], 2, [0, 1])
    Traceback (most recent call last):
    ValueError: each of the 2 ranks of world_size needs an actor, and there are 0 actors and 2 ranks
    """
    Backend(backend)
    name = _name(group_name)
    size = _whole("world_size", world_size, 1)
    for actor in actors:
        if not isinstance(actor, hoplo.ActorHandle):
            raise TypeError(f"actors must be handles of actors, not {shown(actor)}")
    if len(actors) != len(ranks) or len(actors) != size:
        raise ValueError(
            f"each of the {size} ranks of world_size needs an actor, and there are {len(actors)} "
            f"actors and {len(ranks)} ranks"
        )
    if sorted(ranks) != list(range(size)):
        raise ValueError(f"ranks must be the numbers from 0 to {size - 1}, not {list(ranks)}")
    by_id = {actor._actor_id: rank for actor, rank in zip(actors, ranks, strict=True)}
    if len(by_id) != size:
        raise ValueError("an actor can be one rank of a group, and one of these is given twice")
    _member.declare(name, size, by_id, gloo_timeout / 1000)


def destroy_collective_group(group_name: str = "default") -> None:
    """This process leaves the group; so have all to. Nothing happens if it does not belong to it.

    The operations of those that stay raise CollectiveGroupError.
    """
    name = _name(group_name)
    membership = _member.find(name)
    if membership is not None:
        _member.forget(name, membership, "destroyed the group")
    _member.undeclare(name)


def is_group_initialized(group_name: str = "default") -> bool:
    """Whether this process belongs to the group."""
    return _member.find(_name(group_name)) is not None


def get_rank(group_name: str = "default") -> int:
    """The rank of this process; -1 if it does not belong to the group. `shrink` changes it."""
    membership = _member.find(_name(group_name))
    return -1 if membership is None or membership.view is None else membership.view.rank


def get_collective_group_size(group_name: str = "default") -> int:
    """How many ranks the group has; -1 if this process does not belong to it."""
    membership = _member.find(_name(group_name))
    return -1 if membership is None or membership.view is None else membership.view.size


def get_group_handle(group_name: str = "default") -> Group:
    """The group as an object with methods. Raises RuntimeError if this process is none of it."""
    from .group import Group

    return Group(_group(group_name).name)


def shrink(group_name: str = "default", *, timeout: float | None = None) -> tuple[int, int]:
    """Goes on without the ranks that are gone; the new rank of this process and the new size.

    All that live must call it, and it waits for them. Ranks keep their order and have no gaps. If
    none is gone, it brings ranks into step of which one left out a call.
    Raises CollectiveTimeoutError, with the ranks that did not call it within `timeout` seconds.
    """
    membership = _group(group_name)
    view = membership.agree("shrink", None, _seconds(timeout, membership.timeout))
    return view.rank, view.size


def rejoin(
    group_name: str = "default", rank: int | None = None, *, timeout: float | None = None
) -> tuple[int, int]:
    """Brings the group back to the size that it was made with; the rank of this process, and that.

    All members that live must call it, and a new process for each rank that is gone: that takes the
    place `rank`, or the lowest that is free. After `shrink` the free places are the highest ones.

    Raises CollectiveTimeoutError, with who did not come within `timeout` seconds, ValueError if
    `rank` is not free, and RuntimeError if there is no such group.
    """
    name = _name(group_name)
    membership = _member.find(name)
    if membership is not None:
        if rank is not None and membership.view is not None and rank != membership.view.rank:
            raise ValueError(f"this process is rank {membership.view.rank}, and keeps it")
        view = membership.agree("rejoin", None, _seconds(timeout, membership.timeout))
        return view.rank, view.size
    if rank is not None:
        rank = _whole("rank", rank, 0)
    seconds = _seconds(timeout, 30)
    membership = Membership(name, seconds)
    view = membership.agree("rejoin", rank, seconds)
    _member.keep(membership)
    return view.rank, view.size


# ------------------------------------------------------------------------------- operations


def allreduce(
    tensor: Any,
    group_name: str = "default",
    op: ReduceOp = ReduceOp.SUM,
    *,
    timeout: float | None = None,
) -> None:
    """Replaces the tensor of each rank by what all of them give together.

    Small ones are folded in the order of ranks, so all have the same bits each time. Those over
    16 KiB are folded as they come: all have the same bits, which may differ from time to time.

    >>> import numpy as np
    >>> init_collective_group(1, 0, group_name="sums")
    >>> gradient = np.ones(3)
    >>> allreduce(gradient, "sums")
    >>> gradient
    array([1., 1., 1.])
    >>> destroy_collective_group("sums")
    """
    group = _group(group_name)
    with group.refusing("allreduce"):
        named = _op(op)
        array = _tensors.write("tensor", tensor, op=named)
        seconds = _seconds(timeout, group.timeout)
    group.meet(_call("allreduce", array, op=named), [array], [array], seconds)


def reduce(
    tensor: Any,
    dst_rank: int = 0,
    group_name: str = "default",
    op: ReduceOp = ReduceOp.SUM,
    *,
    timeout: float | None = None,
) -> None:
    """`allreduce` whose result only `dst_rank` gets; the tensors of others stay as they are."""
    group = _group(group_name)
    with group.refusing("reduce"):
        named = _op(op)
        root = _root("dst_rank", dst_rank, group)
        is_root = root == _rank(group)
        access = _tensors.write if is_root else _tensors.read
        array = access("tensor", tensor, op=named)
        seconds = _seconds(timeout, group.timeout)
    call = _call("reduce", array, op=named, root=root)
    group.meet(call, [array], [array] if is_root else [], seconds)


def broadcast(
    tensor: Any, src_rank: int = 0, group_name: str = "default", *, timeout: float | None = None
) -> None:
    """Replaces the tensor of each rank by that of `src_rank`."""
    group = _group(group_name)
    with group.refusing("broadcast"):
        root = _root("src_rank", src_rank, group)
        is_root = root == _rank(group)
        array = (_tensors.read if is_root else _tensors.write)("tensor", tensor)
        seconds = _seconds(timeout, group.timeout)
    call = _call("broadcast", array, root=root)
    group.meet(call, [array] if is_root else [], [] if is_root else [array], seconds)


def allgather(
    tensor_list: list[Any],
    tensor: Any,
    group_name: str = "default",
    *,
    timeout: float | None = None,
) -> None:
    """Writes the tensor of rank i into `tensor_list[i]`, in each rank."""
    group = _group(group_name)
    with group.refusing("allgather"):
        array = _tensors.read("tensor", tensor)
        outs = _tensors.write_list("tensor_list", tensor_list, _size(group))
        _tensors.alike("tensor_list[0]", outs[0], "tensor", array)
        seconds = _seconds(timeout, group.timeout)
    group.meet(_call("allgather", array), [array], outs, seconds)


def gather(
    tensor: Any,
    gather_list: list[Any] | None = None,
    dst_rank: int = 0,
    group_name: str = "default",
    *,
    timeout: float | None = None,
) -> None:
    """`allgather` whose result only `dst_rank` gets, in its `gather_list`. Others give none."""
    group = _group(group_name)
    with group.refusing("gather"):
        root = _root("dst_rank", dst_rank, group)
        array = _tensors.read("tensor", tensor)
        outs = []
        if root == _rank(group):
            outs = _tensors.write_list("gather_list", gather_list, _size(group))
            _tensors.alike("gather_list[0]", outs[0], "tensor", array)
        elif gather_list is not None:
            raise ValueError(f"gather_list is for dst_rank={root}, and this is rank {_rank(group)}")
        seconds = _seconds(timeout, group.timeout)
    group.meet(_call("gather", array, root=root), [array], outs, seconds)


def scatter(
    tensor: Any,
    scatter_list: list[Any] | None = None,
    src_rank: int = 0,
    group_name: str = "default",
    *,
    timeout: float | None = None,
) -> None:
    """Writes `scatter_list[i]` of `src_rank` into the tensor of rank i. Others give no list."""
    group = _group(group_name)
    with group.refusing("scatter"):
        root = _root("src_rank", src_rank, group)
        array = _tensors.write("tensor", tensor)
        brings = []
        if root == _rank(group):
            brings = _tensors.read_list("scatter_list", scatter_list, _size(group))
            _tensors.alike("scatter_list[0]", brings[0], "tensor", array)
        elif scatter_list is not None:
            raise ValueError(
                f"scatter_list is for src_rank={root}, and this is rank {_rank(group)}"
            )
        seconds = _seconds(timeout, group.timeout)
    group.meet(_call("scatter", array, root=root), brings, [array], seconds)


def reducescatter(
    tensor: Any,
    tensor_list: list[Any],
    group_name: str = "default",
    op: ReduceOp = ReduceOp.SUM,
    *,
    timeout: float | None = None,
) -> None:
    """Writes into the tensor of rank i what `tensor_list[i]` of all ranks give together."""
    group = _group(group_name)
    with group.refusing("reducescatter"):
        named = _op(op)
        array = _tensors.write("tensor", tensor, op=named)
        brings = _tensors.read_list("tensor_list", tensor_list, _size(group), op=named)
        _tensors.alike("tensor_list[0]", brings[0], "tensor", array)
        seconds = _seconds(timeout, group.timeout)
    group.meet(_call("reducescatter", array, op=named), brings, [array], seconds)


def all_to_all(
    output_tensor_list: list[Any],
    input_tensor_list: list[Any],
    group_name: str = "default",
    *,
    timeout: float | None = None,
) -> None:
    """Writes `input_tensor_list[i]` of rank j into `output_tensor_list[j]` of rank i."""
    group = _group(group_name)
    with group.refusing("all_to_all"):
        brings = _tensors.read_list("input_tensor_list", input_tensor_list, _size(group))
        outs = _tensors.write_list("output_tensor_list", output_tensor_list, _size(group))
        _tensors.alike("output_tensor_list[0]", outs[0], "input_tensor_list[0]", brings[0])
        seconds = _seconds(timeout, group.timeout)
    group.meet(_call("all_to_all", brings[0]), brings, outs, seconds)


def barrier(group_name: str = "default", *, timeout: float | None = None) -> None:
    """Returns when all ranks have called it."""
    group = _group(group_name)
    with group.refusing("barrier"):
        seconds = _seconds(timeout, group.timeout)
    group.meet(Call("barrier"), [], [], seconds)


def send(
    tensor: Any, dst_rank: int, group_name: str = "default", *, timeout: float | None = None
) -> None:
    """Sends a tensor to one rank; returns when that has called `recv` and may read it."""
    group = _group(group_name)
    pair = _rank(group), _other("dst_rank", dst_rank, group)
    with group.refusing("send/recv", pair):
        array = _tensors.read("tensor", tensor)
        seconds = _seconds(timeout, group.timeout)
    group.meet_one(pair, _call("send/recv", array, root=pair[0]), [array], [], seconds)


def recv(
    tensor: Any, src_rank: int, group_name: str = "default", *, timeout: float | None = None
) -> None:
    """Writes what rank `src_rank` sends into the tensor; waits for its `send`."""
    group = _group(group_name)
    pair = _other("src_rank", src_rank, group), _rank(group)
    with group.refusing("send/recv", pair):
        array = _tensors.write("tensor", tensor)
        seconds = _seconds(timeout, group.timeout)
    group.meet_one(pair, _call("send/recv", array, root=pair[0]), [], [array], seconds)


# ------------------------------------------------------------------------------- backends, GPUs


def is_backend_available(backend: str) -> bool:
    """Whether `init_collective_group` takes it.

    >>> is_backend_available("gloo"), is_backend_available("nccl")
    (True, False)
    """
    try:
        Backend(backend)
    except ValueError:
        return False
    return True


def nccl_available() -> bool:
    """False: tensors are in the memory of hosts here."""
    return False


def gloo_available() -> bool:
    """True: what "gloo" does is done by hoplo itself."""
    return True


def _no_gpus(name: str, instead: str) -> NoReturn:
    raise NotImplementedError(
        f"{name} is for several GPUs of one process, which hoplo does not do: {instead}, or call "
        f"torch.distributed with NCCL inside your actors"
    )


def allreduce_multigpu(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises NotImplementedError, which says what to do."""
    _no_gpus("allreduce_multigpu", "call allreduce for each tensor.cpu()")


def reduce_multigpu(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises NotImplementedError, which says what to do."""
    _no_gpus("reduce_multigpu", "call reduce for each tensor.cpu()")


def broadcast_multigpu(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises NotImplementedError, which says what to do."""
    _no_gpus("broadcast_multigpu", "call broadcast for each tensor.cpu()")


def allgather_multigpu(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises NotImplementedError, which says what to do."""
    _no_gpus("allgather_multigpu", "call allgather for each tensor.cpu()")


def reducescatter_multigpu(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises NotImplementedError, which says what to do."""
    _no_gpus("reducescatter_multigpu", "call reducescatter for each tensor.cpu()")


def send_multigpu(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises NotImplementedError, which says what to do."""
    _no_gpus("send_multigpu", "call send with tensor.cpu()")


def recv_multigpu(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises NotImplementedError, which says what to do."""
    _no_gpus("recv_multigpu", "call recv with a tensor of the CPU")


def synchronize(gpu_id: int) -> NoReturn:
    """Raises NotImplementedError, which says what to do."""
    _no_gpus("synchronize", "nothing is pending when an operation has returned")


# ------------------------------------------------------------------------------- arguments


def _group(group_name: Any) -> Membership:
    """The group of this process. An actor of one that was declared joins it now."""
    name = _name(group_name)
    membership = _member.find(name)
    if membership is not None:
        return membership
    place = _member.declared_place(name)
    if place is None:
        raise RuntimeError(
            f"this process does not belong to a group {name!r}: call "
            f"init_collective_group(world_size, rank, group_name={name!r}) first"
        )
    world_size, rank = place
    init_collective_group(world_size, rank, group_name=name)
    found = _member.find(name)
    assert found is not None, "it has just joined"
    return found


def _name(group_name: Any) -> str:
    if not isinstance(group_name, str) or not group_name:
        raise ValueError(f"group_name must be a text that is not empty, not {shown(group_name)}")
    if not _core.is_initialized():
        raise RuntimeError("call hoplo.init() first: members of a group meet in an actor")
    return group_name


def _whole(name: str, value: Any, least: int) -> int:
    try:
        number = value.__index__()
    except AttributeError:
        raise TypeError(f"{name} must be a whole number, not {shown(value)}") from None
    if isinstance(value, bool) or number < least:
        raise ValueError(f"{name} must be a whole number from {least} on, not {shown(value)}")
    return int(number)


def _seconds(timeout: Any, otherwise: float) -> float:
    if timeout is None:
        return otherwise
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise TypeError(f"timeout must be seconds, not {shown(timeout)}")
    if timeout < 0 or not math.isfinite(timeout):
        raise ValueError(f"timeout must be 0 or more seconds, not {timeout}")
    return float(timeout)


def _op(op: Any) -> str:
    if not isinstance(op, ReduceOp):
        names = ", ".join(f"ReduceOp.{one.name}" for one in ReduceOp)
        raise TypeError(f"op must be one of {names}, not {shown(op)}")
    return op.value


def _root(name: str, rank: Any, group: Membership) -> int:
    at, size = _whole(name, rank, 0), _size(group)
    if at >= size:
        raise ValueError(f"{name} must be less than the size of the group, {size}, not {at}")
    return at


def _other(name: str, rank: Any, group: Membership) -> int:
    at = _root(name, rank, group)
    if at == _rank(group):
        raise ValueError(f"{name}={at} is this process itself")
    return at


def _rank(group: Membership) -> int:
    assert group.view is not None, "it is kept once it has joined"
    return group.view.rank


def _size(group: Membership) -> int:
    assert group.view is not None, "it is kept once it has joined"
    return group.view.size


def _call(kind: str, array: Any, *, op: str | None = None, root: int | None = None) -> Call:
    return Call(kind, op, root, str(array.dtype), array.shape)
