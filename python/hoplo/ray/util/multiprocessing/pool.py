"""`Pool` as Ray's: it takes `ray_address` and `ray_remote_args`, and wraps what callbacks hear."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import hoplo
from hoplo.exceptions import TaskError
from hoplo.util import multiprocessing
from hoplo.util.multiprocessing import AsyncResult, IMapIterator, TimeoutError

from ..._init import init

__all__ = ["AsyncResult", "IMapIterator", "Pool", "PoolTaskError", "TimeoutError"]


class PoolTaskError(Exception):
    """What an `error_callback` is given: `underlying` is what the function raised.

    The methods of the pool and `get` raise the underlying error itself. An error that is not the
    function's, such as that of a worker that died, is given as it is.

    >>> errors = []
    >>> with Pool(1) as pool:
    ...     pool.apply_async(divmod, (1, 0), error_callback=errors.append).wait()
    >>> type(errors[0]).__name__, isinstance(errors[0].underlying, ZeroDivisionError)
    ('PoolTaskError', True)
    """

    def __init__(self, underlying: BaseException) -> None:
        super().__init__(underlying)
        self.underlying = underlying
        self.__cause__ = underlying


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

    def _for_errors(
        self, callback: Callable[[BaseException], Any] | None
    ) -> Callable[[BaseException], Any] | None:
        if callback is None:
            return None

        def call(error: BaseException) -> Any:
            return callback(PoolTaskError(error) if isinstance(error, TaskError) else error)

        return call
