"""The zygote: a process with one thread that has imported what workers need, and forks them.

Started by the node's daemon, which calls what `main` returns, with one argument: FD, a unix stream
socket. Each message is a little-endian u32 length and that many bytes of JSON, either way:

    daemon                                                 zygote
    {"op":"fork","id":1,"env":{},"cwd":"/w",          ->
     "sys_path":[],"argv0":"x.py","python":"3.12",
     "clustered":true,"runtime_env":null,
     "program":{"argv":["python"],"variables":{},
     "inherits":true}}
      with 3 descriptors: worker socket, stdout, stderr
                                                      <-   {"op":"forked","id":1,"pid":4242}
                                                       or  {"op":"failed","id":1,"error":"..."}
                                                       or  {"op":"refused","id":1,"error":"..."}
    {"op":"preload","modules":["numpy"]}              ->   (no answer)
                                                      <-   {"op":"exited","pid":4242,"status":-9}
    end of file: the daemon is gone; workers exit by themselves when their own sockets close, and
     the zygote when they have, and nothing is left of what they started

`env` holds variables to set, or with null to unset; `runtime_env` is the object, or the canonical
JSON text, of `hoplo.runtime_env`, applied on top: one that cannot be made is refused. Folders and
modules of one that names packages are left to the worker (see `_packages`). With a `program`, the
worker does not stay what was forked: it executes that Python (see `_enter`), and keeps its pid,
its group and its descriptors. `python` is the
version of the driver, and workers of another one are refused. In a cluster the driver's folder may
be on its machine only: then the first worker that misses it says so. A status is an exit code, or
minus a signal.

What a worker starts ends with it. A worker leads a process group, and adopts those of its
descendants whose parents end; when it ends itself, the zygote kills the group and adopts the rest.
So every child of the zygote is a worker, or what a dead worker left behind, whatever session or
group that is in by then: it is killed, and so is what it leaves behind in turn.

A program's first task waits for this process. So what few first tasks want is imported when nothing
is asked, and the garbage of imports is not collected.
"""

from __future__ import annotations

import functools
import gc
import importlib
import json
import os
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import cloudpickle  # noqa: F401 - every worker needs it

import hoplo  # noqa: F401 - likewise
from hoplo import _core, _packages, _texts, _threads, _worker
from hoplo._worker_process import become_worker

_IMPORTED_WHEN_IDLE = ["hoplo._serialization", "hoplo._errors"]
_LENGTH = struct.Struct("<I")
_MESSAGE_BYTES_MAX = 1 << 20
_DESCRIPTORS = 3
_EXIT_GRACE_SECONDS = 1.0
_MISSED_MAX = 1000


