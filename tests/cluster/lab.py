"""A network of machines on this one: namespaces, joined by a bridge. Needs root.

    node 1: eth0 10.199.0.1 --veth-- port1 |
    node 2: eth0 10.199.0.2 --veth-- port2 | bridge, in a namespace of its own
    node 3: eth0 10.199.0.3 --veth-- port3 |

    with Lab(nodes=3) as lab:
        head, *others = lab.machines
        joining = head.head()
        for machine in others:
            machine.join(joining)
        lab.cut(2)          # nothing comes to node 2 or from it, and nobody is told
        lab.heal(2)

With `rate` (bits a second) both directions of every link are shaped: a full-duplex switch that
never blocks. What is sent is shaped at `eth0`, what is received at the bridge's port.

Names hold the pid of the process that made the lab, and when it began, so that labs run side by
side, and the next one takes away what a run that was killed has left: its processes, its
namespaces, its folder.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from machines import Machine, kill

NAMESPACES = Path("/run/netns")
PREFIX = "hlab-"
MTU = 9000
BURSTS = ((300e6, 128 << 10), (float("inf"), 256 << 10))
"""By rate: below this, that many bytes. Segments larger than a bucket are cut in software."""

_serials = itertools.count(1)


class NoLab(Exception):
    """This machine has no network namespaces for us; the text says why."""


def why_not() -> str | None:
    """Why no lab can be made here; None if one can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program in ("ip", "tc", "nsenter", "unshare"):
        if shutil.which(program) is None:
            return f"the program {program} is not installed (Debian: iproute2, util-linux)"
    name = f"{PREFIX}{_mark()}-0-try"
    done = _ip("netns", "add", name, check=False)
    if done.returncode != 0:
        return f"the kernel gives no network namespace: {done.stderr.strip()}"
    _ip("netns", "del", name, check=False)
    return None


