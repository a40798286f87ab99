"""Machines of a cluster: each with a home and a folder of its own, and what is started there.

    Machine.head()        starts a head; where others join it is kept in the `Joining` that it gives
    Machine.join(joining) starts a node of that head's cluster
    Machine.program(...)  starts a driver there
    Machine.end()         ends all of that, whatever state it is in

On one machine they are folders, and meet over loopback. In a `lab.Lab` each is in a network
namespace of its own: then `prefix` is what a command line begins with to run there.

Every process of a machine has the machine's folder in its environment, and is found by that:
whoever its parent is, and whether or not the one that started it still lives.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HOPLO = os.environ.get("HOPLO_BIN") or os.path.join(sysconfig.get_path("scripts"), "hoplo")
"""Beside the Python that runs this: command and package are of one build."""

JOIN = re.compile(r"hoplo start --address (\S+) --token-file (\S+)")

SECRETS = ("HOPLO_TOKEN", "HOPLO_ADDRESS", "HOPLO_TMPDIR")
"""Variables of whoever runs this that would lead a machine's commands elsewhere."""


class CommandError(AssertionError):
    """A command or program did not end well; the text says what it printed."""


def until(condition: Callable[[], Any], seconds: float = 20, what: str = "") -> Any:
    """The condition's first true value; an exception counts as "not yet"."""
    deadline = time.monotonic() + seconds
    pause = 0.001
    while True:
        try:
            answer = condition()
        except Exception as error:
            answer = error
        else:
            if answer:
                return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what or condition}; last: {answer!r}")
        time.sleep(pause)  # between two looks
        pause = min(2 * pause, 0.05)


# ------------------------------------------------------------------------------- processes


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def with_variable(name: str, value: str) -> set[int]:
    """The running processes that were started with this variable."""
    wanted = f"{name}={value}".encode()
    found = set()
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                variables = Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")
            except OSError:
                continue  # it has ended, or is not ours
            if wanted in variables and alive(int(entry)):
                found.add(int(entry))
    return found


def kill(pids: set[int]) -> None:
    """All at once: none of them sees that another one has died."""
    for how in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, how)


# ------------------------------------------------------------------------------- machines


@dataclass(frozen=True)
class Joining:
    """What somebody needs to join a head."""

    address: str
    token: Path

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])


class Program:
    """A driver in a process of its own. It prints JSON with `say(...)`, and hears what is told."""

    PRELUDE = (
        "import json, os, sys, time\n"
        "import hoplo\n"
        "def say(*values): print(json.dumps(values), flush=True)\n"
        "def heard(): return sys.stdin.readline().strip()\n"
    )

    def __init__(self, machine: Machine, source: str, *arguments: str, **more: str) -> None:
        number = len(list(machine.folder.glob("program-*.py")))
        self.script = machine.folder / f"program-{number}.py"
        self.script.write_text(self.PRELUDE + textwrap.dedent(source))
        self.errors = self.script.with_suffix(".err")
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                [*machine.prefix, sys.executable, "-u", str(self.script), *arguments],
                env=machine.environment(**more),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        self.pid = self.process.pid

    def heard(self) -> Any:
        """The next that it says: the value, or the list of values. What else it prints is passed
        over."""
        assert self.process.stdout is not None
        while line := self.process.stdout.readline():
            with contextlib.suppress(ValueError):
                values = json.loads(line)
                if isinstance(values, list):
                    return values[0] if len(values) == 1 else values
        code = self.process.wait()
        raise CommandError(f"{self.script} ended with {code}:\n{self.errors.read_text()}")

    def tell(self, line: str = "") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def end(self, seconds: float = 30) -> None:
        """Waits for its end, which is to be a good one."""
        if code := self.process.wait(seconds):
            raise CommandError(f"{self.script} ended with {code}:\n{self.errors.read_text()}")

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, how)

    def clear(self) -> None:
        self.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


