"""The builder: a program that the daemon starts to make the Python of one runtime environment.

    daemon --request on stdin, two descriptors--> builder --> pip, uv, or the user's own program
           <-- lines for people on stdout, status 0 or 1; in the 1st descriptor how a worker starts

On a node, environments of one user lie beside each other, for all daemons of that user:

    environments/KEY/          made in place, since scripts in a virtual environment hold its path
      venv/                    the virtual environment
      requirements.txt
      built.json               put there last, by a rename: without it, KEY/ counts as nothing
    environments/KEY.lock      shared by the daemons that use KEY; who removes KEY has it alone
    environments/KEY.turn      who has it writes into KEY/, with what it started: pip has it, too

- The lock is the second descriptor, and the daemon's as well: it keeps KEY after the builder ended.
- `flock` ends with the processes that have the file open. So whatever is killed, the next builder
  gets its turn when nobody writes any more, finds no built.json, and begins anew.
- KEY.lock holds the bytes that KEY takes, and its time of change is that of the last use. When all
  take more than HOPLO_ENVIRONMENTS_GB, those go that nobody uses, the one used longest ago first.
- Of the variables that an environment sets, those that installers read are set for them, too, and
  are part of KEY: with another index there may be other packages.
- Packages of the node's own Python are seen behind those that are installed, and count as there.
  They are no part of KEY: an environment that was built stays when they change.
- Before a worker is started in any Python, a script of ours looks whether that can be (`_enter`).
"""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import select
import shlex
import shutil
import signal
import site
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any, NoReturn

from . import _texts
from ._packages import locked, make_room

LIMIT_VARIABLE = "HOPLO_ENVIRONMENTS_GB"
LIMIT_GB = 10.0


class Refused(Exception):
    """It cannot be made. The text says why, and what to do."""


def main() -> NoReturn:
    """Makes what the request on standard input asks for."""
    _end_with(os.getppid())
    request = json.loads(sys.stdin.buffer.read())
    told, lock = int(sys.argv[1]), sys.argv[2]
    try:
        spec = json.loads(request["spec"])
        if "py_executable" in spec:
            program = of_executable(_texts.received(spec["py_executable"]))
        else:
            for name, text in spec.get("variables", {}).items():
                os.environ[_texts.received(name)] = _texts.expanded(_texts.received(text))
            program = of_packages(spec, request["home"], request["key"], int(lock))
    except Refused as error:
        print(error, flush=True)
        sys.exit(1)
    except OSError as error:
        print(f"{error}: on node {socket.gethostname()}", flush=True)
        sys.exit(1)
    with open(told, "w", closefd=False) as file:
        json.dump(program, file)
    sys.exit(0)


