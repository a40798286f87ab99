"""`runtime_env`: what a task, an actor or a whole job wants its worker processes to look like."""

from __future__ import annotations

import json
import os
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from . import _core, _texts

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["RuntimeEnv"]

# Linux starts no program with a longer one: `NAME=value` and a zero, at 32 pages.
_VARIABLE_BYTES_MAX = 128 * 1024 - 1
_FIELDS = (
    "env_vars",
    "working_dir",
    "py_modules",
    "excludes",
    "pip",
    "uv",
    "py_executable",
    "worker_process_setup_hook",
    "config",
)
# Which Python a worker runs: one says all of it.
_PYTHONS = ("pip", "uv", "py_executable")
SETUP_VARIABLE = "HOPLO_WORKER_SETUP"
"""In which a worker finds what to call first: `name:module.function`, or `pickle:` and base64."""
_LATER = frozenset(
    {
        "conda",
        "container",
        "image_uri",
        "java_jars",
        "mpi",
        "nsight",
        "_nsight",
        "rocprof_sys",
    }
)


class RuntimeEnv(dict[str, Any]):
    """A checked `runtime_env`. A plain dict with the same keys does as well.

    `env_vars` are set in the worker's environment; `working_dir` is the folder it runs in, and is
    importable from; `py_modules` are packages, modules or `.whl`/`.zip` files made importable. A
    node alone uses folders where they are. In a cluster they are packed, without what `excludes`
    and `.gitignore` leave out, and each node unpacks them once. `pip` and `uv` are requirements
    that each node installs once, for workers in a virtual environment: a list, the path of a
    requirements file, or a dict with `packages`. `py_executable` is the Python, or the command,
    that workers run with. `worker_process_setup_hook` is a function without arguments, or the name
    of one such as "module.function", that each worker calls before it does anything else. Of
    `config`, `setup_timeout_seconds` says how long installing may take.

    >>> RuntimeEnv(env_vars={"LEVEL": "debug"})
    {'env_vars': {'LEVEL': 'debug'}}
    """

    def __init__(
        self,
        *,
        env_vars: Mapping[str, str] | None = None,
        working_dir: str | os.PathLike[str] | None = None,
        py_modules: list[Any] | None = None,
        excludes: list[str] | None = None,
        pip: Mapping[str, Any] | list[str] | str | os.PathLike[str] | None = None,
        uv: Mapping[str, Any] | list[str] | str | os.PathLike[str] | None = None,
        py_executable: str | os.PathLike[str] | None = None,
        worker_process_setup_hook: Callable[[], object] | str | None = None,
        config: Mapping[str, Any] | None = None,
        **unknown: Any,
    ) -> None:
        super().__init__()
        for name in unknown:
            raise _unknown_field(name)
        if env_vars:
            self["env_vars"] = _env_vars(env_vars)
        if working_dir is not None:
            self["working_dir"] = _working_dir(working_dir)
        if py_modules:
            self["py_modules"] = _py_modules(py_modules)
        if excludes:
            self["excludes"] = _excludes(excludes)
        if worker_process_setup_hook is not None:
            self["worker_process_setup_hook"] = _setup_hook(worker_process_setup_hook)
        seconds = None if config is None else _config(config)
        self._add_python(pip, uv, py_executable, seconds)

    def _add_python(self, pip: Any, uv: Any, py_executable: Any, seconds: int | None) -> None:
        from . import _environments

        for field, value in (("pip", pip), ("uv", uv)):
            made = None if value is None else _environments.installed(field, value)
            if made is not None:
                self[field] = made
        if py_executable is not None:
            folder = self.get("working_dir")
            self["py_executable"] = _environments.executable(py_executable, folder)
        names = [name for name in _environments.FIELDS if name in self]
        _environments.one_only(names)
        if names and seconds not in (None, _environments.SETUP_TIMEOUT_SECONDS):
            self["config"] = {"setup_timeout_seconds": seconds or -1}

    def to_json(self) -> str:
        """The same text for the same environment: workers are kept by it. `read` reads it.

        There `py_modules` are what goes in front of `sys.path`, so that each module can be imported
        by its name, and `modules` what `hoplo._packages` packs for that.
        """
        fields = dict(self)
        hook = fields.pop("worker_process_setup_hook", None)
        if hook is not None:
            fields["env_vars"] = _env_vars({**fields.get("env_vars", {}), SETUP_VARIABLE: hook})
        modules = fields.get("py_modules")
        if modules is not None:
            entries = list(dict.fromkeys(map(_entry_of, modules)))
            fields["py_modules"] = entries
            if entries != modules:
                fields["modules"] = modules
        return json.dumps(_each_text(fields, _texts.sent), sort_keys=True, separators=(",", ":"))


