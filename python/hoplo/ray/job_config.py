"""What a job is given, as one value: `init(job_config=JobConfig(...))`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from hoplo._logging import LoggingConfig

from .runtime_env import RuntimeEnv

__all__ = ["JobConfig"]


class JobConfig:
    """The namespace, the runtime environment and the logging of a job.

    Other arguments of Ray's are kept and have no effect. Raises TypeError for a `code_search_path`
    that is no list, ValueError for a default lifetime of actors that hoplo has not.

    >>> JobConfig(ray_namespace="shop").ray_namespace
    'shop'
    """

    def __init__(
        self,
        jvm_options: list[str] | None = None,
        code_search_path: Sequence[str] | None = None,
        runtime_env: Mapping[str, Any] | None = None,
        _client_job: bool = False,
        metadata: Mapping[str, str] | None = None,
        ray_namespace: str | None = None,
        default_actor_lifetime: str = "non_detached",
        _disable_job_level_lineage_reconstruction: bool = False,
        _py_driver_sys_path: list[str] | None = None,
    ) -> None:
        if not isinstance(code_search_path, list | tuple | None):
            raise TypeError(
                f"code_search_path must be a list of folders, not {type(code_search_path).__name__}"
            )
        self.jvm_options = jvm_options or []
        self.code_search_path = code_search_path or []
        self.metadata: dict[str, str] = dict(metadata or {})
        self.ray_namespace = ray_namespace
        self.py_logging_config: LoggingConfig | None = None
        self.set_runtime_env(runtime_env)
        self.set_default_actor_lifetime(default_actor_lifetime)

    @classmethod
    def from_json(cls, job_config_json: Mapping[str, Any]) -> Self:
        """One with the fields of such a dict.

        >>> JobConfig.from_json({"ray_namespace": "shop"}).ray_namespace
        'shop'
        """
        fields = ("jvm_options", "code_search_path", "runtime_env", "metadata", "ray_namespace")
        given: dict[str, Any] = {name: job_config_json.get(name) for name in fields}
        return cls(**given)

    def set_metadata(self, key: str, value: str) -> None:
        """Keeps `value` in `metadata`."""
        self.metadata[key] = value

    def set_runtime_env(
        self, runtime_env: Mapping[str, Any] | None, validate: bool = False
    ) -> None:
        """Takes another one. `init` checks it, and so does this if it is to `validate`."""
        self.runtime_env: dict[str, Any] = dict(runtime_env or {})
        if validate:
            self.runtime_env = RuntimeEnv(**self.runtime_env)

    def set_ray_namespace(self, ray_namespace: str) -> None:
        self.ray_namespace = ray_namespace

    def set_py_logging_config(self, logging_config: LoggingConfig | None = None) -> None:
        """How records of `logging` look, where `init` is given no `logging_config`."""
        self.py_logging_config = logging_config

    def ensure_logging_config(
        self, logging_config: LoggingConfig | Mapping[str, Any] | None = None
    ) -> None:
        """Takes it if there is none yet. Raises TypeError for what is neither one nor a dict."""
        if logging_config is None or self.py_logging_config is not None:
            return
        if isinstance(logging_config, Mapping):
            logging_config = LoggingConfig.from_dict(logging_config)
        elif not isinstance(logging_config, LoggingConfig):
            raise TypeError(
                f"logging_config must be a LoggingConfig or a dict, "
                f"not {type(logging_config).__name__}"
            )
        self.set_py_logging_config(logging_config)

    def set_default_actor_lifetime(self, default_actor_lifetime: str) -> None:
        """Raises ValueError but for "non_detached"."""
        if default_actor_lifetime == "detached":
            raise ValueError(
                "default_actor_lifetime='detached' is not in hoplo; give each of these actors "
                "lifetime='detached' and a name"
            )
        if default_actor_lifetime != "non_detached":
            raise ValueError(
                f"default_actor_lifetime must be 'non_detached', not {default_actor_lifetime!r}"
            )
