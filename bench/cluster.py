"""What several nodes cost: calls, objects, nodes that join, beside Ray and a bare connection.

Each node is in a network namespace of its own (tests/cluster/lab.py), with one CPU, on this
machine. So all of them share its cores: what is measured is the cost of hoplo's way, not the speed
of a network. Beside each row: Ray in the same namespaces, and a connection between the same two of
them with nothing around it, TCP and TLS 1.3 (crates/net/examples/bare.rs). hoplo encrypts and Ray
does not. Broadcasts run on links of 200 Mbit/s each way, where the network is what is scarce.

Needs root. HOPLO_BARE names the program that `make bench-cluster` builds.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from harness import (
    HERE,
    NOT_INSTALLED,
    Cell,
    Goal,
    PlayerError,
    Question,
    Row,
    Seat,
    at_least,
    at_most,
    row,
    times,
    versions,
)

sys.path.insert(0, str(HERE.parent / "tests" / "cluster"))
from lab import Lab, why_not
from machines import until

sys.path.insert(0, str(HERE / "players"))
from processes import memory_mb
from ray_machines import RayMachines

HOPLO, RAY, BARE = "hoplo", "ray", "bare"
MIB = 1 << 20
PLAYS = str(HERE / "players" / "play_cluster.py")
PORT = 7000
PROGRAM = os.environ.get("HOPLO_BARE") or str(
    Path(os.environ.get("CARGO_TARGET_DIR", HERE.parent / "target")) / "release/examples/bare"
)
RATE = 200e6
"""Bits a second of each link, each way, in the rows of broadcasts."""

IDLE_SECONDS = 10

if why := why_not():
    sys.exit(f"bench/cluster.py: {why}")
if not Path(PROGRAM).exists():
    sys.exit(f"bench/cluster.py: {PROGRAM} is missing: run `make bench-cluster`")

question = Question("cluster", "Several nodes", {})
QUICK = question.options.quick


class Place:
    """A lab with a cluster of each system on its first nodes, and the bare programs."""

    def __init__(self, nodes: int, spare: int = 0, rate: float | None = None) -> None:
        self.lab = Lab(nodes=nodes + spare, rate=rate)
        self.nodes = nodes
        self.ray: RayMachines | None = None
        self.bare: subprocess.Popen[str] | None = None
        head = self.lab[1]
        self.joining = head.head()
        for number in range(2, nodes + 1):
            self.lab[number].join(self.joining)
        until(lambda: len(head.nodes()) == nodes)

    def seat_hoplo(self) -> None:
        environment = self.lab[1].environment(**self._join_of_hoplo())
        question.seat(HOPLO, Seat([PLAYS, HOPLO], self.lab[1].prefix, environment))

    def _join_of_hoplo(self) -> dict[str, str]:
        if len(self.lab.machines) == self.nodes:
            return {}
        from machines import HOPLO as PROGRAM_OF_HOPLO

        late = self.lab.machines[-1]
        own = {"HOPLO_TMPDIR": str(late.folder), "HOME": str(late.home)}
        start = [
            *(*late.prefix, PROGRAM_OF_HOPLO, "start", "--address", self.joining.address),
            *("--token-file", str(self.joining.token), "--num-cpus", "1"),
            *("--python", sys.executable, "--resources", "RESOURCES"),
        ]
        leave = [*late.prefix, PROGRAM_OF_HOPLO, "stop"]
        return {
            "BENCH_JOIN": json.dumps({"line": start, "environment": own}),
            "BENCH_LEAVE": json.dumps({"line": leave, "environment": own}),
        }

    def seat_ray(self) -> None:
        if RAY in question.options.without or versions()[RAY] == NOT_INSTALLED:
            return
        self.ray = RayMachines(self.lab)
        for number in range(1, self.nodes + 1):
            self.ray.start(number)
        more = self.ray.environment()
        if len(self.lab.machines) > self.nodes:
            late = len(self.lab.machines)
            start, leave = self.ray.line(late, "RESOURCES"), self.ray.leave_line(late)
            more["BENCH_JOIN"] = json.dumps({"line": start, "environment": {}})
            more["BENCH_LEAVE"] = json.dumps({"line": leave, "environment": {}})
        question.seat(RAY, Seat([PLAYS, RAY], self.ray.prefix(1), more))

    def seat_bare(self) -> None:
        certificate = str(self.lab.folder / "certificate.pem")
        address = self.lab.address(2)
        self.bare = subprocess.Popen(
            [*self.lab[2].prefix, PROGRAM, "serve", address, str(PORT), certificate],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.bare.stdout is not None
        if self.bare.stdout.readline() != "ready\n":
            raise RuntimeError(f"{PROGRAM} does not serve")
        told = [PROGRAM, address, str(PORT), certificate]
        question.seat(BARE, Seat(["play_bare.py", *told], self.lab[1].prefix))

    def close(self) -> None:
        question.close_players()
        if self.bare is not None:
            self.bare.kill()
            self.bare.wait()
        if self.ray is not None:
            self.ray.close()
        self.lab.end()


def bare(measure: str, count: int) -> dict[str, Cell]:
    """The columns of the bare connection: `echo.1`, `stream.1MiB`."""
    return {over: Cell(BARE, f"{over}.{measure}", count) for over in ("tcp", "tls")}


def cpu_seconds(pids: Iterable[int]) -> float:
    """Of all their threads that live, to the nanosecond."""
    total = 0
    for pid in pids:
        for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            try:
                total += int(path.read_text().split()[0])
            except (OSError, ValueError, IndexError):
                continue  # it has ended
    return total / 1e9


def data_packets(machine: Any) -> int:
    """That it has sent over TCP, acknowledgements that hold nothing not counted."""
    lines = machine.command("cat", "/proc/net/netstat").stdout.splitlines()
    names, numbers = [line.split() for line in lines if line.startswith("TcpExt:")][:2]
    return int(dict(zip(names, numbers, strict=True))["TCPOrigDataSent"])


# ------------------------------------------------------------------------------- an idle node


def idle(place: Place) -> None:
    """Of a node that joined and that nobody uses: daemon and all that it started."""
    names = {
        "memory of an idle node": ("MB", at_most(30, "MB")),
        "CPU of an idle node": ("% core", at_most(0.1, "% core")),
        "messages that an idle node sends in a second": ("", at_most(10, "/s")),
    }
    rows = {name: Row(name, unit, {}, [goal]) for name, (unit, goal) in names.items()}
    if not wanted(list(rows.values())):
        return
    memory, cpu, messages = rows.values()
    messages.note = "packets of TCP with bytes in them"
    memory.note = "shared pages counted once"
    machine = place.lab[3]
    seconds = 2 if QUICK else IDLE_SECONDS
    # What starting has left to do is done.
    began = time.monotonic()
    until(lambda: time.monotonic() - began > (0.5 if QUICK else 3))
    for _ in range(1 if QUICK else 3):
        pids = machine.processes()
        used, sent, began = cpu_seconds(pids), data_packets(machine), time.monotonic()
        until(lambda began=began: time.monotonic() - began > seconds, seconds + 5)
        took = time.monotonic() - began
        cpu.values.setdefault(HOPLO, []).append(100 * (cpu_seconds(pids) - used) / took)
        more = data_packets(machine) - sent
        messages.values.setdefault(HOPLO, []).append(more / took)
        memory.values.setdefault(HOPLO, []).append(sum(memory_mb(pid, "Pss:") for pid in pids))
    for asked in rows.values():
        if not question.options.only or question.options.only in asked.name:
            question.add(asked)


def cpu_of_a_get(place: Place) -> None:
    """CPU time of everything in the lab for a GB that a driver gets from another node."""
    asked = Row("CPU time for a GB, get of 100 MiB", "s", {}, [at_most(1.0, "s")])
    if question.options.only and question.options.only not in asked.name:
        return
    asked.note = "of all processes of the lab, putting not counted; bare: of the two threads"
    count = 2 if QUICK else 10
    gigabytes = count * 100 * MIB / 1e9
    for over in ("tcp", "tls"):
        try:
            told = {"measure": f"{over}.stream.100MiB", "count": count}
            player = question.player(BARE)
            player.ask({"do": "open", **told})
            for _ in range(1 if QUICK else 5):
                answer = player.ask({"do": "run", **told})
                asked.values.setdefault(over, []).append(answer["cpu_s"] / gigabytes)
            player.ask({"do": "close", **told})
        except PlayerError as error:
            asked.missing[over] = str(error)
    for system in [HOPLO, *([RAY] if place.ray else [])]:
        try:
            asked.values[system] = cpu_of(place, system, count, gigabytes)
        except PlayerError as error:
            asked.missing[system] = str(error)
    question.add(asked)


def cpu_of(place: Place, system: str, count: int, gigabytes: float) -> list[float]:
    """What getting takes: that of making and getting, less that of making alone."""
    player, found = question.player(system), []
    for _ in range(1 if QUICK else 5):
        spent = {}
        for measure in ("make.100MiB", "get.100MiB"):
            told = {"measure": measure, "count": count}
            player.ask({"do": "open", **told})
            player.ask({"do": "run", **told})
            before = cpu_seconds(place.lab.processes())
            player.ask({"do": "run", **told})
            spent[measure] = cpu_seconds(place.lab.processes()) - before
            player.ask({"do": "close", **told})
        found.append((spent["get.100MiB"] - spent["make.100MiB"]) / gigabytes)
    return found


# ------------------------------------------------------------------------------- the rows

ECHO, ECHO_64 = bare("echo.1", 2000), bare("echo.65536", 300)

CALLS = [
    row(
        "node joins: from the command to the end of a task that waits for it",
        "s",
        "join",
        {HOPLO: 1, RAY: 1},
        goals=[at_most(0.5, "s")],
        rounds=3,
    ),
    row(
        "call to an actor on another node, one at a time",
        "/s",
        "actor.one",
        {HOPLO: 1000, RAY: 200, **ECHO},
        goals=[at_least(10_000, "/s"), times(0.35, "tls")],
        note="10,000 /s is 100 us a call; bare: one byte there and back",
    ),
    row(
        "1,000 calls to an actor on another node, then get all",
        "/s",
        "actor.batch",
        {HOPLO: 1000, RAY: 1000},
        goals=[at_least(150_000, "/s")],
    ),
    row(
        "task on another node, one at a time",
        "/s",
        "task.one",
        {HOPLO: 1000, RAY: 100, **ECHO},
        goals=[at_least(8_000, "/s")],
    ),
    row(
        "1,000 tasks on another node, then get all",
        "/s",
        "task.batch",
        {HOPLO: 1000, RAY: 1000},
        goals=[at_least(100_000, "/s")],
    ),
    row(
        "1,000 tasks spread over 3 nodes, then get all",
        "/s",
        "task.spread",
        {HOPLO: 1000, RAY: 1000},
        goals=[at_least(100_000, "/s")],
    ),
    row(
        "an actor on node 2 calls one on node 3, 1,000 calls",
        "/s",
        "actor.actor",
        {HOPLO: 1000, RAY: 1000},
        goals=[at_least(150_000, "/s")],
    ),
    row(
        "call with 64 KiB there and back, one at a time",
        "/s",
        "actor.64KiB",
        {HOPLO: 500, RAY: 100, **ECHO_64},
        goals=[times(0.6, "tls")],
    ),
    row(
        "create an actor on another node, call it, kill it",
        "/s",
        "actor.create",
        {HOPLO: 50, RAY: 3},
        goals=[at_least(100, "/s")],
        rounds=5,
    ),
    row(
        "placement group of 3 bundles on 3 nodes: make, wait, remove",
        "/s",
        "group",
        {HOPLO: 100, RAY: 10},
        goals=[at_least(300, "/s")],
        rounds=5,
    ),
]

OBJECTS = [
    row(
        "get of a fresh 1 MiB from another node",
        "GB/s",
        "get.1MiB",
        {HOPLO: 100, RAY: 30, **bare("stream.1MiB", 500)},
        size=MIB,
        goals=[times(0.6, "tls")],
    ),
    row(
        "get of a fresh 100 MiB from another node",
        "GB/s",
        "get.100MiB",
        {HOPLO: 4, RAY: 2, **bare("stream.100MiB", 5)},
        size=100 * MIB,
        goals=[times(0.8, "tls")],
        rounds=5,
    ),
    row(
        "put of 10 MiB here, read by a task on another node",
        "GB/s",
        "task.10MiB",
        {HOPLO: 20, RAY: 5, **bare("stream.10MiB", 50)},
        size=10 * MIB,
        goals=[times(0.6, "tls")],
        rounds=5,
    ),
    row(
        "shuffle of 72 MiB over 3 nodes",
        "GB/s",
        "shuffle",
        {HOPLO: 1, RAY: 1},
        rounds=5,
        note="6 tasks make 6 parts each, 6 others read a part of each; two thirds move",
    ),
]

LOCALITY = [
    row(
        f"task with an argument of {name} on one of 2 nodes, locality {switch}",
        "ms",
        f"locality.{size}.{switch}",
        {HOPLO: count, RAY: max(10, count // 10)},
        rounds=1,
        note="the mean of one after the other; off: SPREAD (OSDI'18, figure 8a)",
    )
    for size, name, count in (
        (100_000, "100 KB", 1000),
        (1_000_000, "1 MB", 1000),
        (10_000_000, "10 MB", 300),
        (100_000_000, "100 MB", 30),
    )
    for switch in ("on", "off")
]


def optimum(factor: float) -> Goal:
    return Goal(f"<= {factor:g}x tcp", factor, ("tcp",), at_most=True)


BROADCASTS = [
    row(
        f"broadcast of 64 MiB to {nodes} nodes at 200 Mbit/s",
        "s",
        f"broadcast.{nodes}",
        {HOPLO: 1, RAY: 1, **bare("stream.64MiB", 1)},
        goals=[optimum(1.10)],
        rounds=3,
        note="bare: to one node; at the nominal rate that is 2.68 s",
    )
    for nodes in (2, 4)
]


def wanted(rows: list[Row]) -> bool:
    return any(question.options.only in asked.name for asked in rows)


def main() -> None:
    place = Place(nodes=3, spare=1)
    try:
        idle(place)
        place.seat_hoplo()
        place.seat_ray()
        place.seat_bare()
        question.ask([*CALLS, *OBJECTS, *LOCALITY])
        cpu_of_a_get(place)
    finally:
        place.close()
    if wanted(BROADCASTS):
        place = Place(nodes=5, rate=RATE)
        try:
            place.seat_hoplo()
            place.seat_ray()
            place.seat_bare()
            question.ask(BROADCASTS)
        finally:
            place.close()
    facts()
    question.finish()


def facts() -> None:
    """What the rows say together."""
    medians = {asked.name: asked.medians for asked in question.rows}
    one = medians.get("call to an actor on another node, one at a time", {})
    if HOPLO in one:
        question.facts["a call to an actor on another node"] = f"{1e6 / one[HOPLO]:.0f} us"
    if "tls" in one:
        question.facts["a byte there and back over TLS"] = f"{1e6 / one['tls']:.0f} us"
    ratios = []
    for on, off in zip(LOCALITY[::2], LOCALITY[1::2], strict=True):
        if HOPLO in on.medians and HOPLO in off.medians:
            ratios.append(off.medians[HOPLO] / on.medians[HOPLO])
    if ratios:
        told = ", ".join(f"{ratio:.1f}x" for ratio in ratios)
        question.facts["what locality saves, from 100 KB to 100 MB"] = told
        question.facts["on the whole"] = f"{statistics.geometric_mean(ratios):.1f}x"


main()