class Lab:
    def __init__(
        self,
        nodes: int = 3,
        cpus: float = 1,
        rate: float | None = None,
        home: bool = False,
        one_name: bool = False,
        disk: int | None = None,
    ) -> None:
        """`rate` in bits a second. With `home`, all machines share one; with `one_name`, they have
        the same host name; with `disk`, each has a disk of its own of so many bytes."""
        if why := why_not():
            raise NoLab(why)
        sweep()
        self.name = f"{PREFIX}{_mark()}-{next(_serials)}"
        self.rate = rate
        self._one_name = one_name
        self._disk = disk
        self.machines: list[Machine] = []
        self._made: list[str] = []
        self._ended = False
        atexit.register(self.end)
        try:
            # Paths of sockets are short.
            self.folder = Path(tempfile.gettempdir()) / self.name
            self.folder.mkdir(mode=0o700)
            self._make(nodes, cpus, home)
        except BaseException:
            self.end()
            raise

    def __enter__(self) -> Lab:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    # ------------------------------------------------------------------- what is there

    def __getitem__(self, number: int) -> Machine:
        """By its number, from 1, as in its address."""
        return self.machines[number - 1]

    @staticmethod
    def address(number: int) -> str:
        return f"10.199.0.{number}"

    def namespace(self, number: int) -> str:
        return f"{self.name}-{number}"

    def cluster(self, *flags: str) -> list[Machine]:
        """All of them as one cluster, the first one its head. `flags` go to all."""
        head, *others = self.machines
        joining = head.head(*flags)
        for machine in others:
            machine.join(joining, *flags)
        return self.machines

    def run(self, number: int, source: str, *arguments: str, **more: Any) -> Any:
        """A driver on that machine; what it said."""
        return self[number].run(source, *arguments, **more)

    # ------------------------------------------------------------------- what befalls them

    def shape(self, number: int, rate: float) -> None:
        """From now on its link carries so many bits a second each way."""
        _shape(self.namespace(number), "eth0", rate)
        _shape(self._bridge, f"port{number}", rate)

    def cut(self, number: int) -> None:
        """Its cable is pulled, somewhere behind the first switch: neither end is told."""
        _run(self.cut_line(number))

    def heal(self, number: int) -> None:
        _run(self.heal_line(number))

    def cut_line(self, number: int) -> list[str]:
        """The command that cuts it, for who must do it at once."""
        return ["ip", "-n", self._bridge, "link", "set", f"port{number}", "nomaster"]

    def heal_line(self, number: int) -> list[str]:
        return ["ip", "-n", self._bridge, "link", "set", f"port{number}", "master", "bridge"]

    @contextlib.contextmanager
    def without(self, number: int) -> Iterator[None]:
        """Cut for as long as the block."""
        self.cut(number)
        try:
            yield
        finally:
            self.heal(number)

    @contextlib.contextmanager
    def one_way(self, *lost: tuple[int, int]) -> Iterator[None]:
        """For as long as the block what the first of each pair sends the second one is lost, and
        what the second one sends arrives. Neither end is told."""
        for sender, receiver in lost:
            # The address of no machine: no port of the switch takes it.
            wrong = ("lladdr", "02:00:00:00:00:99", "nud", "permanent")
            self._neighbour("replace", sender, receiver, *wrong)
        try:
            yield
        finally:
            for sender, receiver in lost:
                self._neighbour("del", sender, receiver)

    def _neighbour(self, what: str, sender: int, receiver: int, *how: str) -> None:
        line = ("neigh", what, self.address(receiver), *how, "dev", "eth0")
        _ip("-n", self.namespace(sender), *line)

    @contextlib.contextmanager
    def full_disk(self, number: int) -> Iterator[None]:
        """For as long as the block no byte more can be written to its disk."""
        assert self._disk, "the machines share the disk of this one"
        folder = self[number].folder
        filling = folder / "filling"
        try:
            with filling.open("wb") as file:
                while left := (disk := os.statvfs(folder)).f_bavail * disk.f_frsize:
                    # Else somebody was faster.
                    with contextlib.suppress(OSError):
                        os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), left)
            yield
        finally:
            filling.unlink(missing_ok=True)

    @staticmethod
    def stop(pid: int) -> None:
        os.kill(pid, signal.SIGSTOP)

    @staticmethod
    def cont(pid: int) -> None:
        os.kill(pid, signal.SIGCONT)

    @staticmethod
    def kill(pid: int) -> None:
        os.kill(pid, signal.SIGKILL)

    def moved(self, number: int) -> dict[str, int]:
        """Bytes and packets that its link has carried: rx, tx, seen from the machine."""
        text = _ip("-n", self._bridge, "-s", "-j", "link", "show", f"port{number}").stdout
        stats = json.loads(text)[0]["stats64"]
        return {
            "rx_bytes": stats["tx"]["bytes"],
            "tx_bytes": stats["rx"]["bytes"],
            "rx_packets": stats["tx"]["packets"],
            "tx_packets": stats["rx"]["packets"],
        }

    def processes(self, *numbers: int) -> set[int]:
        """All that run in its namespaces, or at these machines."""
        return _inside([self.namespace(number) for number in numbers] or self._made)

    # ------------------------------------------------------------------- making and ending

    @property
    def _bridge(self) -> str:
        return f"{self.name}-0"

    def _make(self, nodes: int, cpus: float, home: bool) -> None:
        self._add(self._bridge)
        # No spanning tree and no delay: a port that is back works at once.
        _ip("-n", self._bridge, "link", "add", "bridge", "type", "bridge", "forward_delay", "0")
        _ip("-n", self._bridge, "link", "set", "bridge", "mtu", str(MTU), "up")
        for number in range(1, nodes + 1):
            self._add_machine(number, cpus, home)

    def _add(self, namespace: str) -> None:
        self._made.append(namespace)
        _ip("netns", "add", namespace)
        _ip("-n", namespace, "link", "set", "lo", "up")

    def _add_machine(self, number: int, cpus: float, home: bool) -> None:
        inside, port = self.namespace(number), f"port{number}"
        self._add(inside)
        veth = ("link", "add", "eth0", "mtu", str(MTU), "type", "veth")
        _ip("-n", inside, *veth, "peer", "name", port, "mtu", str(MTU), "netns", self._bridge)
        _ip("-n", self._bridge, "link", "set", port, "master", "bridge", "up")
        _ip("-n", inside, "address", "add", f"{self.address(number)}/24", "dev", "eth0")
        _ip("-n", inside, "link", "set", "eth0", "up")
        # The same for every program: what the kernel's default is (bbr) differs from host to host.
        cubic = ("dev", "eth0", "src", self.address(number), "congctl", "cubic")
        _ip("-n", inside, "route", "replace", "10.199.0.0/24", *cubic)
        if self.rate:
            self.shape(number, self.rate)
        folder = self.folder / str(number)
        own = self.folder / "home" if home else folder / "home"
        folder.mkdir(mode=0o700)
        if self._disk:
            size = f"size={self._disk},mode=700"
            _run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(folder)])
        own.mkdir(mode=0o700, exist_ok=True)
        # All of these replace themselves, so that the pid is the program's.
        name = "node" if self._one_name else f"node{number}"
        named = f'echo {name} > /proc/sys/kernel/hostname && exec "$@"'
        enter = ("nsenter", f"--net={NAMESPACES / inside}", "--", "unshare", "--uts")
        prefix = (*enter, "sh", "-c", named, "sh")
        self.machines.append(Machine(folder, own, prefix, self.address(number), cpus))

    def end(self) -> None:
        """Nothing of it is left: no process, no namespace, no folder. May be called again."""
        if self._ended:
            return
        with _undisturbed():
            for program in (program for machine in self.machines for program in machine.programs):
                program.kill()
            accused = [line for machine in self.machines for line in machine.accusations()]
            _take_away(self._made, self.folder)
            for program in (program for machine in self.machines for program in machine.programs):
                program.clear()
            self._ended = True
            atexit.unregister(self.end)
        assert accused[:3] == []


