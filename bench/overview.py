"""Pictures of RESULTS.md: hoplo, its rivals and the bare machine on one log scale."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness import LIMITS

Shown = tuple[str, str, str]
"""Question, row, and what the picture calls it; all of them are rates."""

SHOWN: Sequence[Shown] = (
    ("tasks", "task, submit + get, one at a time", "a task and its result, one at a time"),
    ("tasks", "1,000 tasks, then get all", "1,000 tasks, then all results"),
    ("tasks", "chain of 100 dependent tasks", "a chain of 100 tasks"),
    ("actors", "actor call, one at a time", "a method call, one at a time"),
    ("actors", "1,000 actor calls, then get all", "1,000 method calls, then all results"),
    ("actors", "create an actor, call it, kill it", "create an actor, call it, kill it"),
    ("objects", "put of 100 KiB", "put of 100 KiB"),
    ("objects", "task with 10 MiB in and out, by ref", "a task with 10 MiB in and 10 MiB out"),
)


def draw(reports: list[dict[str, Any]], path: Path, rows: Sequence[Shown] = SHOWN) -> None:
    """Draws each system's median of each of these rows; one that was not measured is left out."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    found = {(report["question"], row["name"]): row for report in reports for row in report["rows"]}
    shown = [
        (found[question, name], text) for question, name, text in rows if (question, name) in found
    ]
    if not shown:
        return
    series = {
        "hoplo": ("o", "#d62728", 110),
        "Ray": ("s", "#1f77b4", 60),
        "Dask": ("^", "#2ca02c", 60),
        "bare": ("|", "#444444", 260),
    }
    places: dict[str, tuple[list[float], list[int]]] = {name: ([], []) for name in series}
    for height, (row, _) in enumerate(reversed(shown)):
        for name, rate in rates(row).items():
            places[name][0].append(rate)
            places[name][1].append(height)
    figure, axes = pyplot.subplots(figsize=(9, 0.55 * len(shown) + 1.4))
    for name, (marker, colour, size) in series.items():
        if not places[name][0]:
            continue
        axes.scatter(*places[name], marker=marker, c=colour, s=size, label=name, zorder=3)
    axes.set_xscale("log")
    axes.set_yticks(range(len(shown)), [text for _, text in reversed(shown)])
    axes.set_xlabel("per second (log scale; to the right is faster)")
    axes.grid(axis="x", which="major", color="#dddddd")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.legend(loc="upper center", bbox_to_anchor=(0.35, 1.12), ncols=4, frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def rates(row: dict[str, Any]) -> dict[str, float]:
    """What of a row the picture shows. Of several bare columns, the best."""
    medians = {name: cell["median"] for name, cell in row["columns"].items()}
    bare = [medians[name] for name in LIMITS if name in medians]
    named = {"hoplo": medians.get("hoplo"), "Ray": medians.get("ray"), "Dask": medians.get("dask")}
    named["bare"] = max(bare, default=None)
    return {name: rate for name, rate in named.items() if rate is not None}
