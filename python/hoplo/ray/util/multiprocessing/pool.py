"""`Pool` as Ray's: it takes `ray_address` and `ray_remote_args`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import hoplo
from hoplo.util import multiprocessing
from hoplo.util.multiprocessing import AsyncResult, IMapIterator, TimeoutError

from ..._init import init

__all__ = ["AsyncResult", "IMapIterator", "Pool", "TimeoutError"]


class Pool(multiprocessing.Pool):
    """`hoplo.util.multiprocessing.Pool`.

    `ray_address` is what `init` is given if nobody has called it. `ray_remote_args` are options of
    the worker actors.

    >>> with Pool(2, ray_remote_args={"num_cpus": 0.5}) as pool:
    ...     pool.map(abs, [-1, -2])
    [1, 2]
    """

    def __init__(
        self,
        processes: int | None = None,
        initializer: Callable[..., Any] | None = None,
        initargs: Iterable[Any] | None = None,
        maxtasksperchild: int | None = None,
        context: object = None,
        ray_address: str | None = None,
        ray_remote_args: Mapping[str, Any] | None = None,
        *,
        actor_options: Mapping[str, Any] | None = None,
    ) -> None:
        if ray_address is not None and not hoplo.is_initialized():
            init(ray_address)
        super().__init__(
            processes,
            initializer,
            () if initargs is None else initargs,
            maxtasksperchild,
            context,
            actor_options={**(actor_options or {}), **(ray_remote_args or {})},
        )
