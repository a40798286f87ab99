"""A cluster of machines that are folders, with the test's own process as a driver on the first one.

    far.ids[0]        the head's node, on which the driver is; 1 and 2: the others
    far.on(1)         the strategy that sends a task or actor to node 1

Tests of one module share a `far`. Who kills something takes a `make_far`. A remote function that
many use is here, so that workers import it.
"""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from machines import Machine, alive, until

import hoplo
from hoplo.util.scheduling_strategies import NodeAffinitySchedulingStrategy

MIB = 1 << 20


class Far:
    connected: ClassVar[str] = ""
    """The session that this process joined last."""

    def __init__(self, folder: Path, flags: Sequence[Sequence[str]], cpus: float) -> None:
        self.folder = folder
        self.machines: list[Machine] = []
        self.killed: set[int] = set()
        """Nodes that were: what they leave is for the next daemon there to sweep."""
        for number, _ in enumerate(flags):
            self._machine(number, cpus)
        self.joining = self.machines[0].head(*flags[0])
        for machine, more in zip(self.machines[1:], flags[1:], strict=True):
            machine.join(self.joining, *more)
        until(lambda: len(self.machines[0].nodes()) == len(flags), what="all nodes are known")
        self.ids = [machine.node_id for machine in self.machines]

    def _machine(self, number: int, cpus: float) -> Machine:
        folder = self.folder / str(number)
        folder.mkdir(mode=0o700)
        self.machines.append(Machine(folder, folder, cpus=cpus))
        return self.machines[-1]

    def add(self, *flags: str, cpus: float = 2) -> int:
        """One more node joins; its number."""
        number = len(self.machines)
        machine = self._machine(number, cpus)
        machine.join(self.joining, *flags)
        self.ids.append(machine.node_id)
        return number

    def head_again(self, *flags: str) -> None:
        """The head, which has ended, is started again where it was."""
        self.machines[0].head(*flags, port=self.joining.port)

    def connect(self) -> None:
        """This process becomes a driver on the head's node, if it is not, and nobody else's."""
        session = str(self.machines[0].session)
        if hoplo.is_initialized() and self.connected != session:
            hoplo.shutdown()
        if not hoplo.is_initialized():
            hoplo.init(address=session)
            Far.connected = session

    def on(self, number: int, soft: bool = False) -> NodeAffinitySchedulingStrategy:
        return NodeAffinitySchedulingStrategy(self.ids[number], soft=soft)

    def number(self, node_id: str) -> int:
        return self.ids.index(node_id)

    def objects(self) -> list[dict[str, Any]]:
        """Of all nodes together; none of a node that was killed."""
        live = [m for number, m in enumerate(self.machines) if number not in self.killed]
        return [row for machine in live for row in machine.objects()]

    def until_no_objects(self, seconds: float = 10) -> None:
        gc.collect()
        until(lambda: not self.objects(), seconds, "no node has a record of an object")

    def kill_node(self, number: int) -> None:
        """As if its power were cut."""
        self.killed.add(number)
        self.machines[number].kill()

    def kill_daemon(self, number: int) -> None:
        self.killed.add(number)
        pid = self.machines[number].pid
        os.kill(pid, signal.SIGKILL)
        until(lambda: not alive(pid))

    def end(self) -> None:
        """All of it, and nothing may be left by then."""
        try:
            if self.connected == str(self.machines[0].session):
                hoplo.shutdown()
            gc.collect()
            # The head last: whose head has stopped stops as well.
            for machine in reversed(self.machines):
                machine.end()
                assert machine.accusations()[:3] == []
            for number, machine in enumerate(self.machines):
                if number not in self.killed:
                    until(lambda m=machine: not m.processes(), 10, f"all of node {number} ended")
        finally:
            for machine in self.machines:
                machine.clear()
            shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def cluster(
    nodes: int = 3, cpus: float = 2, flags: Sequence[Sequence[str]] | None = None
) -> Iterator[Far]:
    """`flags` for each node."""
    folder = Path(tempfile.mkdtemp(prefix="hoplo-far-"))
    far = None
    try:
        far = Far(folder, flags or [()] * nodes, cpus)
        far.connect()
        yield far
    finally:
        if far is None:
            for path in folder.iterdir():
                Machine(path, path).clear()
            shutil.rmtree(folder, ignore_errors=True)
        else:
            far.end()


# ------------------------------------------------------------------------------- remote code


def here() -> str:
    return hoplo.get_runtime_context().get_node_id()


@hoplo.remote
def where(*_: Any) -> str:
    """The node that it runs on."""
    return here()


@hoplo.remote
def echo(value: Any) -> Any:
    return value


@hoplo.remote
def total(*values: Any) -> Any:
    return sum(values)


@hoplo.remote
def ones(nbytes: int) -> np.ndarray[Any, Any]:
    return np.ones(nbytes, np.uint8)


@hoplo.remote
def count_bytes(array: np.ndarray[Any, Any]) -> int:
    """All of them, so that a byte that is wrong or missing shows."""
    return int(array.sum(dtype=np.int64))


@hoplo.remote
def dies() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@hoplo.remote
def busy(seconds: float) -> str:
    """Keeps its CPU for so long, as a computation does."""
    until_then = time.monotonic() + seconds
    while time.monotonic() < until_then:
        sum(range(1000))
    return here()


@hoplo.remote
class Counter:
    def __init__(self, start: int = 0) -> None:
        self.count = start

    def add(self, amount: int = 1) -> int:
        self.count += amount
        return self.count

    def where(self) -> str:
        return here()

    def pid(self) -> int:
        return os.getpid()


@hoplo.remote
class Keeper:
    """Keeps what it is given: a ref that it borrowed, for as long as it lives or is told."""

    def __init__(self) -> None:
        self.kept: Any = None

    def keep(self, boxed: Any) -> str:
        self.kept = boxed
        return here()

    def read(self) -> Any:
        return hoplo.get(self.kept[0])

    def drop(self) -> None:
        self.kept = None


@hoplo.remote
class Ledger:
    """With checkpoints. Its state is the list of what it was told: what ran, and in which order."""

    def __init__(self) -> None:
        self.entries: list[Any] = []
        self.runs = 0

    def checkpoint(self) -> Any:
        return self.entries

    def restore(self, state: Any) -> None:
        self.entries = state

    def add(self, entry: Any) -> int:
        """At which place it stands."""
        self.runs += 1
        self.entries.append(entry)
        return len(self.entries)

    def add_sum(self, array: Any) -> int:
        return self.add(float(array.sum()))

    def fill(self, number: int, nbytes: int) -> None:
        self.entries.append(np.full(nbytes, number, np.uint8))

    def sizes(self) -> list[int]:
        return [entry.nbytes for entry in self.entries]

    def all(self) -> Any:
        return self.entries

    def length(self) -> int:
        return len(self.entries)

    def runs_here(self) -> int:
        """Calls of `add` that this process ran, again or for the first time."""
        return self.runs

    def where(self) -> str:
        return here()

    def pid(self) -> int:
        return os.getpid()
