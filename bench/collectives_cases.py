"""Collectives on shaped links as rows: what each needs at least, and how near to that it is to be.

A row's optimum is so many times what a bare TCP stream takes for one member.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collectives_places import DASK, GLOO, HOPLO, MPI, RAY, STREAM, STREAMS, TUNED
from harness import RESULTS, Cell, Goal, Question, Row

MB = 10**6
OPTIMUM = "optimum"
RANKS = (MPI, TUNED, GLOO)
TOGETHER = (STREAM, STREAMS, HOPLO, *RANKS)
"""They sleep while they are not asked, and sit side by side."""

ALL = (HOPLO, *RANKS, RAY, DASK)
RATES = {4: 1e9, 8: 500e6, 16: 200e6}
"""Bits a second of each link, by the number of nodes: together no more than the cores move."""

SECONDS_MAX = 1.5
"""A rival that takes long in a row has three rounds there, and not all."""

LONG = 2
"""What takes so many seconds has three rounds, of which the first counts as well."""


@dataclass(frozen=True)
class Case:
    """A collective. `factor`: its optimum, in times of one stream."""

    measure: str
    text: str
    factor: Callable[[int], float]
    goal: Callable[[int], float]
    systems: Sequence[str] = ALL
    note: str = ""


@dataclass
class Shaped:
    """A row, and how many times its optimum is what is measured in its place."""

    row: Row
    factor: float
    before: float = 0.0
    """Seconds that pass until there is all that is needed."""

    def scale(self) -> None:
        for table in (self.row.values, self.row.rounds_medians):
            if OPTIMUM in table:
                table[OPTIMUM] = [self.before + self.factor * value for value in table[OPTIMUM]]


def for_many(few: float, many: float) -> Callable[[int], float]:
    return lambda nodes: many if nodes >= 16 else few


def always(value: float) -> Callable[[int], float]:
    return lambda _: value


def rate_of(nodes: int) -> float:
    return RATES.get(nodes, min(RATES[4], 3.2e9 / nodes))


def near(factor: float) -> Goal:
    return Goal(f"<= {factor:g}x optimum", factor, (OPTIMUM,), at_most=True)


def shaped(case: Case, nodes: int, nbytes: int, rounds: int) -> Shaped:
    cells = {system: Cell(system, f"{case.measure}.{nbytes}", 1) for system in case.systems}
    cells[OPTIMUM] = Cell(STREAM, f"point_to_point.{nbytes}", 1)
    takes_long = case.factor(nodes) * nbytes * 8 / rate_of(nodes) > LONG
    made = Row(
        f"{case.text}: {nbytes / MB:g} MB, {nodes} nodes",
        "s",
        cells,
        [near(case.goal(nodes))],
        rounds=min(rounds, 3) if takes_long else rounds,
        seconds_max=SECONDS_MAX,
        warm_up=not takes_long,
        note=case.note,
    )
    return Shaped(made, case.factor(nodes))


def ask(question: Question, rows: Iterable[Shaped], systems: Sequence[str]) -> None:
    for one in rows:
        cells = {column: cell for column, cell in one.row.cells.items() if cell.player in systems}
        if cells:
            began = time.monotonic()
            question.measure(one.row, cells)
            took = time.monotonic() - began
            print(f"   ... {one.row.name}: {', '.join(cells)}: {took:.0f} s", flush=True)


def finish(
    question: Question, draw: Callable[[dict[str, Any], Path], None], failures: Sequence[str]
) -> None:
    """Writes what was measured and, unless only some of it was asked for, its picture."""
    question.finish()
    if not question.options.only:
        report = json.loads((RESULTS / f"{question.name}.json").read_text())
        draw(report, RESULTS / f"{question.name}.png")
    if failures:
        sys.exit(f"bench/{question.name}.py: something failed in: {'; '.join(failures)}")


# ------------------------------------------------------------------------------- the cases

BESIDE_RANKS = (HOPLO, *RANKS)

POINT_TO_POINT = Case("point_to_point", "point to point", always(1), always(1.03))
BROADCAST = Case("broadcast", "broadcast", always(1), for_many(1.05, 1.08))
REDUCE = Case("reduce", "reduce", always(1), for_many(1.05, 1.08))
ALLREDUCE = Case("allreduce", "allreduce", lambda n: 2 * (n - 1) / n, always(1.05))
GATHER = Case("gather", "gather", lambda n: n - 1, always(1.05))
ALL_TO_ALL = Case(
    "all_to_all", "all to all", lambda n: (n - 1) / n, always(1.05), systems=(*ALL, STREAMS)
)
SMALLER_BROADCAST = Case("broadcast", "broadcast", always(1), for_many(1.15, 1.25), BESIDE_RANKS)
"""Of 1 MB."""

LATE = [
    Case(
        "late_broadcast",
        "broadcast, readers 0.1 s apart, mean of a reader",
        always(1),
        always(1.08),
        BESIDE_RANKS,
        "from when a reader came",
    ),
    Case(
        "late_reduce",
        "reduce, members 0.1 s apart",
        always(1),
        always(1.08),
        BESIDE_RANKS,
        "from when the last member was there",
    ),
    Case(
        "late_first_half",
        "reduce of the first half, members 0.1 s apart",
        always(1),
        always(1.08),
        (HOPLO,),
        "from when the last one of those was there; no other system has it",
    ),
    Case(
        "late_allreduce",
        "allreduce, members 0.1 s apart",
        always(1),
        always(1.15),
        BESIDE_RANKS,
        "from when the last member was there",
    ),
]

QUARTER = [
    Case(
        "fast_broadcast",
        "broadcast, one link at a quarter, the last of the others",
        always(1),
        always(1.15),
        BESIDE_RANKS,
    ),
    Case(
        "slow_allreduce",
        "allreduce, one link at a quarter",
        always(4),
        always(1.15),
        BESIDE_RANKS,
        "the optimum is what the slow link needs for one member",
    ),
]
