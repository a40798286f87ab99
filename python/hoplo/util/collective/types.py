"""Names that arguments of collective operations have, as in Ray's `ray.util.collective.types`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from importlib.util import find_spec

__all__ = [
    "AllGatherOptions",
    "AllReduceOptions",
    "Backend",
    "BarrierOptions",
    "BroadcastOptions",
    "RecvOptions",
    "ReduceOp",
    "ReduceOptions",
    "ReduceScatterOptions",
    "SendOptions",
    "cupy_available",
    "torch_available",
    "unset_timeout_ms",
]


class ReduceOp(Enum):
    """How the tensors of all ranks become one, element by element.

    >>> ReduceOp("sum") is ReduceOp.SUM
    True
    """

    SUM = "sum"
    PRODUCT = "prod"
    MIN = "min"
    MAX = "max"


class Backend(str):
    """The name of what carries the data. There is one way here, whatever the name.

    "auto", "gloo", "torch_gloo" and "mpi" all mean it: objects in shared memory, pulled from node
    to node. Raises ValueError for "nccl", which is for memory of GPUs, and for an unknown name.

    >>> Backend("gloo")
    'gloo'
    """

    AUTO = "auto"
    GLOO = "gloo"
    TORCH_GLOO = "torch_gloo"
    MPI = "mpi"
    NCCL = "nccl"
    UNRECOGNIZED = "unrecognized"

    def __new__(cls, name: str) -> Backend:
        known = ("auto", "gloo", "torch_gloo", "mpi")
        if not isinstance(name, str):
            raise TypeError(f"backend must be a name such as 'gloo', not {name!r}")
        lower = name.lower()
        if lower == "nccl":
            raise ValueError(
                "backend 'nccl' moves memory of GPUs, and this one moves memory of hosts: write "
                "backend='gloo' and give tensor.cpu(), or call torch.distributed with NCCL inside "
                "your actors"
            )
        if lower not in known:
            names = ", ".join(map(repr, known))
            raise ValueError(f"backend must be one of {names}, not {name!r}")
        return super().__new__(cls, lower)


# ------------------------------------------------------------------------------- of handles

unset_timeout_ms = timedelta(milliseconds=-1)
"""The timeout of the group. Others are a timedelta or milliseconds."""


@dataclass
class BarrierOptions:
    """Of `barrier` of a group's handle."""

    timeout_ms: timedelta | float = unset_timeout_ms


@dataclass
class AllReduceOptions:
    """Of `allreduce` of a group's handle.

    >>> AllReduceOptions(ReduceOp.MAX).timeout_ms == unset_timeout_ms
    True
    """

    reduceOp: ReduceOp = ReduceOp.SUM  # noqa: N815
    timeout_ms: timedelta | float = unset_timeout_ms


@dataclass
class ReduceOptions:
    """Of `reduce` of a group's handle."""

    reduceOp: ReduceOp = ReduceOp.SUM  # noqa: N815
    root_rank: int = 0
    """The rank that gets the result."""
    root_tensor: int = 0
    """Of several GPUs, so always 0."""
    timeout_ms: timedelta | float = unset_timeout_ms


@dataclass
class BroadcastOptions:
    """Of `broadcast` of a group's handle."""

    root_rank: int = 0
    """The rank whose tensor all get."""
    root_tensor: int = 0
    """Of several GPUs, so always 0."""
    timeout_ms: timedelta | float = unset_timeout_ms


@dataclass
class AllGatherOptions:
    """Of `allgather` of a group's handle."""

    timeout_ms: timedelta | float = unset_timeout_ms


@dataclass
class ReduceScatterOptions:
    """Of `reducescatter` of a group's handle."""

    reduceOp: ReduceOp = ReduceOp.SUM  # noqa: N815
    timeout_ms: timedelta | float = unset_timeout_ms


@dataclass
class SendOptions:
    """Of `send` of a group's handle."""

    dst_rank: int = 0
    dst_gpu_index: int = 0
    """Of several GPUs, so always 0."""
    n_elements: int = 0
    """0: all, and nothing else."""
    timeout_ms: timedelta | float = unset_timeout_ms


@dataclass
class RecvOptions:
    """Of `recv` of a group's handle."""

    src_rank: int = 0
    src_gpu_index: int = 0
    """Of several GPUs, so always 0."""
    n_elements: int = 0
    """0: all, and nothing else."""
    timeout_ms: timedelta | float = unset_timeout_ms


def torch_available() -> bool:
    """Whether torch is installed, whose tensors on the CPU may be given."""
    return find_spec("torch") is not None


def cupy_available() -> bool:
    """False: arrays of cupy are in the memory of GPUs."""
    return False
