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


CASES: dict[str, tuple[str, bool, Callable[[Spans], float]]] = {
    "point_to_point": ("point_to_point", False, at_root),
    "broadcast": ("broadcast", False, last),
    "reduce": ("reduce", False, at_root),
    "allreduce": ("allreduce", False, last),
    "gather": ("gather", False, at_root),
    "all_to_all": ("all_to_all", False, last),
    "late_broadcast": ("broadcast", True, mean_of_receivers),
    "late_reduce": ("reduce", True, root_from_last),
    "late_allreduce": ("allreduce", True, all_from_last),
    "fast_broadcast": ("broadcast", False, all_but_the_slow_one),
    "slow_allreduce": ("allreduce", False, last),
}
"""By name: the operation, whether a rank comes each tenth of a second, what is told of it."""


def measured(
    operation: str, late: bool, told_of: Callable[[Spans], float], nbytes: int, count: int
) -> float:
    """So often one after the other: of the first ones the ranks have just been woken up."""
    began = time.perf_counter() + GAP
    at = [began + GAP * rank for rank in range(TOLD["count"])] if late else []
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
