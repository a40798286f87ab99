"""`Pool`, under the name of `ray.util.multiprocessing`."""

from __future__ import annotations

from ..._absent import absent
from .pool import AsyncResult, IMapIterator, Pool, TimeoutError

__all__ = ["AsyncResult", "IMapIterator", "Pool", "TimeoutError"]

__getattr__ = absent(__name__, __all__)
