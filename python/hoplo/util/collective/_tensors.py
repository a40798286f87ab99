"""Tensors as arrays of numpy that share their memory: arrays themselves, and torch's of the CPU."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from hoplo._folding import ops_of
from hoplo._options import shown

from .types import ReduceOp

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


def read(name: str, tensor: Any, *, op: str | None = None) -> Array:
    """The memory of a tensor, to be read. TypeError for what is none; `name` is the argument's.

    `op`: the name of the ReduceOp by which its elements are to be folded, so that must be possible.
    """
    import numpy as np

    torch = sys.modules.get("torch")
    if torch is not None and isinstance(tensor, torch.Tensor):
        tensor = _of_torch(name, tensor)
    if not isinstance(tensor, np.ndarray):
        raise TypeError(
            f"{name} must be an array of numpy or a tensor of torch, not {shown(tensor)}; for a "
            f"number write numpy.array([x])"
        )
    if tensor.dtype.hasobject:
        raise TypeError(
            f"{name} is an array of {tensor.dtype}, which has objects of Python, and these mean "
            f"nothing to other processes: use hoplo.put and hoplo.get for them"
        )
    if op is not None:
        _check_op(name, tensor.dtype, op)
    return tensor


def write(name: str, tensor: Any, *, op: str | None = None) -> Array:
    """The memory of a tensor, to be read and written. ValueError if it is read-only."""
    array = read(name, tensor, op=op)
    if not array.flags.writeable:
        raise ValueError(
            f"{name} is read-only, and the result is written into it: give a copy, such as "
            f"array.copy() (what hoplo.get returns is shared memory)"
        )
    return array


def read_list(name: str, tensors: Any, count: int, *, op: str | None = None) -> list[Array]:
    """Those of a list with one for each of `count` ranks, all of equal dtypes and shapes."""
    return _list(read, name, tensors, count, op)


def write_list(name: str, tensors: Any, count: int) -> list[Array]:
    """`read_list`, to be written."""
    return _list(write, name, tensors, count, None)


def alike(name: str, array: Array, other_name: str, other: Array) -> None:
    """ValueError, which tells both, if their dtypes or shapes differ."""
    if (array.dtype, array.shape) != (other.dtype, other.shape):
        raise ValueError(
            f"{name} is of {array.dtype} of shape {array.shape}, and {other_name} of "
            f"{other.dtype} of shape {other.shape}: they must be alike"
        )


def _check_op(name: str, dtype: Any, op: str) -> None:
    """TypeError unless `op` can fold arrays of that dtype, as `hoplo.reduce` does it."""
    possible = ops_of(dtype)
    if op in possible:
        return
    names = ", ".join(str(one) for one in ReduceOp if one.value in possible)
    if not names:
        raise TypeError(
            f"{name} is an array of {dtype}, and what is to be folded must be numbers or times"
        )
    raise TypeError(
        f"{name} is an array of {dtype}: of these op may be {names}, not {ReduceOp(op)}"
    )


def _list(one: Any, name: str, tensors: Any, count: int, op: str | None) -> list[Array]:
    if not isinstance(tensors, list | tuple):
        raise TypeError(f"{name} must be a list of tensors, not {shown(tensors)}")
    if len(tensors) != count:
        raise ValueError(
            f"{name} has {len(tensors)} tensors, and the group has size {count}: give one for each "
            f"rank"
        )
    arrays = [one(f"{name}[{at}]", tensor, op=op) for at, tensor in enumerate(tensors)]
    for at, array in enumerate(arrays):
        alike(f"{name}[{at}]", array, f"{name}[0]", arrays[0])
    return arrays


def _of_torch(name: str, tensor: Any) -> Any:
    if tensor.device.type != "cpu":
        raise TypeError(
            f"{name} is a tensor on {tensor.device}, and these collectives are for memory of the "
            f"host: give tensor.cpu(), or use torch.distributed with NCCL inside your actors"
        )
    try:
        return tensor.detach().numpy()
    except (TypeError, RuntimeError) as error:
        raise TypeError(
            f"{name} is a tensor of {tensor.dtype} that numpy cannot see ({error}): give another "
            f"dtype, such as tensor.float()"
        ) from None