class Zygote:
    """Serves one daemon, until it closes its end."""

    def __init__(self, daemon: socket.socket) -> None:
        self._daemon = daemon
        self._bytes = bytearray()
        self._descriptors: list[int] = []
        self._workers: set[int] = set()
        self._missed: set[str] = set()
        self._child_ended, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def serve(self) -> None:
        """Answers until end of file."""
        later = list(_IMPORTED_WHEN_IDLE)
        while True:
            watched = [self._daemon.fileno(), self._child_ended]
            ready, _, _ = select.select(watched, [], [], 0 if later else None)
            if not ready:
                preload([later.pop()])
            if self._child_ended in ready:
                os.read(self._child_ended, 4096)
                self._report_exits()
            if self._daemon.fileno() in ready and not self._read():
                return

    def end_workers(self) -> None:
        """The daemon is gone: waits a moment for the workers to see it, then kills what is left."""
        deadline = time.monotonic() + _EXIT_GRACE_SECONDS
        while self._workers:
            left = max(0.0, deadline - time.monotonic())
            if not select.select([self._child_ended], [], [], left)[0]:
                break
            os.read(self._child_ended, 4096)
            self._reap()
        self._workers.clear()
        # Whose end we hear of has left us its children. What runs as another user may stay.
        deadline = time.monotonic() + _EXIT_GRACE_SECONDS
        while self._end_strays() and (left := deadline - time.monotonic()) > 0:
            if select.select([self._child_ended], [], [], left)[0]:
                os.read(self._child_ended, 4096)
            self._reap()

    def _read(self) -> bool:
        """Reads what is there and carries out the whole messages of it; False at end of file."""
        data, descriptors, flags, _ = socket.recv_fds(
            self._daemon, 1 << 16, 16 * _DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
        )
        self._descriptors += descriptors
        if not data or flags & socket.MSG_CTRUNC:
            return False
        self._bytes += data
        while len(self._bytes) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._bytes)
            if length > _MESSAGE_BYTES_MAX:
                return False
            end = _LENGTH.size + length
            if len(self._bytes) < end:
                break
            request = json.loads(bytes(self._bytes[_LENGTH.size : end]))
            del self._bytes[:end]
            self._carry_out(request)
        return True

    def _carry_out(self, request: dict[str, Any]) -> None:
        if request["op"] == "preload":
            preload(request["modules"])
        elif request["op"] == "fork":
            self._fork(request)

    def _fork(self, request: dict[str, Any]) -> None:
        descriptors = self._descriptors[:_DESCRIPTORS]
        del self._descriptors[:_DESCRIPTORS]
        try:
            if len(descriptors) != _DESCRIPTORS:
                raise ValueError(f"a fork takes {_DESCRIPTORS} descriptors, not {len(descriptors)}")
            world = World(request)
            self._note_what_is_missing(request, world)
            pid = os.fork()
        except Exception as error:
            # Whatever is wrong with one request: the next one finds this process alive.
            text = str(error) or type(error).__name__
            op = "refused" if isinstance(error, BadEnvironment) else "failed"
            self._send({"op": op, "id": request["id"], "error": text})
        else:
            if pid == 0:
                raise Forked(world, *descriptors)
            self._workers.add(pid)
            self._send({"op": "forked", "id": request["id"], "pid": pid})
        for descriptor in descriptors:
            os.close(descriptor)

    def _note_what_is_missing(self, request: Mapping[str, Any], world: World) -> None:
        """The first worker that does not find the driver's folder here is to say so."""
        folder = world.driver_folder
        if not request.get("clustered") or world.has_folder or folder in self._missed:
            return
        if folder and not os.path.isdir(folder):
            if len(self._missed) < _MISSED_MAX:
                self._missed.add(folder)
            world.warning = (
                f"hoplo: the program's folder {folder} is not on this machine "
                f"({socket.gethostname()}): workers start in {os.getcwd()}, and do not find "
                f"modules that lie beside the program. Send it with "
                f"hoplo.init(runtime_env={{'working_dir': '.'}})\n"
            )

    def _report_exits(self) -> None:
        ended = self._reap()
        for pid, status in ended.items():
            self._send({"op": "exited", "pid": pid, "status": status})
        if ended:
            self._end_strays()

    def _reap(self) -> dict[int, int]:
        """Children that ended: the workers among them, with their statuses."""
        ended: dict[int, int] = {}
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return ended
            if found is None:
                return ended
            pid = found.si_pid
            if pid in self._workers:
                # Before it is waited for: until then its number is nobody else's.
                _kill_group(pid)
            _, status = os.waitpid(pid, 0)
            if pid in self._workers:
                self._workers.discard(pid)
                ended[pid] = os.waitstatus_to_exitcode(status)

    def _end_strays(self) -> bool:
        """Kills children that are no workers; whether there were any."""
        strays = _children() - self._workers
        for pid in strays:
            _kill_group(pid)
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue  # it ended, or runs as another user: then it is not ours to end
        return bool(strays)

    def _send(self, message: dict[str, Any]) -> None:
        data = json.dumps(message).encode()
        self._daemon.sendall(_LENGTH.pack(len(data)) + data)


class Forked(BaseException):
    """Raised in a forked child: it leaves the zygote's frames, which say nothing of a worker."""


