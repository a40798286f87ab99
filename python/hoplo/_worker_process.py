r"""The life of a worker process: from its fork, or its own Python's start, to its last status.

zygote --fork--> become_worker --------------------------------> the loop of `_core.worker_main`
                      \--execute, with a Python of its own--> `_enter` --> live --^
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import sys
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from . import _core, _worker

if TYPE_CHECKING:
    from ._zygote import World


def become_worker(world: World, worker_fd: int, stdout_fd: int, stderr_fd: int) -> NoReturn:
    """Runs a worker in this fresh child, and ends the process with its status."""

    def begin() -> int:
        signal.set_wakeup_fd(-1)
        os.setpgid(0, 0)
        _core.adopt_orphans()
        for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        worker = _arrange_descriptors(worker_fd, stdout_fd, stderr_fd)
        if world.program is not None:
            execute(world, world.program, worker)
        _arrange_world(world)
        gc.enable()
        return worker

    _end_as_worker(begin, world.runtime_env)


def live(request: Mapping[str, Any], worker_fd: int) -> NoReturn:
    """The same in the Python that `execute` began: `_enter` has arranged its path."""

    def begin() -> int:
        os.set_inheritable(worker_fd, False)
        _core.adopt_orphans()
        _worker.print_by_lines()
        _arrange_python(request["argv0"], request["warning"])
        return worker_fd

    _end_as_worker(begin, request["runtime_env"])


def _end_as_worker(begin: Callable[[], int], runtime_env: str) -> NoReturn:
    status = 1
    try:
        status = _worker.exit_status(_core.worker_main(begin(), runtime_env))
        _run_exit_handlers()
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                pass
        os._exit(status)


def execute(world: World, program: Mapping[str, Any], worker_fd: int) -> NoReturn:
    """Becomes the Python of an environment, which goes on in `live`."""
    from . import _enter

    request = {
        "added": world.added,
        "sys_path": world.driver_path,
        "inherits": program["inherits"],
        "argv0": world.argv0,
        "warning": world.warning,
        "runtime_env": world.runtime_env,
        "lent": _enter.lent(),
    }
    told = os.memfd_create("hoplo-world", 0)
    with open(told, "w", closefd=False) as file:
        json.dump(request, file)
    os.lseek(told, 0, os.SEEK_SET)
    os.set_inheritable(worker_fd, True)
    os.environ.update(program["variables"])
    _arrange_process(world)
    argv = [*program["argv"], _enter.__file__, str(told), str(worker_fd)]
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        print(f"{argv[0]} cannot be started: {error.strerror}", file=sys.stderr, flush=True)
        os._exit(1)


def _arrange_descriptors(worker_fd: int, stdout_fd: int, stderr_fd: int) -> int:
    """Leaves 0 to 2 and the worker's socket open, and nothing else; the socket's number."""
    # Above 2 first: a descriptor could have come in one of the places that are filled below.
    worker_fd, stdout_fd, stderr_fd = (
        os.dup(fd) if fd <= 2 else fd for fd in (worker_fd, stdout_fd, stderr_fd)
    )
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    for fd, place in ((null, 0), (stdout_fd, 1), (stderr_fd, 2)):
        os.dup2(fd, place)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != worker_fd:
            try:
                os.close(int(name))
            except OSError:
                pass  # the one that listed the folder
    os.set_inheritable(worker_fd, False)
    return worker_fd


def _arrange_world(world: World) -> None:
    _arrange_process(world)
    sys.path[:] = world.sys_path
    _arrange_python(world.argv0, world.warning)


def _arrange_process(world: World) -> None:
    for name, value in world.env.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    if world.folder is not None:
        try:
            os.chdir(world.folder)
        except OSError:
            pass  # the driver's folder is gone: its program did not need it either


def _arrange_python(argv0: str, warning: str) -> None:
    import faulthandler

    faulthandler.enable()
    if warning:
        sys.stderr.write(warning)
    sys.argv[:] = [argv0]
    sys.modules["__main__"] = types.ModuleType("__main__")
    importlib.invalidate_caches()
    try:
        with open("/proc/self/comm", "w") as comm:
            comm.write("hoplo:worker")
    except OSError:
        pass
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()  # the standard library's `random` does this by itself


def _run_exit_handlers() -> None:
    """What the program registered with `atexit`: `os._exit` skips it."""
    import atexit

    atexit._run_exitfuncs()
