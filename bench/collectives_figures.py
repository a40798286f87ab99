"""Figures of papers in their form, on links as small as ours: seconds, beside the optimum.

    python bench/collectives_figures.py [--only "round trip"] [--without ray]

Ray (OSDI'18) figure 12a: allreduce of 10 MB, 100 MB and 1 GB; here over 4 nodes at 1 Gbit/s, there
over 16 at 25 Gbit/s. Hoplite (SIGCOMM'21) figure 6: an object goes to another node, and one comes
back. Figure 7: broadcast, gather, reduce and allreduce of 1 MB and 8 MB over 4 to 16 nodes; there
of 1 MB to 1 GB. Figure 8: members or readers come one after the other, over 8 nodes with 8 MB;
there over 16 with 1 GB. How it is measured is told in `collectives.py`.
"""

from __future__ import annotations

import signal
import sys
import traceback
from collections.abc import Iterable, Sequence

import collectives_page
from collectives_cases import MB, OPTIMUM, RANKS, TOGETHER, Shaped, ask, finish, rate_of
from collectives_places import DASK, HOPLO, RAY, STREAM, Place
from harness import Cell, Question, Row
from lab import why_not

if why := why_not():
    sys.exit(f"bench/collectives_figures.py: {why}")

question = Question("collectives_figures", "Collectives: the papers' figures", {})
GAPS_MS = (0, 50, 100, 200)
NODES = (4, 8, 12, 16)
SIZES = (MB, 8 * MB)
failures: list[str] = []


def figure_row(
    panel: str,
    x: str,
    measure: str,
    nbytes: int,
    systems: Iterable[str],
    factor: float,
    before: float = 0.0,
) -> Shaped:
    cells = {system: Cell(system, f"{measure}.{nbytes}", 1) for system in systems}
    cells[OPTIMUM] = Cell(STREAM, f"point_to_point.{nbytes}", 1)
    return Shaped(Row(f"{panel}: {x}", "s", cells, rounds=3, seconds_max=1.5), factor, before)


def size(nbytes: int) -> str:
    for unit, text in ((1000 * MB, "GB"), (MB, "MB")):
        if nbytes >= unit:
            return f"{nbytes / unit:g} {text}"
    return f"{nbytes / 1000:g} KB"


def measure(nodes: int, rows: list[Shaped], systems: Sequence[str], rate: float) -> None:
    """In a place of its own; whatever befalls it, the others are measured."""
    rows = [one for one in rows if question.wants(one.row)]
    systems = [one for one in systems if one not in question.options.without]
    if not rows or not systems:
        return
    sizes = sorted({int(cell.measure.rpartition(".")[2]) for one in rows for cell in cells_of(one)})
    try:
        with Place(question, nodes, rate, sizes) as place:
            place.seat(*systems)
            ask(question, rows, systems)
    except Exception:
        traceback.print_exc()
        failures.append(f"{', '.join(systems)} with {nodes} nodes")


def cells_of(one: Shaped) -> Iterable[Cell]:
    return one.row.cells.values()


def add(rows: list[Shaped]) -> None:
    for one in rows:
        if question.wants(one.row):
            one.scale()
            question.add(one.row)


# ------------------------------------------------------------------------------- the figures


def allreduces() -> None:
    """Ray's figure 12a."""
    panel, factor = "allreduce over 4 nodes", 1.5
    systems = (HOPLO, *RANKS, RAY)
    rows = [
        figure_row(panel, size(nbytes), "allreduce", nbytes, systems, factor)
        for nbytes in (10 * MB, 100 * MB)
    ]
    measure(4, rows, TOGETHER, rate_of(4))
    measure(4, rows, (RAY,), rate_of(4))
    # Buffers of all systems at once would not fit; and it is long enough for one round.
    large = figure_row(panel, size(1000 * MB), "allreduce", 1000 * MB, (HOPLO, *RANKS), factor)
    large.row.rounds, large.row.warm_up = 1, False
    for system in TOGETHER:
        measure(4, [large], (system,), rate_of(4))
    add([*rows, large])


def round_trips() -> None:
    """Hoplite's figure 6."""
    rows = [
        figure_row("round trip", size(nbytes), "round_trip", nbytes, (HOPLO, *RANKS, RAY, DASK), 2)
        for nbytes in (1000, MB, 100 * MB)
    ]
    for systems in (TOGETHER, (RAY,), (DASK,)):
        measure(2, rows, systems, rate_of(4))
    add(rows)


def by_nodes() -> None:
    """Hoplite's figure 7."""
    made = {}
    for nodes in NODES:
        factors = {
            "broadcast": 1,
            "gather": nodes - 1,
            "reduce": 1,
            "allreduce": 2 * (nodes - 1) / nodes,
        }
        made[nodes] = [
            figure_row(
                f"{case} of {size(nbytes)}", f"{nodes} nodes", case, nbytes, (HOPLO, *RANKS), factor
            )
            for nbytes in SIZES
            for case, factor in factors.items()
        ]
        measure(nodes, made[nodes], TOGETHER, rate_of(nodes))
    # By panel.
    add([row for panel in zip(*made.values(), strict=True) for row in panel])


def one_after_the_other() -> None:
    """Hoplite's figure 8."""
    nodes, nbytes, rows = 8, 8 * MB, []
    for case in ("broadcast", "reduce", "allreduce"):
        for gap in GAPS_MS:
            # Who comes last has all to send or to receive. An allreduce at once is bound by more.
            factor = 2 * (nodes - 1) / nodes if case == "allreduce" and gap == 0 else 1
            panel, x = f"{case} over 8 nodes, one after the other", f"{gap} ms apart"
            before = gap / 1e3 * (nodes - 1)
            name = f"{case}_apart_{gap}"
            rows.append(figure_row(panel, x, name, nbytes, (HOPLO, *RANKS), factor, before))
    measure(nodes, rows, TOGETHER, rate_of(nodes))
    add(rows)


def main() -> None:
    # Told to end, it takes its machines away first.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("bench/collectives_figures.py: told to end"))
    allreduces()
    round_trips()
    one_after_the_other()
    by_nodes()
    finish(question, collectives_page.draw_figures, failures)


main()
