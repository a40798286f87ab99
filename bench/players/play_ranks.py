"""MPI, Gloo, or a bare stream, on the machines of a lab: collectives of ranks.

Its argument is JSON: the command lines that start the ranks, how many ranks there are, the socket
where they meet this, the sizes, and the number of the rank whose link is slow.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable

from player import Player
from ranks import Ranks, Spans

TOLD = json.loads(sys.argv[1])
GAP = 0.1
"""Seconds between two ranks that come late."""
GAPS_MS = (0, 50, 100, 200)
"""Those of a figure."""

play = Player()
ranks: list[Ranks] = []
"""None until the first measure needs them."""


def last(spans: Spans) -> float:
    """Until the last one has what it wants."""
    return max(end for _, end in spans) - min(began for began, _ in spans)


def at_root(spans: Spans) -> float:
    """Until the first rank has the result."""
    return spans[0][1] - min(began for began, _ in spans)


def mean_of_receivers(spans: Spans) -> float:
    return sum(end - began for began, end in spans[1:]) / (len(spans) - 1)


def root_from_last(spans: Spans) -> float:
    """From when the last one came."""
    return spans[0][1] - max(began for began, _ in spans)


def all_from_last(spans: Spans) -> float:
    return max(end for _, end in spans) - max(began for began, _ in spans)


def all_but_the_slow_one(spans: Spans) -> float:
    fast = [span for rank, span in enumerate(spans) if rank != TOLD["slow"]]
    return max(end for _, end in fast) - min(began for began, _ in spans)


CASES: dict[str, tuple[str, float | None, Callable[[Spans], float]]] = {
    "point_to_point": ("point_to_point", None, at_root),
    "round_trip": ("round_trip", None, at_root),
    "broadcast": ("broadcast", None, last),
    "reduce": ("reduce", None, at_root),
    "allreduce": ("allreduce", None, last),
    "gather": ("gather", None, at_root),
    "all_to_all": ("all_to_all", None, last),
    "late_broadcast": ("broadcast", GAP, mean_of_receivers),
    "late_reduce": ("reduce", GAP, root_from_last),
    "late_allreduce": ("allreduce", GAP, all_from_last),
    "fast_broadcast": ("broadcast", None, all_but_the_slow_one),
    "slow_allreduce": ("allreduce", None, last),
}
"""By name: the operation, seconds between ranks that come late, what is told of it."""

for _gap in GAPS_MS:
    CASES[f"broadcast_apart_{_gap}"] = ("broadcast", _gap / 1e3, last)
    CASES[f"reduce_apart_{_gap}"] = ("reduce", _gap / 1e3, at_root)
    CASES[f"allreduce_apart_{_gap}"] = ("allreduce", _gap / 1e3, last)


def measured(
    operation: str,
    gap: float | None,
    told_of: Callable[[Spans], float],
    nbytes: int,
    count: int,
) -> float:
    """So often one after the other: of the first ones the ranks have just been woken up."""
    began = time.perf_counter() + GAP
    at = [] if gap is None else [began + gap * rank for rank in range(TOLD["count"])]
    found = [told_of(spans) for spans in ranks[0].told(f"{operation} {nbytes} {count}", at)]
    return count * statistics.median(found)


for _name, _case in CASES.items():
    for _nbytes in TOLD["sizes"]:

        @play.measure(f"{_name}.{_nbytes}")
        def _(case=_case, nbytes=_nbytes):
            if not ranks:
                ranks.append(Ranks(TOLD["lines"], TOLD["count"], TOLD["socket"]))
            yield lambda count: measured(*case, nbytes, count)


if __name__ == "__main__":
    play.serve(lambda: [one.close() for one in ranks])
