"""What a job is given, as one value: `init(job_config=JobConfig(...))`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["JobConfig"]


class JobConfig:
    """The namespace and the runtime environment of a job.

    Other arguments of Ray's are taken and have no effect.

    >>> JobConfig(ray_namespace="shop").ray_namespace
    'shop'
    """

    def __init__(
        self,
        *,
        runtime_env: Mapping[str, Any] | None = None,
        ray_namespace: str | None = None,
        **_without_effect: Any,
    ) -> None:
        self.runtime_env: dict[str, Any] = dict(runtime_env or {})
        self.ray_namespace = ray_namespace

    def set_runtime_env(self, runtime_env: Mapping[str, Any] | None) -> None:
        self.runtime_env = dict(runtime_env or {})

    def set_ray_namespace(self, ray_namespace: str) -> None:
        self.ray_namespace = ray_namespace