def read(text: str) -> dict[str, Any]:
    """The environment of a canonical JSON."""
    env: dict[str, Any] = _each_text(json.loads(text), _texts.received)
    return env


def _each_text(part: Any, change: Callable[[str], str]) -> Any:
    if isinstance(part, dict):
        return {change(name): _each_text(value, change) for name, value in part.items()}
    if isinstance(part, list):
        return [_each_text(value, change) for value in part]
    return change(part) if isinstance(part, str) else part


def normalized(value: object, what: str = "runtime_env") -> str | None:
    """The canonical JSON of a `runtime_env` option, or None when it asks for nothing."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise TypeError(
            f"{what} must be a dict such as {{'env_vars': {{'NAME': 'value'}}}}, "
            f"not {type(value).__name__}"
        )
    for name in value:
        if not isinstance(name, str):
            raise TypeError(f"{what} must have names as its keys, not {name!r}")
    env = value if isinstance(value, RuntimeEnv) else RuntimeEnv(**value)
    if not env:
        return None
    text = env.to_json()
    if len(text) > _core.RUNTIME_ENV_BYTES_MAX:
        largest = max(env, key=lambda field: len(json.dumps(env[field])))
        raise ValueError(
            f"{what} takes {len(text)} bytes as JSON, most of them in {largest!r}, and may take "
            f"{_core.RUNTIME_ENV_BYTES_MAX}: put large values into a file, or pass them as "
            f"arguments"
        )
    return text


def merged(outer: str | None, inner: str | None) -> str | None:
    """The environment of a task asked for with `inner` by one that runs in `outer`; canonical JSON.

    The variables of both are set, the inner ones winning; any other field is the inner one's where
    it has that field.
    """
    if outer is None or inner is None or outer == inner:
        return inner if outer is None else outer
    env: dict[str, Any] = json.loads(outer)
    own: dict[str, Any] = json.loads(inner)
    variables = {**env.get("env_vars", {}), **own.get("env_vars", {})}
    if any(name in own for name in _PYTHONS):
        env = {name: part for name, part in env.items() if name not in (*_PYTHONS, "config")}
    env.update(own)
    if variables:
        env["env_vars"] = variables
    return json.dumps(env, sort_keys=True, separators=(",", ":"))


def _unknown_field(name: str) -> Exception:
    if name == "conda":
        return ValueError(
            "runtime_env['conda']: hoplo makes no conda environments: name the packages with "
            "'pip' or 'uv', or the Python of an environment that is on every node with "
            "'py_executable'"
        )
    if name in _LATER:
        return ValueError(
            f"runtime_env[{name!r}] comes later; env_vars, working_dir, py_modules, pip, uv and "
            f"py_executable work now"
        )
    import difflib

    near = difflib.get_close_matches(name, _FIELDS, n=1)
    remedy = f"did you mean {near[0]!r}?" if near else f"it knows {', '.join(_FIELDS)}"
    return TypeError(f"runtime_env has no field {name!r}; {remedy}")


def _env_vars(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise TypeError(f"runtime_env['env_vars'] must be a dict, not {type(value).__name__}")
    for name, text in value.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise TypeError(
                f"runtime_env['env_vars'] must map str to str, but has {name!r}: {text!r}; "
                f"write str({text!r})"
            )
        if not name or "=" in name or "\0" in name or "\0" in text:
            raise ValueError(
                f"runtime_env['env_vars'] has a name or value no process can: {name!r}"
            )
        where = f"runtime_env['env_vars'][{name!r}]"
        taken = _bytes(where, name) + 1 + _bytes(where, text)
        if taken > _VARIABLE_BYTES_MAX:
            raise ValueError(
                f"{where} takes {taken} bytes with its name, and may take {_VARIABLE_BYTES_MAX}: "
                f"with a longer one Linux starts no program. Put large values into a file, or pass "
                f"them as arguments"
            )
    return dict(value)


def _bytes(where: str, text: str) -> int:
    """How many the system takes for the text, which may have been decoded from any bytes."""
    try:
        return len(os.fsencode(text))
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{where} must be text that stands for bytes, and has {text[error.start]!r} at place "
            f"{error.start}"
        ) from None


def _setup_hook(value: object) -> str:
    """What the worker's variable has."""
    if isinstance(value, str):
        if value.startswith(("name:", "pickle:")):
            return value  # checked before
        if not all(part.isidentifier() for part in value.split(".")) or "." not in value:
            raise ValueError(
                f"runtime_env['worker_process_setup_hook'] must be a function, or a name such as "
                f"'module.function', not {value!r}"
            )
        return f"name:{value}"
    if not callable(value):
        raise TypeError(
            f"runtime_env['worker_process_setup_hook'] must be a function or the name of one, "
            f"not {type(value).__name__}"
        )
    import base64

    import cloudpickle

    return f"pickle:{base64.b64encode(cloudpickle.dumps(value)).decode()}"


