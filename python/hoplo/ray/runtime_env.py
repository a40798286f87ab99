"""Runtime environments, under the names of `ray.runtime_env`."""

from __future__ import annotations

from typing import Any

from hoplo.runtime_env import RuntimeEnv

from ._absent import absent

__all__ = ["RuntimeEnv", "RuntimeEnvConfig"]


class RuntimeEnvConfig(dict[str, Any]):
    """For `RuntimeEnv(config=...)`: how long making the environment may take.

    The rest is taken, and changes nothing: an environment is made when it is first needed.

    >>> RuntimeEnv(pip=["six"], config=RuntimeEnvConfig(setup_timeout_seconds=60))["config"]
    {'setup_timeout_seconds': 60}
    """

    def __init__(
        self,
        setup_timeout_seconds: int = 600,
        eager_install: bool = True,
        log_files: list[str] | None = None,
    ) -> None:
        super().__init__(
            setup_timeout_seconds=setup_timeout_seconds,
            eager_install=eager_install,
            log_files=log_files or [],
        )


__getattr__ = absent(__name__, __all__)
__path__: list[str] = []
