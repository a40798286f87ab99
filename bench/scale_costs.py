"""What the model of `scale.py` takes: CPU nanoseconds of threads, measured on real nodes.

CPU time is the kernel's (`schedstat`), so other work on the machine hardly enters. Nodes are
network namespaces (tests/cluster/lab.py). A *farm* is some of them, each with a driver of its own:

    driver: submits 1,000 empty tasks, takes all results, and so on; its tasks stay at its node

What a task costs is measured with as many such nodes as cores, pinned crosswise: the driver of each
is on another core than its workers, as on a large node, and no core is ever free, so that nobody
looks for work in vain. What all run together, unpinned, is what the model is compared with: the
costs know nothing of that.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cluster_places import BARE_PORT, BARE_PROGRAM
from harness import HERE

sys.path.insert(0, str(HERE.parent / "tests" / "cluster"))
from lab import Lab
from machines import Machine, Program, until

BATCH = 1000
CORES = len(os.sched_getaffinity(0))

DRIVER = """
from hoplo.util.scheduling_strategies import NodeAffinitySchedulingStrategy

BATCH, WORKERS = int(sys.argv[1]), int(sys.argv[2])
hoplo.init(address="auto", log_to_driver=False)
here = hoplo.get_runtime_context().get_node_id()
stays = NodeAffinitySchedulingStrategy(here, soft=False)

@hoplo.remote(scheduling_strategy=stays)
def nothing():
    return None

@hoplo.remote(scheduling_strategy=stays)
def who():
    time.sleep(0.01)
    return os.getpid()

@hoplo.remote(num_cpus=0, scheduling_strategy=stays)
class Actor:
    def pid(self):
        return os.getpid()

def tasks(seconds):
    clock, count, submitted, got = time.thread_time_ns, 0, 0, 0
    began = time.perf_counter()
    while time.perf_counter() < began + seconds:
        first = clock()
        refs = [nothing.remote() for _ in range(BATCH)]
        second = clock()
        hoplo.get(refs)
        del refs
        submitted, got = submitted + second - first, got + clock() - second
        count += BATCH
    say(count, time.perf_counter() - began, submitted, got)

def workers():
    pids = set()
    while len(pids) < WORKERS:
        pids |= set(hoplo.get([who.remote() for _ in range(4 * WORKERS)]))
    say(sorted(pids))

def actors(count):
    made = [Actor.remote() for _ in range(int(count))]
    say(len(set(hoplo.get([actor.pid.remote() for actor in made]))))
    heard()

for line in sys.stdin:
    what, value = line.split()
    if what == "tasks":
        tasks(float(value))
    elif what == "workers":
        workers()
    else:
        actors(value)
