"""What several nodes cost: calls, objects, nodes that come and go, beside Ray and bare connections.

Each node is in a network namespace of its own (tests/cluster/lab.py), with one CPU, on this
machine. So all of them share its cores: what is measured is the cost of hoplo's way, not the speed
of a network. Beside each row: Ray in the same namespaces, and a connection between the same two of
them with nothing around it, TCP and TLS 1.3 (crates/net/examples/bare.rs). hoplo encrypts and Ray
does not. Broadcasts run on links of 200 Mbit/s each way, and tasks that are drawn to their
arguments on links of 1 Gbit/s, where the network is what is scarce.

Rows are asked in *stages*. Each has places of its own (cluster_places.py), and what fails in one
leaves the others alone. Needs root. HOPLO_BARE names the program that `make bench-cluster` builds.
"""

from __future__ import annotations

import json
import signal
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import overview
from cluster_places import ALONE, BARE, BARE_PROGRAM, HOPLO, RAY, UNDRAWN, Place
from harness import (
    RESULTS,
    Cell,
    Goal,
    PlayerError,
    Question,
    Row,
    at_least,
    at_most,
    row,
    times,
)
from lab import why_not
from machines import until
from processes import memory_mb

MIB = 1 << 20
RATE = 200e6
"""Bits a second of each link, each way, where the network is to be scarce,"""
RATE_OF_LOCALITY = 1e9
"""and where it is to be like most."""

SILENCE_SECONDS = 0.75
IDLE_SECONDS = 10

if why := why_not():
    sys.exit(f"bench/cluster.py: {why}")
if not Path(BARE_PROGRAM).exists():
    sys.exit(f"bench/cluster.py: {BARE_PROGRAM} is missing: run `make bench-cluster`")

question = Question("cluster", "Several nodes", {})
QUICK = question.options.quick


def bare(measure: str, count: int) -> dict[str, Cell]:
    """The columns of the bare connection: `echo.1`, `stream.1MiB`."""
    return {over: Cell(BARE, f"{over}.{measure}", count) for over in ("tcp", "tls")}


def alone(count: int) -> dict[str, Cell]:
    return {system: Cell(system + ALONE, "head", count) for system in (HOPLO, RAY)}


def near_optimum(factor: float) -> Goal:
    """The bare connection moves what one link must carry at least."""
    return Goal(f"<= {factor:g}x tcp", factor, ("tcp",), at_most=True)


# ------------------------------------------------------------------------------- the rows

ECHO, ECHO_64 = bare("echo.1", 2000), bare("echo.65536", 300)

NODES = [
    row(
        "a head starts: from the command to the end of a first task",
        "s",
        "head",
        alone(1),
        goals=[at_most(0.5, "s")],
        rounds=5,
        warm_up=False,
        note="of a driver that has imported what it needs",
    ),
    row(
        "node joins: from the command to the end of a task that waits for it",
        "s",
        "join",
        {HOPLO: 1, RAY: 1},
        goals=[at_most(0.5, "s")],
        rounds=5,
        warm_up=False,
    ),
    row(
        "a node falls silent: until it is declared dead",
        "s",
        "silence",
        {HOPLO: 5, RAY: 1},
        goals=[at_most(SILENCE_SECONDS, "s")],
        rounds=1,
        warm_up=False,
        note="its cable is pulled and nobody is told; seen by a driver at the head",
    ),
]

CALLS = [
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
        "group.wait",
        {HOPLO: 100, RAY: 10},
        goals=[at_least(300, "/s")],
        rounds=5,
    ),
    row(
        "placement group of 3 bundles on 3 nodes: make, get ready(), remove",
        "/s",
        "group.ready",
        {HOPLO: 30, RAY: 5},
        goals=[at_least(300, "/s")],
        rounds=3,
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
        "shuffle: each of 3 nodes has 8 MiB for every other, which a task reads",
        "/s",
        "shuffle",
        {HOPLO: 5, RAY: 5},
        goals=[times(3, RAY)],
        rounds=5,
    ),
]

CPU = [
    (
        Row(f"CPU time for a GB, {what}", "s", {}, [at_most(1.0, "s")]),
        measure,
        beside,
        mib,
    )
    for what, measure, beside, mib in (
        ("get of a fresh 1 MiB", "get.1MiB", "make.1MiB", 1),
        ("get of a fresh 100 MiB", "get.100MiB", "make.100MiB", 100),
        ("put of 10 MiB here, read by a task there", "task.10MiB", "put.10MiB", 10),
    )
]
"""Each with what is measured, what that does beside, and MiB."""
CPU[0][0].note = (
    "of all processes of the lab; what making and putting take is taken off."
    " Bare: of the two threads that move it"
)