def _end_with(daemon: int) -> None:
    """Ends this process, with all that it starts, when the daemon does, however that ends."""
    life = os.pidfd_open(daemon)

    def watch() -> None:
        select.select([life], [], [])
        os.killpg(os.getpgrp(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def of_executable(command: str) -> dict[str, Any]:
    """The user's own program, if it is a Python in which workers can run."""
    argv = shlex.split(command)
    _check(argv, {}, command)
    return {"argv": argv, "variables": {}, "inherits": False}


def of_packages(spec: dict[str, Any], home: str, key: str, lock: int) -> dict[str, Any]:
    """A virtual environment with packages: the one that is there, or one that is made now."""
    limit = limit_bytes(os.environ.get(LIMIT_VARIABLE))
    place = os.path.join(home, key)
    fcntl.flock(lock, fcntl.LOCK_SH)
    built = os.path.join(place, "built.json")
    if not _is_whole(built):
        turn = locked(f"{place}.turn", fcntl.LOCK_EX)
        try:
            if not _is_whole(built):
                _make(spec, place, built, turn)
                os.ftruncate(lock, 0)
                os.pwrite(lock, b"%d" % _taken(place), 0)
                make_room(home, limit)
        finally:
            os.close(turn)
    os.utime(lock)
    return _program(os.path.join(place, "venv"))


def limit_bytes(text: str | None) -> int:
    """What all environments of a user may take on a node."""
    try:
        limit = LIMIT_GB if not text else float(text)
    except ValueError:
        limit = -1.0
    if not 0 <= limit < float("inf"):
        raise Refused(f"{LIMIT_VARIABLE} must be a number of gigabytes such as 2.5, not {text!r}")
    return int(limit * 1e9)


def _is_whole(built: str) -> bool:
    """Whether it was built, and nobody took its Python away since."""
    try:
        with open(built) as file:
            argv = json.load(file)["argv"]
    except (OSError, ValueError, KeyError):
        return False
    return os.access(argv[0], os.X_OK)


def _make(spec: dict[str, Any], place: str, built: str, turn: int) -> None:
    shutil.rmtree(place, ignore_errors=True)  # of a builder that died
    try:
        os.mkdir(place, 0o700)
        folder = os.path.join(place, "venv")
        _virtual_environment(folder)
        program = _program(folder)
        python = program["argv"][0]
        if "pip" in spec:
            _pip(spec["pip"], python, place, turn)
        else:
            _uv(spec["uv"], python, place, turn)
        _check(program["argv"], program["variables"], python)
        with open(f"{built}.part", "w") as file:
            json.dump({"argv": program["argv"]}, file)
        os.rename(f"{built}.part", built)
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise


def _virtual_environment(folder: str) -> None:
    """One that sees the packages of this Python behind its own."""
    import venv

    venv.EnvBuilder(symlinks=True).create(folder)
    found = [*site.getsitepackages()]
    if site.ENABLE_USER_SITE:
        found.append(site.getusersitepackages())
    packages = os.path.join(folder, "lib", f"python{_texts.PYTHON}", "site-packages")
    # By addsitedir, which reads their .pth files: of packages that are installed in place.
    lines = [f"import site; site.addsitedir({it!r})\n" for it in found if os.path.isdir(it)]
    with open(os.path.join(packages, "_hoplo_node.pth"), "w") as file:
        file.writelines(lines)


def _program(folder: str) -> dict[str, Any]:
    """How a worker is started in it."""
    path = os.path.join(folder, "bin")
    variables = {
        "VIRTUAL_ENV": folder,
        "PATH": os.pathsep.join([path, os.environ.get("PATH", os.defpath)]),
    }
    return {"argv": [os.path.join(path, "python")], "variables": variables, "inherits": True}


def _pip(wish: dict[str, Any], python: str, place: str, turn: int) -> None:
    pip = [python, "-m", "pip", "--disable-pip-version-check", "--no-input"]
    options = _received(wish.get("pip_install_options", ["--no-cache-dir"]))
    _have_pip(python, place, turn)
    if "pip_version" in wish:
        _run([*pip, "install", *options, f"pip{wish['pip_version']}"], place, turn)
    requirements = _requirements(wish, place)
    _run([*pip, "install", "--progress-bar", "off", *options, "-r", requirements], place, turn)
    if wish["pip_check"]:
        _run([*pip, "check"], place, turn)


def _uv(wish: dict[str, Any], python: str, place: str, turn: int) -> None:
    options = _received(wish.get("uv_pip_install_options", ["--no-cache"]))
    if "uv_version" in wish:
        pip = [python, "-m", "pip", "--disable-pip-version-check", "--no-input", "install"]
        _have_pip(python, place, turn)
        _run([*pip, f"uv{wish['uv_version']}"], place, turn)
        uv = [python, "-m", "uv"]
    elif importlib.util.find_spec("uv") is not None:
        uv = [sys.executable, "-m", "uv"]
    elif found := shutil.which("uv"):
        uv = [found]
    else:
        raise Refused(
            f"uv is not on node {socket.gethostname()}: install it with `{sys.executable} -m pip "
            f"install uv`, or give 'uv_version', such as '>=0.5', and pip fetches it"
        )
    requirements = _requirements(wish, place)
    # It writes nowhere but into this environment, whatever is set around the daemon.
    where = ["--python", python, "--no-progress"]
    _run([*uv, "pip", "install", *where, *options, "-r", requirements], place, turn)
    if wish["uv_check"]:
        _run([*uv, "pip", "check", "--python", python], place, turn)


def _requirements(wish: dict[str, Any], place: str) -> str:
    path = os.path.join(place, "requirements.txt")
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.writelines(f"{line}\n" for line in _received(wish["packages"]))
    return path


def _have_pip(python: str, place: str, turn: int) -> None:
    """The node's Python may have none: those that uv makes have not."""
    if importlib.util.find_spec("pip") is None:
        _run([python, "-m", "ensurepip"], place, turn)


def _run(argv: Sequence[str], place: str, turn: int) -> None:
    sys.stdout.flush()
    done = subprocess.run(argv, cwd=place, stdin=subprocess.DEVNULL, pass_fds=(turn,), check=False)
    if done.returncode != 0:
        name = " ".join(os.path.basename(word) for word in argv[:3])
        how = f"status {done.returncode}" if done.returncode > 0 else f"signal {-done.returncode}"
        raise Refused(f"{name} ended with {how} on node {socket.gethostname()}")


def _check(argv: Sequence[str], variables: dict[str, str], name: str) -> None:
    """Raises Refused unless workers can run in this Python."""
    from . import _enter

    reader, writer = os.pipe()
    line = [*argv, _enter.__file__, "--check", str(writer), _enter.lent(), _texts.PYTHON]
    try:
        sys.stdout.flush()
        done = subprocess.run(
            line,
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            pass_fds=(writer,),
            check=False,
        )
    except OSError as error:
        raise Refused(
            f"{name} cannot be started on node {socket.gethostname()}: {error.strerror}"
        ) from None
    finally:
        os.close(writer)
    with open(reader) as file:
        said = file.read()
    if not said:
        raise Refused(
            f"{name} is no Python that runs a program and leaves its descriptors open: it ended "
            f"with status {done.returncode} on node {socket.gethostname()}"
        )
    if said != "yes":
        raise Refused(f"on node {socket.gethostname()} {name} {said}")


def _taken(folder: str) -> int:
    """Bytes on disk."""
    total = 0
    for at, folders, files in os.walk(folder):
        for name in (*folders, *files):
            total += os.lstat(os.path.join(at, name)).st_blocks * 512
    return total


def _received(lines: Sequence[str]) -> list[str]:
    return [_texts.received(line) for line in lines]