"""


# ------------------------------------------------------------------------------- CPU time

Threads = dict[tuple[int, int], int]
"""Nanoseconds on a core, by process and thread."""


def threads(pids: Iterable[int]) -> Threads:
    found = {}
    for pid in pids:
        with suppress(OSError):
            for tid in os.listdir(f"/proc/{pid}/task"):
                with suppress(OSError):
                    text = Path(f"/proc/{pid}/task/{tid}/schedstat").read_text()
                    found[pid, int(tid)] = int(text.split()[0])
    return found


def gained(before: Threads, after: Threads) -> Threads:
    """A thread that is new has done all that it did since."""
    return {thread: ns - before.get(thread, 0) for thread, ns in after.items()}


def pin(pids: Iterable[int], cores: set[int]) -> None:
    for pid, tid in threads(pids):
        del pid
        with suppress(ProcessLookupError):
            os.sched_setaffinity(tid, cores)


def idle_ns() -> int:
    """Of all cores that this program may use, since the machine started."""
    ticks, cores = 0, {f"cpu{core}" for core in os.sched_getaffinity(0)}
    for line in Path("/proc/stat").read_text().splitlines():
        fields = line.split()
        if fields[0] in cores:
            ticks += int(fields[4]) + int(fields[5])
    return ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


# ------------------------------------------------------------------------------- a farm


@dataclass(frozen=True)
class TaskCosts:
    """Nanoseconds of one empty task: see `crates/sim/src/cost/tasks.rs`."""

    submit: float
    get: float
    run: float
    daemon: float


@dataclass(frozen=True)
class Ran:
    """What some nodes did together."""

    tasks_per_s: float
    share: float
    """Of the cores, how much there was for them: what they used, and what nobody did."""


class Farm:
    def __init__(self, nodes: int, workers: int) -> None:
        self.lab = Lab(nodes=nodes, cpus=workers)
        self.machines: list[Machine] = self.lab.machines
        self.joining = self.machines[0].head()
        for machine in self.machines[1:]:
            machine.join(self.joining)
        until(lambda: len(self.machines[0].nodes()) == nodes)
        told = (DRIVER, str(BATCH), str(workers))
        self.drivers: list[Program] = [machine.program(*told) for machine in self.machines]
        self.workers = [set(self.ask(driver, "workers 0")) for driver in self.drivers]
        self.pids = [machine.processes() for machine in self.machines]
        # Every connection, lease and buffer is there afterwards.
        self.run(nodes, 0.5)

    def ask(self, driver: Program, line: str) -> list[int]:
        driver.tell(line)
        return list(driver.heard())

    def run(self, nodes: int, seconds: float) -> Ran:
        """The first so many of them, at once; the others wait."""
        pids = set().union(*self.pids)
        before, idle, began = threads(pids), idle_ns(), time.monotonic()
        said = self._all_run(self.drivers[:nodes], seconds)
        wall = (time.monotonic() - began) * 1e9
        used = sum(gained(before, threads(pids)).values())
        share = (used + idle_ns() - idle) / (wall * CORES)
        return Ran(sum(count / took for count, took, *_ in said), min(share, 1.0))

    def costs(self, seconds: float) -> TaskCosts:
        """Of a task, with as many nodes as cores, each on two of them."""
        cores = sorted(os.sched_getaffinity(0))
        some = list(zip(cores, self.pids, strict=False))
        for at, (core, pids) in enumerate(some):
            pin(pids - self.workers[at], {core})
            pin(self.workers[at], {cores[at - 1]})
        pids = set().union(*(pids for _, pids in some))
        before = threads(pids)
        said = self._all_run(self.drivers[: len(some)], seconds)
        spent = gained(before, threads(pids))
        for _, of_node in some:
            pin(of_node, set(cores))
        count = sum(said[0] for said in said)
        submit, get = (sum(said[at] for said in said) / count for at in (2, 3))
        workers = set().union(*self.workers[: len(some)])
        run = sum(ns for (pid, tid), ns in spent.items() if pid == tid and pid in workers) / count
        return TaskCosts(submit, get, run, sum(spent.values()) / count - submit - get - run)

    def fork_ns(self, count: int) -> float:
        """CPU time of the first node for one actor more, but for its driver's."""
        driver, machine = self.drivers[0], self.machines[0]
        before = threads(machine.processes())
        assert self.ask_count(driver, f"actors {count}") == count, "each has a process"
        spent = gained(before, threads(machine.processes()))
        driver.tell("enough")
        return sum(ns for (pid, _), ns in spent.items() if pid != driver.pid) / count

    def ask_count(self, driver: Program, line: str) -> int:
        driver.tell(line)
        return int(driver.heard())

    def join_ns(self, times: int) -> dict[str, float]:
        """CPU time of threads of the head for one node that joins, by their names."""
        pid, late = self.machines[0].pid, self.machines[-1]
        before = threads([pid])
        for _ in range(times):
            late.leave()
            late.join(self.joining)
        spent = gained(before, threads([pid]))
        found: dict[str, float] = {}
        for (_, tid), ns in spent.items():
            name = Path(f"/proc/{pid}/task/{tid}/comm").read_text().strip()
            found[name] = found.get(name, 0) + ns / times
        return found

    def end(self) -> None:
        self.lab.end()

    def _all_run(self, drivers: list[Program], seconds: float) -> list[list[float]]:
        for driver in drivers:
            driver.tell(f"tasks {seconds}")
        return [list(driver.heard()) for driver in drivers]


# ------------------------------------------------------------------------------- a bare connection


def bare_ns(lab: Lab, quick: bool) -> dict[str, float]:
    """CPU time of one end of a TLS connection between two machines."""
    certificate = str(lab.folder / "certificate.pem")
    address = lab.address(2)
    serving = subprocess.Popen(
        [*lab[2].prefix, BARE_PROGRAM, "serve", address, str(BARE_PORT), certificate],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert serving.stdout is not None
    try:
        if serving.stdout.readline() != "ready\n":
            raise RuntimeError(f"{BARE_PROGRAM} does not serve")
        times = 100 if quick else 2000

        def each(what: str, nbytes: int, count: int) -> float:
            where = [address, str(BARE_PORT), certificate, "tls", what, str(nbytes), str(count)]
            line = [*lab[1].prefix, BARE_PROGRAM, "measure", *where]
            done = subprocess.run(line, capture_output=True, text=True, check=True)
            return float(json.loads(done.stdout)["cpu_s"]) * 1e9 / count

        small, large = each("echo", 1, times), each("echo", 1 << 16, times)
        return {
            "receive": small / 2,
            "flush": small / 2,
            "kilobyte": (large - small) / (2 * (1 << 16) / 1000),
            "handshake": each("connect", 1, times // 10),
        }
    finally:
        serving.kill()
        serving.wait()
