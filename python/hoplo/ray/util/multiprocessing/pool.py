"""`Pool`, under the name of `ray.util.multiprocessing.pool`."""

from __future__ import annotations

from hoplo.util.multiprocessing import AsyncResult, IMapIterator, Pool, TimeoutError

__all__ = ["AsyncResult", "IMapIterator", "Pool", "TimeoutError"]
