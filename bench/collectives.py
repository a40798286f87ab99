"""How long collectives take on shaped links, beside what one connection carries.

    python bench/collectives.py [--nodes 4,8,16] [--megabytes 8,32] [--without ray] [--only reduce]

Each node is in a network namespace of its own (tests/cluster/lab.py), whose links carry so many
bits a second each way that this machine's cores are not what is scarce. The *optimum* is what the
links need at least, from the time that one bare TCP stream takes for one member between two of the
nodes, in the same lab, round by round in turn. Beside hoplo: OpenMPI as it comes and *tuned* (the
algorithms that are best on such links, chosen by hand), Gloo, Ray and Dask. Every node has one
member, also the head, where the result is made; each round of hoplo, Ray and Dask has members of
its own, and the clock begins when all are made. MPI and Gloo begin at a barrier, with buffers that
are there. Where members or readers are *late*, one comes each tenth of a second; MPI and Gloo sleep
before the call. All processes read one clock. What is small is measured on links that are not
shaped. Needs root. HOPLO_GLOO names the program that `make bench-collectives` compiles.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import statistics
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import collectives_page
from collectives_cases import (
    ALL_TO_ALL,
    ALLREDUCE,
    BROADCAST,
    GATHER,
    LATE,
    MB,
    OPTIMUM,
    POINT_TO_POINT,
    QUARTER,
    RANKS,
    REDUCE,
    SECONDS_MAX,
    SMALLER_BROADCAST,
    TOGETHER,
    Shaped,
    ask,
    finish,
    rate_of,
    shaped,
)
from collectives_places import (
    DASK,
    GLOO,
    HOPLO,
    MPI,
    PLAYERS,
    RAY,
    SLOW,
    STREAM,
    TUNED,
    Place,
)
from harness import Cell, Goal, PlayerError, Question, Row, Seat, at_most, row, times
from lab import why_not
from machines import until

RANKS_IN_A_ROW = 10
"""What is small, ranks do so often before they wait for the next request: it wakes them up."""

DEATHS = {
    "killed": (int(signal.SIGKILL), 0.1),
    "stopped": (int(signal.SIGSTOP), 0.75),
    "silenced": (0, 0.75),
}
"""What befalls a node half way: the signal to its processes, and when it is to be known."""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", default="4,8,16", help="as many nodes, with commas between")
    parser.add_argument("--megabytes", default="8,32", help="of each member")
    parser.add_argument("--rounds", type=int, default=5)


if why := why_not():
    sys.exit(f"bench/collectives.py: {why}")

question = Question("collectives", "Collectives", {}, options)
QUICK = question.options.quick
ROUNDS = question.options.rounds
NODES = [int(word) for word in question.options.nodes.split(",") if word]
SIZES = [int(word) for word in question.options.megabytes.split(",") if word]

# ------------------------------------------------------------------------------- the rows


def rows_of(nodes: int) -> list[Shaped]:
    cases = [POINT_TO_POINT, BROADCAST, REDUCE, ALLREDUCE, GATHER, ALL_TO_ALL]
    sizes = SIZES
    if nodes >= 16:
        cases = [BROADCAST, REDUCE, ALLREDUCE, ALL_TO_ALL]
        sizes = SIZES[:1]
    made = [shaped(case, nodes, size * MB, ROUNDS) for size in sizes for case in cases]
    at = cases.index(BROADCAST)
    made.insert(at, shaped(SMALLER_BROADCAST, nodes, MB, ROUNDS))
    if nodes == 8:
        made += [shaped(case, nodes, SIZES[0] * MB, min(ROUNDS, 3)) for case in LATE]
    return made


SMALL = [
    row(
        f"{case.text}: {nbytes // 1000} KB, 8 nodes, links not shaped",
        "ms",
        f"{case.measure}.{nbytes}",
        {HOPLO: 1, **dict.fromkeys(RANKS, RANKS_IN_A_ROW)},
        goals=[at_most(1.5, "ms")],
        rounds=min(ROUNDS, 3),
        seconds_max=SECONDS_MAX,
    )
    for nbytes in (1_000, 32_000)
    for case in (BROADCAST, REDUCE, ALLREDUCE, GATHER, ALL_TO_ALL)
]

OWN = [
    row(
        "reduce within one node: 64 MB of each of 8 workers",
        "GB/s",
        "own_reduce",
        {
            HOPLO: 1,
            "numpy": Cell("memory", "sum", 1),
            "numpy by pieces": Cell("memory", "sum by pieces", 1),
            "memcpy": Cell("memory", "copy", 1),
        },
        size=8 * 64 * MB,
        goals=[times(0.6, "numpy")],
        rounds=ROUNDS,
        note="bytes of members a second. numpy adds arrays that lie in one process into one that is"
        " there; by pieces what is added up stays in the cache",
    )
]

NOTE_OF_DEATHS = (
    "the survivors' time. The optimum is one stream, and the time until the head has it that the"
    " node is dead. MPI ends all ranks when one is killed; with Gloo the first rank of a"
    " broadcast waits until its timeout"
)

# ------------------------------------------------------------------------------- how they are asked

failures: list[str] = []


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Whatever befalls it: the other stages are asked."""
    try:
        yield
    except Exception:
        traceback.print_exc()
        failures.append(name)


