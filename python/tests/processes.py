"""Processes that tests start, watch and kill, and notes that remote code leaves for the test.

Imported by workers and by other programs too: nothing here needs pytest.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import hoplo
from hoplo import _core

# ------------------------------------------------------------------------------- notes


class Notes:
    """Lines that any process may append and the test reads: who ran, how often, in which order."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Notes, (self.path,))

    def add(self, line: object = "") -> int:
        """How many lines there are now, this one included."""
        with open(self.path, "a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(f"{line}\n")
            file.flush()
            file.seek(0)
            return len(file.readlines())

    def lines(self) -> list[str]:
        try:
            with open(self.path) as file:
                return file.read().splitlines()
        except FileNotFoundError:
            return []

    def pids(self) -> list[int]:
        return [int(line) for line in self.lines()]


def forever() -> None:
    """Waits for ever, in a way that a signal handler can end."""
    import threading

    threading.Event().wait()


# ------------------------------------------------------------------------------- /proc


def alive(pid: int) -> bool:
    """Whether that process runs; one that has ended and is not waited for does not."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return text.rpartition(")")[2].split()[0] not in "ZX"


def cpu_s(pids: Iterable[int]) -> float:
    """The time of processors, in seconds, that the processes took so far together."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def rests(find: Callable[[], Iterable[int]]) -> Callable[[], bool]:
    """For `eventually`: whether the processes that `find` finds took no processor for 0.3 s."""
    seen, since = -1.0, time.monotonic()

    def are_quiet() -> bool:
        nonlocal seen, since
        now = cpu_s(find())
        if now != seen:
            seen, since = now, time.monotonic()
        return time.monotonic() - since > 0.3

    return are_quiet


def descendants(root: int | None = None) -> set[int]:
    """Processes that this one, or `root`, started, and those they started, that run now."""
    parents: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if fields[0] not in "ZX":
                parents.setdefault(int(fields[1]), []).append(int(entry))
    found: set[int] = set()
    waiting = [os.getpid() if root is None else root]
    while waiting:
        for child in parents.get(waiting.pop(), ()):
            found.add(child)
            waiting.append(child)
    return found


def parent_of(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[1])


def with_environment(name: str, value: str) -> set[int]:
    """Running processes that were started with this variable, or forked from such."""
    wanted = f"{name}={value}".encode()
    found = set()
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                variables = Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if wanted in variables and alive(int(entry)):
                found.add(int(entry))
    return found


def command_line(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def memory_maps(pid: int | str = "self") -> list[str]:
    return Path(f"/proc/{pid}/maps").read_text().splitlines()


def resident_bytes(pid: int | str = "self") -> int:
    """Of memory that is the process's own: without what it maps from files."""
    pages = Path(f"/proc/{pid}/statm").read_text().split()
    return (int(pages[1]) - int(pages[2])) * os.sysconf("SC_PAGE_SIZE")


def daemon_pid(of: int | None = None) -> int:
    """The daemon that this process, or `of`, started."""
    for pid in sorted(descendants(of)):
        words = command_line(pid)
        if len(words) > 1 and Path(words[0]).name.startswith("hoplo") and words[1] == "daemon":
            return pid
    raise AssertionError(f"no daemon among {[(p, command_line(p)) for p in descendants(of)]}")


def zygote_pid() -> int:
    """The child of the daemon that is no worker; workers of a dead zygote are its children too."""
    daemon = daemon_pid()
    workers = {row["pid"] for row in listed("workers")}
    (zygote,) = (pid for pid in descendants(daemon) - workers if parent_of(pid) == daemon)
    return zygote


# ------------------------------------------------------------------------------- the session


def listed(kind: str) -> list[dict[str, Any]]:
    """The rows of a query: tasks, actors, objects, workers."""
    import json

    rows = json.loads(_core.query(kind))
    if kind == "tasks":
        rows = rows["tasks"]
    assert isinstance(rows, list), rows
    return rows


def objects_left() -> list[dict[str, Any]]:
    """Objects that the node still has a record of, but for functions and handles of actors."""
    return [row for row in listed("objects") if row.get("state") != "handle"]


def nothing_is_stored() -> bool:
    return objects_left() == []


def died_of(error: BaseException, *words: str) -> str:
    """The text of an error, which must hold all of `words`."""
    text = str(error)
    for word in words:
        assert word in text, f"{word!r} is not in the text of {type(error).__name__}: {text}"
    return text


# ------------------------------------------------------------------------------- programs


class Program:
    """A driver in a process of its own, running `source`, which prints what the test waits for.

    Its sessions lie in `folder`, whose name is in the environment of all that it starts: so the
    test finds every process of it, orphans too.
    """

    PRELUDE = "import os, sys, signal, threading, time\nimport hoplo\nfrom processes import *\n"

    def __init__(
        self, folder: Path, source: str, *arguments: str, environment: dict[str, str] | None = None
    ) -> None:
        self.folder = folder
        tests = str(Path(__file__).parent)
        paths = [tests, str(Path(hoplo.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        self.environment = {
            **os.environ,
            "HOPLO_TMPDIR": str(folder),
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            **(environment or {}),
        }
        script = folder / f"program-{len(list(folder.glob('program-*')))}.py"
        script.write_text(self.PRELUDE + textwrap.dedent(source))
        self.errors = script.with_suffix(".err")
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-u", str(script), *arguments],
                env=self.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        self.pid = self.process.pid

    def line(self) -> str:
        """The next line that it prints."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            code = self.process.wait()
            raise AssertionError(f"it ended with {code} before the line came:\n{self.error_text()}")
        return line.rstrip("\n")

    def said(self, word: str) -> list[str]:
        """Reads until a line that begins with `word`; the other words of that line."""
        while True:
            words = self.line().split()
            if words and words[0] == word:
                return words[1:]

    def tell(self, line: str = "") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def kill(self, number: int = signal.SIGKILL) -> None:
        os.kill(self.pid, number)

    def end(self, within: float = 20.0) -> int:
        """Waits for its end; the exit status."""
        return self.process.wait(within)

    def rest(self, within: float = 20.0) -> str:
        """All that it still prints, until its end."""
        output, _ = self.process.communicate(timeout=within)
        return output

    def error_text(self) -> str:
        return self.errors.read_text()

    def processes(self) -> set[int]:
        """Everything that it started and that runs: daemon, zygotes, workers, their children."""
        mine = descendants(self.pid)
        if self.environment["HOPLO_TMPDIR"] == str(self.folder):
            mine |= with_environment("HOPLO_TMPDIR", str(self.folder))
        return mine - {self.pid}

    def stop(self) -> None:
        """For the end of a test: nothing of it stays, whatever went wrong."""
        for pid in {*self.processes(), self.pid}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


@contextlib.contextmanager
def program(folder: Path, source: str, *arguments: str, **options: Any) -> Iterator[Program]:
    """Runs a driver for as long as the block."""
    started = Program(folder, source, *arguments, **options)
    try:
        yield started
    finally:
        started.stop()


def session_folders(folder: Path) -> list[Path]:
    return sorted(folder.glob("session-*"))