STRIPES = {f"{n} stream{'s' * (n > 1)}": n for n in (1, 2, 4, 8)}

STRIPED = [
    row(
        "get of a fresh 256 MiB over loopback",
        "GB/s",
        "get.256MiB",
        {HOPLO: 1, **{name: Cell(BARE, f"tls.striped.{n}", 1) for name, n in STRIPES.items()}},
        size=256 * MIB,
        goals=[times(0.8, *STRIPES)],
        rounds=5,
        note="bare: 256 MiB in equal parts over so many TLS connections at once",
    )
]

LOCALITY = [
    row(
        f"task with an argument of {name} on one of 2 nodes, locality {switch}",
        "ms",
        f"locality.{size}.{switch}",
        {HOPLO: Cell(player, f"locality.{size}.on", count), RAY: max(10, count // 10)},
        rounds=1,
        note="the mean of one after the other, links of 1 Gbit/s; off: hoplo by HOPLO_LOCALITY, "
        "Ray by SPREAD (OSDI'18, figure 8a)",
    )
    for size, name, count in (
        (100_000, "100 KB", 1000),
        (1_000_000, "1 MB", 1000),
        (10_000_000, "10 MB", 300),
        (100_000_000, "100 MB", 30),
    )
    for switch, player in (("on", HOPLO), ("off", UNDRAWN))
]

SLOW = [
    row(
        f"broadcast of 64 MiB to {nodes} nodes at 200 Mbit/s",
        "s",
        f"broadcast.{nodes}",
        {HOPLO: 1, RAY: 1, **bare("stream.64MiB", 1)},
        goals=[near_optimum(1.10)],
        rounds=3,
        note="bare: to one node; at the nominal rate that is 2.68 s",
    )
    for nodes in (2, 4)
] + [
    row(
        "shuffle: each of 3 nodes has 8 MiB for every other, at 200 Mbit/s",
        "s",
        "shuffle",
        {HOPLO: 1, RAY: 1, **bare("stream.16MiB", 1)},
        goals=[near_optimum(1.15)],
        rounds=3,
        note="bare: what one node has to send, to one node; at the nominal rate that is 0.67 s",
    )
]

IDLE = [
    Row("memory of an idle node", "MB", {}, [at_most(30, "MB")], note="shared pages counted once"),
    Row("CPU of an idle node", "% core", {}, [at_most(0.1, "% core")]),
    Row(
        "messages that an idle node sends in a second",
        "",
        {},
        [at_most(10, "/s")],
        note="packets of TCP with bytes in them; of Ray those between its own processes, too",
    ),
]

SHOWN = [
    ("cluster", name, text)
    for name, text in (
        ("call to an actor on another node, one at a time", "a method call, one at a time"),
        ("1,000 calls to an actor on another node, then get all", "1,000 method calls"),
        ("an actor on node 2 calls one on node 3, 1,000 calls", "1,000 between two other nodes"),
        ("task on another node, one at a time", "a task and its result, one at a time"),
        ("1,000 tasks on another node, then get all", "1,000 tasks on another node"),
        ("1,000 tasks spread over 3 nodes, then get all", "1,000 tasks spread over 3 nodes"),
        ("call with 64 KiB there and back, one at a time", "a call with 64 KiB there and back"),
        ("create an actor on another node, call it, kill it", "create an actor, call it, kill it"),
        ("placement group of 3 bundles on 3 nodes: make, wait, remove", "a placement group"),
    )
]
"""What the picture shows."""

# ------------------------------------------------------------------------------- how they are asked

failures: list[str] = []


def stage(rows: list[Row], ask: Callable[[list[Row]], None]) -> None:
    """Whatever befalls it: its rows are in the table, and the other stages are asked."""
    rows = [asked for asked in rows if question.wants(asked)]
    if not rows:
        return
    try:
        ask(rows)
    except Exception as error:
        traceback.print_exc()
        failures.append(rows[0].name)
        for asked in rows:
            if not any(asked is known for known in question.rows):
                asked.missing[HOPLO] = f"{type(error).__name__}: {error}"
                question.add(asked)


@contextmanager
def place(systems: Iterable[str] = (HOPLO, RAY, BARE), **how: Any) -> Iterator[Place]:
    made = Place(question, **how)
    try:
        for system in systems:
            {HOPLO: made.seat_hoplo, RAY: made.seat_ray, BARE: made.seat_bare}[system]()
        yield made
    finally:
        made.close()


def at(**how: Any) -> Callable[[list[Row]], None]:
    """Asks rows in one place; if one has broken it, the rest in a new one."""

    def ask(rows: list[Row]) -> None:
        left = list(rows)
        while left:
            with place(**how) as where:
                while left:
                    asked = left.pop(0)
                    question.ask([asked])
                    if has_failed(asked) or not where.is_whole():
                        break

    return ask


def has_failed(asked: Row) -> bool:
    return any(not why.startswith("skipped") for why in asked.missing.values())


@contextmanager
def noting(asked: Row, column: str) -> Iterator[None]:
    """Why it has no value."""
    try:
        yield
    except PlayerError as error:
        asked.missing[column] = str(error)


@contextmanager
def playing(system: str, measure: str, count: int) -> Iterator[Callable[[], Any]]:
    """A measure that is open: each call is one round."""
    player, told = question.player(system), {"measure": measure, "count": count}
    player.ask({"do": "open", **told})
    yield lambda: player.ask({"do": "run", **told})
    player.ask({"do": "close", **told})


def rounds(most: int = 5) -> range:
    return range(1 if QUICK else most)


# ------------------------------------------------------------------------------- what processes use


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


def ask_cpu(wanted: list[Row]) -> None:
    with place(nodes=3) as where:
        for asked, measure, beside, mib in CPU:
            if not any(asked is one for one in wanted):
                continue
            count = max(2, (200 if QUICK else 500) // mib)
            gigabytes = count * mib * MIB / 1e9
            for over in ("tcp", "tls"):
                with noting(asked, over), playing(BARE, f"{over}.stream.{mib}MiB", count) as run:
                    spent = [run()["cpu_s"] for _ in rounds()]
                    asked.values[over] = [seconds / gigabytes for seconds in spent]
            for system in (HOPLO, RAY):
                with noting(asked, system):
                    found = [
                        spent_on(where, system, measure, count)
                        - spent_on(where, system, beside, count)
                        for _ in rounds()
                    ]
                    asked.values[system] = [seconds / gigabytes for seconds in found]
            question.add(asked)


def spent_on(where: Place, system: str, measure: str, count: int) -> float:
    """CPU seconds of everything in the lab in a round, which is not its first."""
    with playing(system, measure, count) as run:
        run()
        before = cpu_seconds(where.lab.processes())
        run()
        return cpu_seconds(where.lab.processes()) - before


def ask_idle(wanted: list[Row]) -> None:
    """Of a node that joined and that nobody uses: all that its system started there."""
    for system in (HOPLO, RAY):
        with place([system], nodes=3) as where:
            if system == RAY and where.ray is None:
                continue
            # What starting has left to do is done.
            wait(0.5 if QUICK else 3)
            for _ in rounds(3):
                found = use_of_idle(where, 2 if QUICK else IDLE_SECONDS)
                for asked, value in zip(IDLE, found, strict=True):
                    asked.values.setdefault(system, []).append(value)
    for asked in wanted:
        question.add(asked)


def use_of_idle(where: Place, seconds: float) -> tuple[float, float, float]:
    """Of the third node: memory, share of a core, messages a second."""
    machine = where.lab[3]
    pids = where.lab.processes(3)
    used, sent, began = cpu_seconds(pids), data_packets(machine), time.monotonic()
    wait(seconds)
    took = time.monotonic() - began
    share = 100 * (cpu_seconds(pids) - used) / took
    messages = (data_packets(machine) - sent) / took
    return sum(memory_mb(pid, "Pss:") for pid in pids), share, messages


def wait(seconds: float) -> None:
    began = time.monotonic()
    until(lambda: time.monotonic() - began > seconds, seconds + 5)


# ------------------------------------------------------------------------------- all of it


def main() -> None:
    # Told to end, it takes its machines away first.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("bench/cluster.py: told to end"))
    stage(IDLE, ask_idle)
    stage(NODES, at(nodes=3, late=True))
    stage([*CALLS, *OBJECTS], at(nodes=3))
    stage(LOCALITY, at(systems=(HOPLO, RAY), nodes=2, rate=RATE_OF_LOCALITY))
    stage([asked for asked, *_ in CPU], ask_cpu)
    stage(STRIPED, at(systems=(HOPLO, BARE), nodes=2, loopback=True))
    stage(SLOW, at(nodes=5, rate=RATE))
    facts()
    question.finish()
    if not question.options.only:
        report = json.loads((RESULTS / "cluster.json").read_text())
        overview.draw([report], RESULTS / "cluster.png", SHOWN)
    if failures:
        sys.exit(f"bench/cluster.py: something failed in the stages of: {'; '.join(failures)}")


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