def wanted(rows: list[Shaped]) -> list[Shaped]:
    return [one for one in rows if question.wants(one.row)]


def ask_shaped(nodes: int) -> None:
    rows = wanted(rows_of(nodes))
    if not rows:
        return
    rate = rate_of(nodes)
    sizes = sorted({MB, *(size * MB for size in SIZES)})
    with stage(f"{nodes} nodes"), Place(question, nodes, rate, sizes) as place:
        place.seat(*TOGETHER)
        ask(question, rows, TOGETHER)
    for one in rows:
        one.scale()
    heavy = [one for one in rows if {RAY, DASK} & set(one.row.cells)]
    few = [one for one in heavy if nodes <= 8 and f" {SIZES[0]} MB," in one.row.name]
    for one in heavy:
        if one not in few:
            # It would take minutes, for about the same times of the optimum.
            why = "skipped: asked with the smallest members only, and with no more than 8 nodes"
            one.row.missing |= dict.fromkeys((RAY, DASK), why)
    heavy = few
    for system in (RAY, DASK):
        if heavy and system not in question.options.without:
            with stage(f"{system}, {nodes} nodes"), Place(question, nodes, rate, sizes) as place:
                place.seat(system)
                for one in heavy:
                    one.row.rounds = min(ROUNDS, 3)
                ask(question, heavy, (system,))
    for one in rows:
        question.add(one.row)


def ask_quarter() -> None:
    rows = wanted([shaped(case, 8, SIZES[0] * MB, ROUNDS) for case in QUARTER])
    if not rows:
        return
    rate = rate_of(8)
    with stage("one link at a quarter"), Place(question, 8, rate, [SIZES[0] * MB]) as place:
        place.seat(*TOGETHER)
        place.lab.shape(SLOW + 1, rate / 4)
        ask(question, rows, TOGETHER)
    for one in rows:
        one.scale()
        question.add(one.row)


def ask_small() -> None:
    rows = [one for one in SMALL if question.wants(one)]
    if rows:
        with stage("small"), Place(question, 8, None, [1_000, 32_000]) as place:
            place.seat(HOPLO, *RANKS)
            question.ask(rows)


def ask_own() -> None:
    if not any(question.wants(one) for one in OWN):
        return
    told = json.dumps({"addresses": [], "sizes": [], "slow": 0})
    question.seat(HOPLO, Seat([str(PLAYERS / "play_collectives.py"), HOPLO, told]))
    question.seat("memory", Seat([str(PLAYERS / "play_memory.py")]))
    with stage("one node"):
        question.ask(OWN)
    question.clear_seats()


# ------------------------------------------------------------------------------- a node dies


