"""Runtime environments, under the names of `ray.runtime_env`."""

from __future__ import annotations

from hoplo.runtime_env import RuntimeEnv

from ._absent import absent

__all__ = ["RuntimeEnv"]

__getattr__ = absent(__name__, __all__)
__path__: list[str] = []
