"""Pythons of runtime environments: `pip`, `uv` and `py_executable`, checked where a program asks.

    RuntimeEnv(pip=...)  --checked--> a dict with all that makes it (a requirements file is read)
    its canonical JSON   --wanted---> what the daemon is told: the spec, words for it, a time limit
                                      `_build_environment` makes it on each node, for its workers

Nothing is looked up here: whether a package can be had is known where it is installed.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping
from typing import Any

FIELDS = ("pip", "uv", "py_executable")
SETUP_TIMEOUT_SECONDS = 600
_WHAT_MAX = 160
_PATIENCE_MAX = 2**32 - 1
_KNOWN = {
    "pip": ("packages", "pip_check", "pip_version", "pip_install_options"),
    "uv": ("packages", "uv_check", "uv_version", "uv_pip_install_options"),
}
_INSTALLERS = re.compile(
    r"(PIP|UV|GIT|SSL|CMAKE)_"
    r"|((ALL|FTP|HTTPS?|NO)_PROXY|(REQUESTS|CURL)_CA_BUNDLE|NETRC|CC|CXX|MAX_JOBS"
    r"|C(XX|PP)?FLAGS|LDFLAGS)$",
    re.IGNORECASE,
)
"""Variables that installers, and the compilers that they start, read."""
_SECRET = re.compile(r"(?<=://)[^/@\s]+@")


def one_only(names: list[str]) -> None:
    """Raises ValueError when an environment names more than one Python."""
    if len(names) > 1:
        raise ValueError(
            f"runtime_env has {' and '.join(names)}, each of which says which Python runs the "
            f"worker: keep one of them"
        )


def installed(field: str, value: object) -> dict[str, Any] | None:
    """What `pip` or `uv` is given, as a dict; None if it asks for nothing."""
    where = f"runtime_env[{field!r}]"
    if isinstance(value, Mapping):
        given = dict(value)
    elif isinstance(value, str | os.PathLike | list | tuple):
        given = {"packages": value}
    else:
        raise TypeError(
            f"{where} must be a list of requirements, the path of a requirements file, or a dict "
            f"with 'packages', not {type(value).__name__}"
        )
    known = _KNOWN[field]
    unknown = [name for name in given if name not in known]
    if unknown:
        raise ValueError(f"{where} has no field {unknown[0]!r}; it knows {', '.join(known)}")
    if "packages" not in given:
        raise ValueError(f"{where} lacks 'packages', the list of requirements")
    packages = _packages(f"{where}['packages']", given["packages"])
    if not packages:
        return None
    check = given.get(f"{field}_check")
    if check is not None and not isinstance(check, bool):
        raise TypeError(f"{where}['{field}_check'] must be True or False, not {check!r}")
    made: dict[str, Any] = {"packages": packages, f"{field}_check": bool(check)}
    version = given.get(f"{field}_version")
    if version is not None:
        if not isinstance(version, str) or not re.match(r"\s*(===|[=~!<>]=|[<>])", version):
            raise ValueError(
                f"{where}['{field}_version'] must say which versions will do, such as '==1.2', "
                f"not {version!r}"
            )
        made[f"{field}_version"] = _line(f"{where}['{field}_version']", version)
    options = known[-1]
    if given.get(options) is not None:
        lines = given[options]
        if not isinstance(lines, list | tuple):
            raise TypeError(
                f"{where}[{options!r}] must be a list such as ['--no-index'], "
                f"not {type(lines).__name__}"
            )
        made[options] = [_line(f"{where}[{options!r}]", one) for one in lines]
    return made


def executable(value: object, working_dir: str | None) -> str:
    """The program that runs workers, with its arguments. A relative path begins in their folder."""
    where = "runtime_env['py_executable']"
    if not isinstance(value, str | os.PathLike):
        raise TypeError(
            f"{where} must be the path of a Python, or a command such as 'uv run --with x', "
            f"not {type(value).__name__}"
        )
    if isinstance(value, str):
        text = _line(where, value)
    else:
        text = shlex.quote(_line(where, os.fspath(value)))
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ValueError(f"{where}: {text!r} is no command: {error}") from None
    if not words:
        raise ValueError(f"{where} is empty: give the path of a Python")
    program = os.path.expanduser(words[0])
    if "/" in program and not os.path.isabs(program):
        if working_dir is not None and not os.path.isdir(working_dir):
            raise ValueError(
                f"{where}: {program} would lie in a package, which only a running worker unpacks: "
                f"give the absolute path of a program that is on every node"
            )
        program = os.path.abspath(os.path.join(working_dir or os.getcwd(), program))
    return text if program == words[0] else shlex.join([program, *words[1:]])


def setup_timeout(config: Mapping[str, Any]) -> int | None:
    """The seconds that making an environment may take by `config`; 0 for ever, None unsaid."""
    seconds = config.get("setup_timeout_seconds")
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int):
        raise TypeError(
            f"runtime_env['config']['setup_timeout_seconds'] must be a whole number of seconds, "
            f"or -1 for ever, not {seconds!r}"
        )
    if seconds != -1 and not 0 < seconds <= _PATIENCE_MAX:
        raise ValueError(
            f"runtime_env['config']['setup_timeout_seconds'] must be above 0, or -1 for ever, "
            f"not {seconds}"
        )
    return max(seconds, 0)


def wanted(text: str) -> tuple[str, str, int] | None:
    """Of an environment as canonical JSON: what is to be made, in words too, and the time limit."""
    env = json.loads(text)
    names = [name for name in FIELDS if name in env]
    if not names:
        return None
    (name,) = names
    spec = with_variables(json.dumps({name: env[name]}), env.get("env_vars", {}))
    seconds = setup_timeout(env.get("config", {}))
    return spec, _what(name, env[name]), SETUP_TIMEOUT_SECONDS if seconds is None else seconds


def with_variables(spec: str, variables: Mapping[str, str]) -> str:
    """The spec of what is made for workers that have these variables: installers hear theirs."""
    wish = json.loads(spec)
    wish.pop("variables", None)
    theirs = {name: text for name, text in variables.items() if _INSTALLERS.match(name)}
    if theirs and "py_executable" not in wish:
        wish["variables"] = theirs
    return json.dumps(wish, sort_keys=True, separators=(",", ":"))


def given(spec: str, patience: int) -> dict[str, Any]:
    """The fields of a `runtime_env` for what `wanted` told."""
    fields: dict[str, Any] = json.loads(spec)
    fields.pop("variables", None)
    if patience != SETUP_TIMEOUT_SECONDS:
        fields["config"] = {"setup_timeout_seconds": patience or -1}
    return fields


def _what(name: str, value: Any) -> str:
    if name == "py_executable":
        text = f"py_executable {value}"
    else:
        installer = {"pip": "pip install", "uv": "uv pip install"}[name]
        text = " ".join([installer, *value["packages"]])
    text = _SECRET.sub("***@", text).encode(errors="replace").decode()
    return text if len(text) <= _WHAT_MAX else f"{text[: _WHAT_MAX - 3]}..."


def _packages(where: str, value: object) -> list[str]:
    if isinstance(value, str | os.PathLike):
        path = os.path.abspath(os.path.expanduser(_line(where, os.fspath(value))))
        try:
            with open(path, encoding="utf-8") as file:
                lines = file.read().replace("\\\n", " ").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no text"
            raise ValueError(
                f"{where}: the requirements file {path} cannot be read: {reason}. To name a "
                f"package, write a list: ['name']"
            ) from None
        bare = (line.strip() for line in lines)
        return list(dict.fromkeys(line for line in bare if line and not line.startswith("#")))
    if not isinstance(value, list | tuple):
        raise TypeError(
            f"{where} must be a list of requirements or the path of a requirements file, "
            f"not {type(value).__name__}"
        )
    return list(dict.fromkeys(_line(where, one) for one in value))


def _line(where: str, value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{where} must hold text, not {value!r}")
    if "\n" in value or "\r" in value or "\0" in value:
        raise ValueError(f"{where}: {value!r} must be one line, without zero bytes")
    if not value.strip():
        raise ValueError(f"{where} has an empty entry: leave it out")
    return value.strip()