# ------------------------------------------------------------------------------- left-overs


def sweep() -> list[str]:
    """Takes away labs whose process is gone; the namespaces that they had left."""
    left: dict[str, list[str]] = {}
    names = [path.name for path in NAMESPACES.glob(f"{PREFIX}*")]
    folders = [path.name for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*")]
    for name in names + folders:
        parts = name[len(PREFIX) :].split("-")
        if len(parts) >= 3 and not _is_alive(*parts[:2]):
            lab = PREFIX + "-".join(parts[:3])
            left.setdefault(lab, []).extend([name] if name in names else [])
    for lab, namespaces in left.items():
        _take_away(namespaces, Path(tempfile.gettempdir()) / lab)
    return [name for namespaces in left.values() for name in namespaces]


def _take_away(namespaces: list[str], folder: Path) -> None:
    """Each step by itself: none that fails keeps the others from being taken."""
    deadline = time.monotonic() + 10
    while (left := _inside(namespaces)) and time.monotonic() < deadline:
        kill(left)
        time.sleep(0.005)  # the kernel takes them away
    for namespace in namespaces:
        with contextlib.suppress(OSError):
            _ip("netns", "del", namespace, check=False)
    for machine in folder.glob("*"):
        if machine.is_mount():
            with contextlib.suppress(OSError):
                _run(["umount", "--lazy", str(machine)], check=False)
    shutil.rmtree(folder, ignore_errors=True)


def _inside(namespaces: list[str]) -> set[int]:
    """The processes in these namespaces, stopped ones too."""
    wanted = set()
    for name in namespaces:
        with contextlib.suppress(OSError):
            wanted.add((NAMESPACES / name).stat().st_ino)
    found = set()
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{entry}/ns/net").st_ino in wanted:
                    found.add(int(entry))
    return found


def _mark() -> str:
    """This process, and no later one with its pid."""
    return f"{os.getpid()}-{_began(os.getpid())}"


def _began(pid: int) -> str:
    """When, in ticks since the machine started."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


def _is_alive(pid: str, began: str) -> bool:
    try:
        return _began(int(pid)) == began
    except (OSError, ValueError, IndexError):
        return False


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """An interrupt comes after the block: a second Ctrl-C leaves nothing behind either."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)
    came: list[int] = []
    before: dict[signal.Signals, Callable[..., Any] | int | None] = {}
    for number in numbers:
        before[number] = signal.signal(number, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            # None: it was set by other than Python, and cannot be set again.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        for number in came:
            os.kill(os.getpid(), number)


def _shape(namespace: str, device: str, rate: float) -> None:
    burst = next(size for below, size in BURSTS if rate < below)
    shape = ("rate", f"{rate:.0f}bit", "burst", str(burst), "latency", "30ms")
    line = ["tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", "tbf", *shape]
    subprocess.run(line, check=True, capture_output=True, text=True)


def _ip(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return _run(["ip", *arguments], check)


def _run(line: list[str], check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        raise NoLab(f"{' '.join(line)}: {done.stderr.strip()}")
    return done
