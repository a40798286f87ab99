"""Names that arguments of collective operations have, as in Ray's `ray.util.collective.types`."""

from __future__ import annotations

from enum import Enum

__all__ = ["Backend", "ReduceOp"]


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