def _kill_group(leader: int) -> None:
    try:
        if os.getpgid(leader) == leader:
            os.killpg(leader, signal.SIGKILL)
    except OSError:
        pass  # nobody in it is left, or may be killed by us


def _children() -> set[int]:
    """Processes whose parent this one is."""
    me = os.getpid()
    try:
        with open(f"/proc/self/task/{me}/children") as file:
            return {int(pid) for pid in file.read().split()}
    except OSError:
        pass  # not every kernel has it
    found = set()
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", "rb") as file:
                    parent = file.read().rpartition(b")")[2].split()[1]
            except OSError:
                continue
            if int(parent) == me:
                found.add(int(entry))
    return found


class BadEnvironment(Exception):
    """The `runtime_env` that a worker is to have cannot be made."""


class World:
    """What a worker finds around itself. Checked here, so that a bad one is refused, not forked."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        own = request.get("runtime_env") or {}
        if isinstance(own, str):
            own = json.loads(own)
        python = request.get("python") or _texts.PYTHON
        if python != _texts.PYTHON:
            raise BadEnvironment(
                f"runtime_env: the program runs on Python {python}, and workers of this node "
                f"({socket.gethostname()}) on Python {_texts.PYTHON}, which cannot read what it "
                f"pickles: start the node with Python {python}, or the program with {_texts.PYTHON}"
            )
        self.warning = ""
        self.runtime_env = json.dumps({name: part for name, part in own.items() if part})
        received, expanded = _texts.received, _texts.expanded
        variables = own.get("env_vars", {}).items()
        self.env: dict[str, str | None] = {
            **request.get("env", {}),
            **{received(name): expanded(received(value)) for name, value in variables},
        }
        working_dir = received(own.get("working_dir") or "") or None
        added = [received(entry) for entry in own.get("py_modules", ())]
        self.has_folder = working_dir is not None
        self.driver_folder = received(request.get("cwd", ""))
        if any(map(_packages.Package.of, [*added, working_dir or ""])):
            working_dir, added = None, []  # the worker's to apply, when it has unpacked them
        self.folder: str | None = working_dir or self.driver_folder or None
        if working_dir is not None and not os.path.isdir(working_dir):
            raise BadEnvironment(f"runtime_env: working_dir {working_dir!r} is not a folder")
        for entry in added:
            if not os.path.exists(entry):
                raise BadEnvironment(f"runtime_env: py_modules {entry!r} does not exist")
        if working_dir is not None:
            added.insert(0, working_dir)
        self.added = added
        self.driver_path: list[str] = [*map(received, request.get("sys_path", sys.path))]
        self.sys_path: list[str] = [*added, *self.driver_path]
        self.program: Mapping[str, Any] | None = request.get("program")
        self.argv0: str = request.get("argv0", "")


def preload(modules: list[str]) -> None:
    """Imports modules that workers are likely to want; what cannot be imported is left to them."""
    with _threads.sparing():
        for name in modules:
            try:
                importlib.import_module(name)
            except Exception:
                continue
    # Workers' collectors keep their hands off what exists now: forks go on sharing its pages.
    gc.freeze()


def main() -> Callable[[], NoReturn]:
    """Serves the daemon at the other end of the descriptor named on the command line.

    Returns what is to be called next: the end, or in a forked child its life as a worker.
    """
    daemon = socket.socket(fileno=int(sys.argv[1]))
    daemon.set_inheritable(False)
    try:
        os.setsid()
    except PermissionError:
        pass  # the daemon did it
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _core.adopt_orphans()
    # Before a module that is imported here takes the streams for its log.
    _worker.print_by_lines()
    gc.freeze()
    zygote = Zygote(daemon)
    try:
        zygote.serve()
    except (BrokenPipeError, ConnectionResetError):
        pass
    except Forked as forked:
        return functools.partial(become_worker, *forked.args)
    zygote.end_workers()
    return functools.partial(os._exit, 0)


if __name__ == "__main__":
    main()()
