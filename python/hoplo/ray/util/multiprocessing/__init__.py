"""`Pool`, under the name of `ray.util.multiprocessing`."""

from __future__ import annotations

from hoplo.util.multiprocessing import AsyncResult, IMapIterator, Pool, TimeoutError

from ..._absent import absent

__all__ = ["AsyncResult", "IMapIterator", "Pool", "TimeoutError"]

__getattr__ = absent(__name__, __all__)
