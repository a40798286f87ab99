"""Runtime environments, under the names of `ray.runtime_env`."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping
from typing import Any, Self

from hoplo import runtime_env as _ours

from ._absent import absent

__all__ = ["RuntimeEnv", "RuntimeEnvConfig"]


class RuntimeEnvConfig(dict[str, Any]):
    """For `RuntimeEnv(config=...)`: how long making the environment may take.

    The rest is taken, and changes nothing: an environment is made when it is first needed.

    >>> RuntimeEnv(pip=["six"], config=RuntimeEnvConfig(setup_timeout_seconds=60))["config"]
    {'setup_timeout_seconds': 60}
    """

    known_fields = frozenset({"eager_install", "log_files", "setup_timeout_seconds"})

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

    @classmethod
    def default_config(cls) -> Self:
        """One that asks for nothing."""
        return cls()

    @classmethod
    def parse_and_validate_runtime_env_config(cls, config: Mapping[str, Any]) -> Self:
        """Of a dict. Fields with other names are left aside."""
        return cls(**{name: config[name] for name in cls.known_fields if name in config})

    def to_dict(self) -> dict[str, Any]:
        """The same as a plain dict."""
        return copy.deepcopy(dict(self))


class RuntimeEnv(_ours.RuntimeEnv):
    """`hoplo.runtime_env.RuntimeEnv`, with Ray's methods.

    Each value is checked when it is set, too. What hoplo has not, such as conda, no environment
    has: the methods say so.

    >>> env = RuntimeEnv(pip=["six"], env_vars={"LEVEL": "debug"})
    >>> env.has_pip(), env.env_vars(), env.has_conda()
    (True, {'LEVEL': 'debug'}, False)
    >>> RuntimeEnv.deserialize(env.serialize()) == env
    True
    """

    known_fields = frozenset(_ours._FIELDS)
    """What an environment may have."""
    extensions_fields = frozenset({"_inject_current_ray", "_ray_commit", "_ray_release"})
    """Names that Ray keeps for itself."""

    def __init__(self, *, _validate: bool = True, **fields: Any) -> None:
        super().__init__()
        self.update(_ours.RuntimeEnv(**fields))

    def __setitem__(self, name: str, value: Any) -> None:
        checked = _ours.RuntimeEnv(**{name: value})
        self.pop(name, None)
        self.update(checked)

    def __reduce__(self) -> tuple[Any, ...]:
        # Its values were checked: folders may be missing where it is read.
        return _restored, (dict(self),)

    def set(self, name: str, value: Any) -> None:
        """The same as `env[name] = value`."""
        self[name] = value

    def to_dict(self) -> dict[str, Any]:
        """The same as a plain dict."""
        return copy.deepcopy(dict(self))

    def serialize(self) -> str:
        """As JSON."""
        return json.dumps(self, sort_keys=True)

    @classmethod
    def deserialize(cls, serialized_runtime_env: str) -> Self:
        """Of what `serialize` or `get_runtime_context().get_runtime_env_string()` gave.

        Raises ValueError for what is no JSON.
        """
        env = cls()
        env.update(_ours.read(serialized_runtime_env))
        return env

    # ---- what it has ----

    def env_vars(self) -> dict[str, str]:
        """The variables; none: an empty dict."""
        return dict(self.get("env_vars", {}))

    def has_working_dir(self) -> bool:
        return "working_dir" in self

    def working_dir(self) -> str:
        """The folder; without one an empty text."""
        return str(self.get("working_dir", ""))

    def working_dir_uri(self) -> str | None:
        """The folder, which needs no URI here; None without one."""
        return self.get("working_dir")

    def py_modules(self) -> list[str]:
        """Where they lie."""
        return list(self.get("py_modules", ()))

    py_modules_uris = py_modules

    def py_executable(self) -> str | None:
        return self.get("py_executable")

    def has_pip(self) -> bool:
        return "pip" in self

    def pip_config(self) -> dict[str, Any]:
        """The packages and their options."""
        return dict(self.get("pip", {}))

    def pip_uri(self) -> str | None:
        """The same text for the same packages and options; None without any."""
        return self._uri("pip")

    def has_uv(self) -> bool:
        return "uv" in self

    def uv_config(self) -> dict[str, Any]:
        """The packages and their options."""
        return dict(self.get("uv", {}))

    def uv_uri(self) -> str | None:
        """The same text for the same packages and options; None without any."""
        return self._uri("uv")

    def _uri(self, field: str) -> str | None:
        if field not in self:
            return None
        text = json.dumps(self[field], sort_keys=True)
        return f"{field}://{hashlib.sha1(text.encode()).hexdigest()}"

    # ---- what no environment of hoplo's has ----

    def get_extension(self, key: str) -> None:
        """None for each of `extensions_fields`. Raises ValueError for another name."""
        if key not in self.extensions_fields:
            names = ", ".join(sorted(self.extensions_fields))
            raise ValueError(f"an extension is one of {names}, not {key!r}")

    def has_conda(self) -> bool:
        return False

    has_py_container = has_conda

    def conda_uri(self) -> None:
        """None, as of all that hoplo has not."""

    conda_config = conda_env_name = conda_uri
    image_uri = nsight = rocprof_sys = virtualenv_name = conda_uri
    py_container_image = py_container_run_options = py_container_worker_path = conda_uri

    def plugins(self) -> list[tuple[str, Any]]:
        """None: a field that hoplo does not know is refused."""
        return []

    def plugin_uris(self) -> list[str]:
        return []

    java_jars = plugin_uris


def _restored(fields: dict[str, Any]) -> RuntimeEnv:
    env = RuntimeEnv()
    env.update(fields)
    return env


__getattr__ = absent(__name__, __all__)
__path__: list[str] = []
