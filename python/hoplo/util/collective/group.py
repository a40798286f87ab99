"""The handle of a group, whose methods take objects for their options, as Ray's groups do.

The functions of `hoplo.util.collective` do the work. A tensor may stand in a list of its own, as
Ray's groups want it; what is for several GPUs of one process is refused.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

from . import collective
from .types import (
    AllGatherOptions,
    AllReduceOptions,
    Backend,
    BarrierOptions,
    BroadcastOptions,
    RecvOptions,
    ReduceOptions,
    ReduceScatterOptions,
    SendOptions,
)

__all__ = ["Group"]


class Group:
    """This process as a member of a group: what `get_group_handle` gives.

    >>> import numpy as np
    >>> from hoplo.util.collective import get_group_handle, init_collective_group
    >>> from hoplo.util.collective.types import AllReduceOptions, ReduceOp
    >>> init_collective_group(world_size=1, rank=0, group_name="handled")
    >>> group = get_group_handle("handled")
    >>> group.allreduce([np.ones(2)], AllReduceOptions(ReduceOp.MAX))
    >>> group.rank, group.world_size
    (0, 1)
    >>> group.destroy_group()
    """

    def __init__(self, group_name: str) -> None:
        self.group_name = group_name

    @property
    def rank(self) -> int:
        """-1 once this process belongs to the group no more."""
        return collective.get_rank(self.group_name)

    @property
    def world_size(self) -> int:
        """-1 once this process belongs to the group no more."""
        return collective.get_collective_group_size(self.group_name)

    @classmethod
    def backend(cls) -> str:
        return Backend.AUTO

    @classmethod
    def check_backend_availability(cls) -> bool:
        return True

    def destroy_group(self) -> None:
        """This process leaves the group."""
        collective.destroy_collective_group(self.group_name)

    def allreduce(self, tensor: Any, allreduce_options: AllReduceOptions | None = None) -> None:
        options = allreduce_options or AllReduceOptions()
        with self._refusing("allreduce"):
            one = _one("tensor", tensor)
            timeout = _seconds(options.timeout_ms)
        collective.allreduce(one, self.group_name, options.reduceOp, timeout=timeout)

    def barrier(self, barrier_options: BarrierOptions | None = None) -> None:
        options = barrier_options or BarrierOptions()
        with self._refusing("barrier"):
            timeout = _seconds(options.timeout_ms)
        collective.barrier(self.group_name, timeout=timeout)

    def reduce(self, tensor: Any, reduce_options: ReduceOptions | None = None) -> None:
        options = reduce_options or ReduceOptions()
        with self._refusing("reduce"):
            _refuse_unless_zero(root_tensor=options.root_tensor)
            one = _one("tensor", tensor)
            timeout = _seconds(options.timeout_ms)
        collective.reduce(
            one, options.root_rank, self.group_name, options.reduceOp, timeout=timeout
        )

    def allgather(
        self,
        tensor_list: list[Any],
        tensor: Any,
        allgather_options: AllGatherOptions | None = None,
    ) -> None:
        options = allgather_options or AllGatherOptions()
        with self._refusing("allgather"):
            several, one = _several("tensor_list", tensor_list), _one("tensor", tensor)
            timeout = _seconds(options.timeout_ms)
        collective.allgather(several, one, self.group_name, timeout=timeout)

    def broadcast(self, tensor: Any, broadcast_options: BroadcastOptions | None = None) -> None:
        options = broadcast_options or BroadcastOptions()
        with self._refusing("broadcast"):
            _refuse_unless_zero(root_tensor=options.root_tensor)
            one = _one("tensor", tensor)
            timeout = _seconds(options.timeout_ms)
        collective.broadcast(one, options.root_rank, self.group_name, timeout=timeout)

    def reducescatter(
        self,
        tensor: Any,
        tensor_list: list[Any],
        reducescatter_options: ReduceScatterOptions | None = None,
    ) -> None:
        options = reducescatter_options or ReduceScatterOptions()
        with self._refusing("reducescatter"):
            one, several = _one("tensor", tensor), _several("tensor_list", tensor_list)
            timeout = _seconds(options.timeout_ms)
        collective.reducescatter(one, several, self.group_name, options.reduceOp, timeout=timeout)

    def send(self, tensor: Any, send_options: SendOptions) -> None:
        with self._refusing("send/recv", (self.rank, send_options.dst_rank)):
            _refuse_unless_zero(
                dst_gpu_index=send_options.dst_gpu_index, n_elements=send_options.n_elements
            )
            one = _one("tensor", tensor)
            timeout = _seconds(send_options.timeout_ms)
        collective.send(one, send_options.dst_rank, self.group_name, timeout=timeout)

    def recv(self, tensor: Any, recv_options: RecvOptions) -> None:
        with self._refusing("send/recv", (recv_options.src_rank, self.rank)):
            _refuse_unless_zero(
                src_gpu_index=recv_options.src_gpu_index, n_elements=recv_options.n_elements
            )
            one = _one("tensor", tensor)
            timeout = _seconds(recv_options.timeout_ms)
        collective.recv(one, recv_options.src_rank, self.group_name, timeout=timeout)

    def _refusing(
        self, kind: str, pair: tuple[int, int] | None = None
    ) -> AbstractContextManager[None]:
        """What is refused inside is told to the other ranks."""
        return collective._group(self.group_name).refusing(kind, pair)


def _one(name: str, tensor: Any) -> Any:
    """The tensor, which may stand alone in a list."""
    if not isinstance(tensor, list):
        return tensor
    if len(tensor) != 1:
        raise ValueError(
            f"{name} must be one tensor, or a list with it, not {len(tensor)} tensors: a process "
            f"has one here"
        )
    return tensor[0]


def _several(name: str, tensors: Any) -> Any:
    """The list of tensors, which may stand alone in a list."""
    if isinstance(tensors, list) and tensors and isinstance(tensors[0], list):
        return _one(name, tensors)
    return tensors


def _seconds(timeout: timedelta | float) -> float | None:
    """None: that of the group."""
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout / 1000
    return None if seconds < 0 else seconds


def _refuse_unless_zero(**options: int) -> None:
    for name, value in options.items():
        if value != 0:
            raise ValueError(
                f"{name} is for GPUs, and must be 0 here, not {value}: give that part of the "
                f"tensor as one of its own"
            )