def _config(value: object) -> int | None:
    """What it says of how long making the environment may take."""
    if not isinstance(value, Mapping):
        raise TypeError(
            f"runtime_env['config'] must be a dict such as {{'setup_timeout_seconds': 60}}, "
            f"not {type(value).__name__}"
        )
    from ._environments import setup_timeout

    return setup_timeout(value)


def _excludes(value: object) -> list[str]:
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
        raise TypeError(
            "runtime_env['excludes'] must be a list of patterns as in .gitignore, such as "
            "['/data/', '*.bin']"
        )
    for pattern in value:
        if "\0" in pattern:
            raise ValueError(
                f"runtime_env['excludes']: no path has a zero byte, as {pattern!r} has"
            )
        _bytes("runtime_env['excludes']", pattern)
    return list(value)


def _working_dir(value: object) -> str:
    if _is_package(value):
        return str(value)
    path = _local_path(value, "working_dir")
    scheme = "file://" if isinstance(value, str) and value.startswith("file://") else ""
    if path.is_dir():
        return str(path)
    if path.is_file() and path.suffix == ".zip":
        return f"{scheme}{path}"
    raise ValueError(
        f"runtime_env['working_dir'] must be an existing folder: {path} is not, and is no .zip file"
    )


def _entry_of(module: str) -> str:
    """Where a module is imported from."""
    if _is_package(module) or module.endswith((".whl", ".zip", ".egg")):
        return module
    return os.path.dirname(module)


def _py_modules(value: object) -> list[str]:
    """The file or folder of each module, or the archive that it is in."""
    if not isinstance(value, list | tuple):
        raise TypeError(
            f"runtime_env['py_modules'] must be a list of paths or modules, "
            f"not {type(value).__name__}"
        )
    from pathlib import Path

    modules: list[str] = []
    for module in value:
        if _is_package(module):
            modules.append(str(module))
            continue
        if isinstance(module, types.ModuleType):
            file = getattr(module, "__file__", None)
            if file is None:
                raise ValueError(
                    f"runtime_env['py_modules']: module {module.__name__} has no file to import; "
                    f"give the path of its folder"
                )
            path = Path(file).resolve()
            # A package's folder stands for it; of a nested one, the folder of the outermost.
            ups = module.__name__.count(".") + (1 if path.name.startswith("__init__.") else 0)
            path = path.parents[ups - 1] if ups else path
        else:
            path = _local_path(module, "py_modules")
            if not path.exists():
                raise ValueError(f"runtime_env['py_modules']: {path} does not exist")
        modules.append(str(path))
    return list(dict.fromkeys(modules))


def _is_package(value: object) -> bool:
    """What a worker's own environment names: it is passed on as it is."""
    if not isinstance(value, str) or not value.startswith("pkg:"):
        return False
    from ._packages import Package

    return Package.of(value) is not None


def _local_path(value: object, field: str) -> Path:
    from pathlib import Path

    if not isinstance(value, str | os.PathLike):
        raise TypeError(f"runtime_env[{field!r}] must hold paths, not {type(value).__name__}")
    text = os.fspath(value)
    if "\0" in text:
        raise ValueError(f"runtime_env[{field!r}]: no path has a zero byte, as {text!r} has")
    _bytes(f"runtime_env[{field!r}]", text)
    if text.startswith("file://"):
        from urllib.parse import unquote

        text = unquote(text.removeprefix("file://"))
        if not text.startswith("/"):
            raise ValueError(
                f"runtime_env[{field!r}]: file://{text} names another machine: write file:///path"
            )
    elif "://" in text:
        raise ValueError(
            f"runtime_env[{field!r}]: {text!r} is not a local path; of URIs only file:// works, "
            f"and other URIs come later. Download it, and give its path"
        )
    return Path(text).expanduser().resolve()
