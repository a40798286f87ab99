"""Dask on this runtime, by the names that Ray's `ray.util.dask` has."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import dask

from hoplo.util.dask import get, persisted, use_dask_here

from .._absent import absent

__all__ = [
    "disable_dask_on_ray",
    "enable_dask_on_ray",
    "ray_dask_get",
    "ray_dask_get_sync",
    "ray_dask_persist",
]


def ray_dask_get(
    dsk: Any,
    keys: Any,
    *,
    ray_remote_args: Mapping[str, Any] | None = None,
    ray_persist: bool = False,
    persist: bool = False,
    **options: Any,
) -> Any:
    """`hoplo.util.dask.get`: a scheduler of Dask's.

    >>> from dask import delayed
    >>> delayed(sum)([delayed(pow)(2, 3), 1]).compute(scheduler=ray_dask_get)
    9
    """
    persist = persist or ray_persist
    return get(dsk, keys, remote_args=ray_remote_args, persist=persist, **options)


ray_dask_get_sync = ray_dask_get
ray_dask_get.persist = functools.partial(persisted, scheduler=ray_dask_get)  # type: ignore[attr-defined]


def ray_dask_persist(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
    """`dask.persist` by this scheduler, whichever is set: what the tasks give stays in the store.

    `x.persist()` does the same where this scheduler is set.

    >>> from dask import delayed
    >>> (squares,) = ray_dask_persist(delayed([delayed(pow)(x, 2) for x in range(3)]))
    >>> delayed(sum)(squares).compute(scheduler=ray_dask_get)
    5
    """
    options = {"scheduler": ray_dask_get, "ray_persist": True, **kwargs}
    made: tuple[Any, ...] = dask.persist(*args, **options)
    return made


def enable_dask_on_ray(
    shuffle: str | None = "tasks", use_shuffle_optimization: bool | None = True
) -> Any:
    """`hoplo.util.dask.use_dask_here`, also as a context manager.

    `use_shuffle_optimization` has no effect.

    >>> from dask import delayed
    >>> with enable_dask_on_ray():
    ...     delayed(max)(3, 4).compute()
    4
    """
    method = {} if shuffle is None else {"dataframe.shuffle.method": shuffle}
    return use_dask_here(scheduler=ray_dask_get, **method)


def disable_dask_on_ray() -> Any:
    """Has Dask use its own schedulers again.

    >>> _ = disable_dask_on_ray()
    """
    return dask.config.set({"scheduler": None, "dataframe.shuffle.method": None})


__getattr__ = absent(__name__, __all__)
__path__: list[str] = []