def ask_deaths() -> None:
    """Of 8 nodes one dies half way. The least is one stream, and the time until it is known."""
    nbytes = SIZES[-1] * MB
    rows = []
    for case in (BROADCAST, REDUCE):
        for how, (_, notice) in DEATHS.items():
            name = f"{case.text}, one node {how} half way: {nbytes / MB:g} MB, 8 nodes"
            took = Row(name, "s", {}, note=NOTE_OF_DEATHS)
            took.missing |= dict.fromkeys((MPI, TUNED), collectives_page.ABORTS)
            took.missing[GLOO] = collectives_page.HANGS
            known = Row(f"until it is known: {name}", "s", {}, [at_most(notice, "s")])
            rows.append((case, how, took, known))
    rows = [one for one in rows if question.wants(one[2])]
    if not rows or HOPLO in question.options.without:
        return
    with stage("a node dies"), Place(question, 8, rate_of(8), [nbytes]) as place:
        place.seat(STREAM, HOPLO)
        for case, how, took, known in rows:
            stream = []
            for _ in range(1 if QUICK else 3):
                stream.append(one_stream(nbytes))
                half = round(500 * statistics.median(stream))
                try:
                    found = one_death(place, f"dying_{case.measure}.{nbytes}", how, half)
                except PlayerError as error:
                    took.missing[HOPLO] = known.missing[HOPLO] = str(error)
                    break
                took.values.setdefault(HOPLO, []).append(found["seconds"])
                known.values.setdefault(HOPLO, []).append(found["detection"])
                least = stream[-1] + found["detection"]
                took.values.setdefault(OPTIMUM, []).append(least)
            if OPTIMUM in took.values:
                factor = 1 + 0.05 * statistics.median(stream) / took.medians[OPTIMUM]
                text = "<= optimum + 5% of one stream"
                took.goals.append(Goal(text, factor, (OPTIMUM,), at_most=True))
    for _, _, took, known in rows:
        question.add(took)
        question.add(known)


def one_stream(nbytes: int) -> float:
    player, asked = question.player(STREAM), {"measure": f"point_to_point.{nbytes}", "count": 1}
    player.ask({"do": "open", **asked})
    seconds = float(player.ask({"do": "run", **asked})["seconds"])
    player.ask({"do": "close", **asked})
    return seconds


def one_death(place: Place, measure: str, how: str, milliseconds: int) -> dict[str, float]:
    victim, number = place.lab[SLOW + 1], SLOW + 1
    signal_number, _ = DEATHS[how]
    asked = {"measure": measure, "count": milliseconds}
    player = question.player(HOPLO)
    try:
        player.ask({"do": "open", **asked})
        death = {
            "signal": signal_number,
            "pids": sorted(victim.processes()) if signal_number else [],
            "line": [] if signal_number else place.lab.cut_line(number),
        }
        place.death.write_text(json.dumps(death))
        found: dict[str, float] = player.ask({"do": "run", **asked})
        player.ask({"do": "close", **asked})
        return found
    finally:
        comes_back(place, number)


def comes_back(place: Place, number: int) -> None:
    victim = place.lab[number]
    victim.kill()
    place.lab.heal(number)
    until(lambda: not victim.processes(), what="it is dead")
    victim.join(place.joining)
    head = place.lab[1]
    until(lambda: head.states().count("ALIVE") == place.count, what="it is back")


# ------------------------------------------------------------------------------- all of it


def main() -> None:
    # Told to end, it takes its machines away first.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("bench/collectives.py: told to end"))
    for nodes in NODES:
        ask_shaped(nodes)
    if 8 in NODES:
        ask_quarter()
        ask_deaths()
        ask_small()
    ask_own()
    question.facts["links, Mbit/s each way"] = ", ".join(
        f"{nodes} nodes {rate_of(nodes) / 1e6:g}" for nodes in NODES
    )
    if packages := debian_packages():
        question.facts["Debian's packages"] = packages
    finish(question, collectives_page.draw, failures)


def debian_packages() -> str:
    """What rivals come from them, with their versions."""
    if not shutil.which("dpkg-query"):
        return ""
    line = ["dpkg-query", "-W", "-f", "${Package} ${Version}\n", "openmpi-bin", "libgloo-dev"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    return ", ".join(done.stdout.split("\n")).strip(", ")


main()
