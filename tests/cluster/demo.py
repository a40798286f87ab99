"""A cluster to look at: a head and three nodes, three programs on all of them, and who ran what.

    python tests/cluster/demo.py [--seconds N] [--loopback]        (or: make demo-cluster)

With root each node is in a network namespace of its own; else they are four folders, and meet over
loopback. While the programs run, a table shows every node: its processes, their CPU time, and what
its link moves. Ctrl-C ends all of it at any time; nothing is left.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import lab
from machines import Machine, until

TREE = Path(__file__).resolve().parents[2]
NODES = 4

PROGRAMS = (
    ("learns to balance a pole on four nodes", "train_policy.py"),
    ("sorts 16 million numbers", "distributed_sort.py", "16"),
    ("moves a gigabyte", "move_a_gigabyte.py", "1000"),
)


@contextlib.contextmanager
def machines(loopback: bool) -> Iterator[tuple[list[Machine], lab.Lab | None]]:
    """Four of them, not started."""
    why = lab.why_not()
    if not loopback and why is None:
        with lab.Lab(nodes=NODES) as network:
            yield network.machines, network
        return
    print(f"(four nodes on loopback: {why or 'as told'})")
    folder = Path(tempfile.mkdtemp(prefix="hoplo-demo-"))
    made = []
    try:
        for number in range(1, NODES + 1):
            own = folder / str(number)
            own.mkdir(mode=0o700)
            # The head listens at its own address, which is one of loopback as well.
            host = f"127.0.0.{number}" if number == 1 else None
            made.append(Machine(own, own, host=host))
        yield made, None
    finally:
        for machine in reversed(made):
            machine.end()
        for machine in made:
            machine.clear()
        shutil.rmtree(folder, ignore_errors=True)


# ------------------------------------------------------------------------------- the table


class Table:
    """Rows of nodes, drawn again in place twice a second; on no terminal, only at the end."""

    def __init__(self, made: list[Machine], network: lab.Lab | None, ids: list[str]) -> None:
        self.made, self.network, self.ids = made, network, ids
        self.live = sys.stdout.isatty()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._draw, daemon=True)
        self._lines = 0
        # Of each process that was seen: those that end meanwhile count as well.
        self._cpu: list[dict[int, float]] = [cpu_seconds(machine) for machine in made]
        self._cpu_before = [sum(used.values()) for used in self._cpu]
        self._moved_before = [self._moved(number) for number in range(len(made))]
        self._workers: list[set[int]] = [set() for _ in made]

    def __enter__(self) -> Table:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._look()
        self._print()

    def _draw(self) -> None:
        while not self._ended.wait(0.5 if self.live else 0.1):
            self._look()
            if self.live:
                self._print()

    def _look(self) -> None:
        for number, machine in enumerate(self.made):
            self._cpu[number] |= cpu_seconds(machine)
            self._workers[number] |= workers(machine)

    def _moved(self, number: int) -> tuple[int, int]:
        moved = self.network.moved(number + 1) if self.network else {}
        return moved.get("tx_bytes", 0), moved.get("rx_bytes", 0)

    def _print(self) -> None:
        traffic = "   sent MB   received MB" if self.network else ""
        rows = [f"node    address      workers   CPU s{traffic}"]
        for number, machine in enumerate(self.made):
            used = sum(self._cpu[number].values()) - self._cpu_before[number]
            pairs = zip(self._moved(number), self._moved_before[number], strict=True)
            sent, received = (after - before for after, before in pairs)
            traffic = f" {sent / 1e6:9.1f} {received / 1e6:13.1f}" if self.network else ""
            rows.append(
                f"{self.ids[number]}  {machine.host or '127.0.0.1':<12}"
                f" {len(self._workers[number]):7d} {used:7.1f}{traffic}"
            )
        if self._lines and self.live:
            print(f"\x1b[{self._lines}A", end="")
        print("\n".join(f"\x1b[2K{row}" if self.live else row for row in rows), flush=True)
        self._lines = len(rows)


def workers(machine: Machine) -> set[int]:
    """The processes that run tasks and actors there: they say so by their names."""
    found = set()
    for pid in machine.processes():
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text().startswith("hoplo:"):
                found.add(pid)
    return found


def cpu_seconds(machine: Machine) -> dict[int, float]:
    ticks = os.sysconf("SC_CLK_TCK")
    found = {pid: stat(pid) for pid in machine.processes()}
    return {
        pid: (int(fields[11]) + int(fields[12])) / ticks for pid, fields in found.items() if fields
    }


def stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


# ------------------------------------------------------------------------------- the programs

WHO = """
from collections import Counter
from hoplo.util.scheduling_strategies import NodeAffinitySchedulingStrategy

@hoplo.remote(scheduling_strategy="SPREAD")
def where():
    return hoplo.get_runtime_context().get_node_id()

hoplo.init(address="auto", log_to_driver=False)
say(dict(Counter(hoplo.get([where.remote() for _ in range(400)]))))
"""


def run(head: Machine, program: tuple[str, ...], folder: Path, seconds: float) -> bool:
    """On the head, as a user would; what it prints is shown when it has ended."""
    line = [*head.prefix, sys.executable, str(TREE / "examples" / program[1]), *program[2:]]
    done = subprocess.run(
        line,
        env=head.environment(HOPLO_ADDRESS="auto"),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    for text in done.stdout.splitlines():
        print(f"  {text}")
    if done.returncode != 0:
        print("\n".join(f"  {text}" for text in done.stderr.splitlines()[-15:]))
    return done.returncode == 0


def show(made: list[Machine], network: lab.Lab | None, seconds: float) -> list[str]:
    """Everything; the names of what did not end well."""
    head, *others = made
    began = time.monotonic()
    joining = head.head()
    print(f"a head listens at {joining.address}")
    for machine in others:
        start = time.monotonic()
        machine.join(joining)
        print(f"a node joined in {1000 * (time.monotonic() - start):.0f} ms")
    until(lambda: len(head.nodes()) == len(made), what="all nodes are known")
    ids = [machine.node_id for machine in made]
    print(f"{len(made)} nodes after {time.monotonic() - began:.2f} s\n")

    failed = []
    for program in PROGRAMS:
        print(f"{program[1]}: {program[0]}")
        with Table(made, network, ids):
            try:
                ended = run(head, program, head.folder, seconds)
            except subprocess.TimeoutExpired:
                print(f"  it took over {seconds:g} s")
                ended = False
        failed += [] if ended else [program[1]]
        print()
    print("who ran 400 small tasks that were to be spread:")
    counts: dict[str, int] = head.run(WHO)
    for node in ids:
        ran = counts.get(node, 0)
        print(f"  node {node}  {ran:4d}  {'#' * (ran // 8)}")
    return failed


def main() -> None:
    parser = argparse.ArgumentParser(description="A head and three nodes, and programs on them.")
    parser.add_argument("--seconds", type=float, default=180, help="that a program may take")
    parser.add_argument("--loopback", action="store_true", help="no network namespaces")
    options = parser.parse_args()

    def interrupted(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, interrupted)
    failed: list[str] = []
    try:
        with machines(options.loopback) as (made, network):
            failed = show(made, network, options.seconds)
        print("\nall of it has ended; nothing is left")
    except KeyboardInterrupt:
        sys.exit("\ninterrupted: all of it has ended; nothing is left")
    if failed:
        sys.exit(f"these programs failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