@dataclass
class Machine:
    folder: Path
    """For sessions."""
    home: Path
    """For the token. Several machines may share one."""
    prefix: tuple[str, ...] = ()
    host: str | None = None
    """The address at which others reach it. Without one, nobody but this machine does."""
    cpus: float = 1
    programs: list[Program] = field(default_factory=list)
    started: subprocess.CompletedProcess[str] | None = None

    def environment(self, **more: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name not in SECRETS}
        return {**kept, "HOPLO_TMPDIR": str(self.folder), "HOME": str(self.home), **more}

    def command(
        self, *line: str, check: bool = True, seconds: float = 40, **more: str
    ) -> subprocess.CompletedProcess[str]:
        """Runs any command there."""
        done = subprocess.run(
            [*self.prefix, *line],
            env=self.environment(**more),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        if check and done.returncode != 0:
            text = f"{' '.join(line)} ended with {done.returncode}"
            raise CommandError(f"{text}:\n{done.stdout}\n{done.stderr}")
        return done

    def hoplo(self, *arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
        return self.command(HOPLO, *arguments, **more)

    # ------------------------------------------------------------------- nodes

    def head(self, *flags: str, port: int = 0) -> Joining:
        """Starts one. Port 0: any."""
        told = ["--host", self.host] if self.host else []
        out = self._start("--head", *told, "--port", str(port), *flags).stdout
        found = JOIN.search(out)
        assert found, out
        return Joining(found[1], Path(found[2]))

    def join(self, joining: Joining, *flags: str) -> None:
        """Returns once the node belongs to the cluster."""
        self._start("--address", joining.address, "--token-file", str(joining.token), *flags)

    def _start(self, *flags: str) -> subprocess.CompletedProcess[str]:
        own = [] if "--num-cpus" in flags else ["--num-cpus", f"{self.cpus:g}"]
        python = ("--python", sys.executable)
        self.started = self.hoplo("start", *flags, *own, *python)
        return self.started

    def leave(self) -> None:
        """Its node stops, and says so to the head."""
        self.hoplo("stop")

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.hoplo("status", "--json").stdout)
        return found

    @property
    def pid(self) -> int:
        """Of its daemon, which answers."""
        return int(self.status()["pid"])

    @property
    def node_id(self) -> str:
        return str(self.status()["node"])

    @property
    def session(self) -> Path:
        """The folder of the newest session: what `hoplo.init(address=...)` may be given."""
        return max(self.folder.glob("session-*"), key=lambda path: path.stat().st_mtime_ns)

    def nodes(self) -> dict[str, str]:
        """What is known here of each node."""
        return {node["NodeID"]: node["State"] for node in self.status()["nodes"]}

    def states(self) -> list[str]:
        return sorted(self.nodes().values())

    def listed(self, kind: str) -> list[dict[str, Any]]:
        """Rows of `hoplo list`."""
        rows = json.loads(self.hoplo("list", kind, "--json").stdout)
        found = rows["tasks"] if isinstance(rows, dict) else rows
        assert isinstance(found, list), rows
        return found

    def objects(self) -> list[dict[str, Any]]:
        """What the node has a record of, but for functions and handles of actors."""
        return [row for row in self.listed("objects") if row.get("state") != "handle"]

    # ------------------------------------------------------------------- drivers

    def program(self, source: str, *arguments: str, **more: str) -> Program:
        """Starts a driver there; it ends with the machine, if not before."""
        self.programs.append(Program(self, source, *arguments, **more))
        return self.programs[-1]

    def run(self, source: str, *arguments: str, seconds: float = 60, **more: str) -> Any:
        """Runs a driver there until its end; the values that it said, or the one value."""
        program = self.program(source, *arguments, **more)
        assert program.process.stdin is not None
        program.process.stdin.close()
        program.process.stdin = None
        try:
            out, _ = program.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            program.kill()
            raise CommandError(f"{program.script} took over {seconds} s") from None
        if program.process.returncode != 0:
            code, text = program.process.returncode, program.errors.read_text()
            raise CommandError(f"{program.script} ended with {code}:\n{out}\n{text}")
        said = []
        for line in out.splitlines():
            with contextlib.suppress(ValueError):
                values = json.loads(line)
                said.append(values[0] if isinstance(values, list) and len(values) == 1 else values)
        return said[0] if len(said) == 1 else said

    # ------------------------------------------------------------------- the end

    def processes(self) -> set[int]:
        """All that run there."""
        return with_variable("HOPLO_TMPDIR", str(self.folder))

    def kill(self) -> None:
        """As if its power were cut: all of its processes at once."""
        kill(self.processes())

    def end(self) -> None:
        """Nothing of it runs any more. First asked, so that what is left then is a fault."""
        for program in self.programs:
            program.clear()
        with contextlib.suppress(CommandError, subprocess.TimeoutExpired):
            self.hoplo("stop", "--all", seconds=20, check=False)

    def accusations(self) -> list[str]:
        """Lines in which its daemons say that another node broke a protocol."""
        logs = sorted(self.folder.rglob("daemon.log"))
        lines = (line for log in logs for line in log.read_text().splitlines())
        return [line for line in lines if "broke the protocol of references" in line]

    def clear(self) -> None:
        """Whatever is left is killed, stopped processes too."""
        for program in self.programs:
            program.clear()
        deadline = time.monotonic() + 10
        while (left := self.processes()) and time.monotonic() < deadline:
            kill(left)
            time.sleep(0.01)  # the kernel takes them away
