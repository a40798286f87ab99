"""What RESULTS.md shows of collectives: all systems side by side, in times of the optimum."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harness import number

QUESTIONS, OPTIMUM = ("collectives", "collectives_figures"), "optimum"
ABORTS, HANGS = "aborts", "hangs"
"""Why a system has no time where a node dies."""

SYSTEMS = {
    "hoplo": "hoplo",
    "mpi tuned": "MPI tuned",
    "mpi": "MPI",
    "gloo": "Gloo",
    "ray": "Ray",
    "dask": "Dask",
    "bare tcp": "bare TCP",
}
COLOURS = {
    "hoplo": "#d62728",
    "mpi tuned": "#9467bd",
    "mpi": "#8c564b",
    "gloo": "#ff7f0e",
    "ray": "#1f77b4",
    "dask": "#2ca02c",
    "bare tcp": "#7f7f7f",
}
LOWEST, BAR = 0.9, 0.18
"""Where the picture's scale begins, and the width of a bar."""

PANELS = ("point to point", "broadcast", "reduce", "allreduce", "gather", "all to all")

INTRODUCTION_OF_FIGURES = [
    "Figures of papers in their form, on links of 1 Gbit/s (2 and 4 nodes), 500 Mbit/s (8),",
    "267 Mbit/s (12) and 200 Mbit/s (16): Ray (OSDI'18) figure 12a, an allreduce of large objects;",
    "Hoplite (SIGCOMM'21) figure 6, an object to another node and one back, figure 7, collectives",
    "by the number of nodes, and figure 8, members or readers that come one after the other, until",
    "the last one has what it wants. The dashed line is the optimum. In times of that:",
    "",
]
INTRODUCTION = [
    "Each node is a network namespace of this machine, with links of 1 Gbit/s (4 nodes),",
    "500 Mbit/s (8) or 200 Mbit/s (16) each way. The optimum is what the links need at least,",
    "from what one bare TCP stream takes in the same run. What the systems took is in times of",
    "that: 1.00 is all that the links give. *MPI tuned* has algorithms that were chosen by hand",
    "for these links. *Bare TCP*: each node sends each other one its part, all at once, over",
    "connections with nothing around them. hoplo encrypts what it sends, the others do not. MPI",
    "and Gloo have a group whose ranks all call the same thing at the same time, and buffers that",
    "are there; hoplo, Ray and Dask have refs, tasks and new objects. hoplo, MPI and Gloo were",
    "asked in turn; Ray and Dask, which are never idle, on links of their own. To run it: `make",
    "bench-collectives`.",
    "",
]


def shows(report: dict[str, Any], row: dict[str, Any]) -> bool:
    """Whether its row is in this table and no other."""
    return report["question"] in QUESTIONS and OPTIMUM in row["columns"]


def near_optimum(report: dict[str, Any], runs: Path) -> list[str]:
    rows = [row for row in report["rows"] if shows(report, row)]
    if not rows:
        return []
    systems = [name for name in SYSTEMS if any(name in row["columns"] for row in report["rows"])]
    is_judged = any(row["goals"] for row in rows)
    titles = ["collective", "optimum", *(SYSTEMS[name] for name in systems)]
    titles += ["goal", "reached"] * is_judged
    times = reached(runs)
    lines = [
        *(INTRODUCTION if is_judged else INTRODUCTION_OF_FIGURES),
        f"| {' | '.join(titles)} |",
        f"|{'---|' * len(titles)}",
    ]
    notes: dict[str, list[str]] = {}
    for row in rows:
        optimum = row["columns"][OPTIMUM]["median"]
        cells = [row["name"], f"{number(optimum)} s"]
        cells += [ratio(row, name, optimum) for name in systems]
        cells += [goal["text"].replace("x optimum", "") for goal in row["goals"]]
        cells += [times.get(row["name"], verdict(row))] * is_judged
        lines.append(f"| {' | '.join(cells)} |")
        if row["note"]:
            notes.setdefault(row["note"], []).append(row["name"].partition(":")[0])
        for why in dict.fromkeys(row["missing"].values()):
            if why in (ABORTS, HANGS):
                continue
            systems_of = [name for name, told in row["missing"].items() if told == why]
            told = f"{', '.join(SYSTEMS.get(name, name) for name in systems_of)}: "
            notes.setdefault(told + first_line(why), []).append(row["name"])
    told = [f"- {'; '.join(dict.fromkeys(names))}: {note}" for note, names in notes.items()]
    return [*lines, "", *told, ""]


def ratio(row: dict[str, Any], system: str, optimum: float) -> str:
    if system not in row["columns"]:
        why = row["missing"].get(system)
        return why if why in (ABORTS, HANGS) else "-"
    cell = row["columns"][system]
    text = f"{cell['median'] / optimum:.2f}"
    if system != "hoplo":
        return text
    return f"**{text}** ({cell['low'] / optimum:.2f} .. {cell['high'] / optimum:.2f})"


def verdict(row: dict[str, Any]) -> str:
    ratios = [goal["ratio"] for goal in row["goals"]]
    return "-" if None in ratios else "yes" if min(ratios) >= 1 else "**no**"


def reached(path: Path) -> dict[str, str]:
    """By row: in how many of the whole runs its goals were reached."""
    runs = json.loads(path.read_text()) if path.exists() else []
    found: dict[str, list[bool]] = {}
    for run in runs:
        for goal in run["goals"]:
            is_reached = goal["ratio"] is not None and goal["ratio"] >= 1
            found.setdefault(goal["row"], []).append(is_reached)
    return {
        name: f"{sum(told)} of {len(told)}" if all(told) else f"**{sum(told)} of {len(told)}**"
        for name, told in found.items()
    }


def first_line(why: str) -> str:
    return why.strip().splitlines()[0].removeprefix("skipped: ")[:160] if why.strip() else "-"


# ------------------------------------------------------------------------------- the picture


def draw(report: dict[str, Any], path: Path) -> None:
    """By collective: times of the optimum over the number of nodes; then what befalls members."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    found = points(report)
    if not found:
        return
    # That which was asked most often: of the largest clusters, and of all systems.
    sizes = [size for (_, size, _), systems in found.items() for _ in systems]
    size = max(sorted(set(sizes)), key=sizes.count)
    figure, axes = pyplot.subplots(2, 4, figsize=(14, 6.4))
    for place, name in zip(axes.flat, PANELS, strict=False):
        lines(place, name, size, found)
    bars(axes.flat[6], "members or readers 0.1 s apart", "0.1 s apart", report)
    bars(axes.flat[7], "one link at a quarter", "at a quarter", report)
    legend(figure)
    figure.tight_layout(rect=(0, 0, 1, 0.94))
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def points(report: dict[str, Any]) -> dict[tuple[str, str, int], dict[str, float]]:
    """By collective, size and nodes: each system's times of the optimum."""
    found = {}
    for row in report["rows"]:
        name, _, rest = row["name"].partition(": ")
        if name in PANELS and shows(report, row):
            size, nodes = rest.split(", ")
            found[name, size, int(nodes.split()[0])] = ratios(row)
    return found


def ratios(row: dict[str, Any]) -> dict[str, float]:
    optimum = row["columns"][OPTIMUM]["median"]
    return {
        name: row["columns"][name]["median"] / optimum for name in SYSTEMS if name in row["columns"]
    }


def lines(place: Any, name: str, size: str, found: dict[Any, dict[str, float]]) -> None:
    nodes = sorted(count for known, of, count in found if known == name and of == size)
    for system in SYSTEMS:
        there = [(n, found[name, size, n][system]) for n in nodes if system in found[name, size, n]]
        if there:
            width = 2.4 if system == "hoplo" else 1.2
            place.plot(*zip(*there, strict=True), "o-", color=COLOURS[system], linewidth=width)
    limit(place, f"{name}, {size}")
    place.set_xscale("log", base=2)
    place.set_xticks(nodes, [str(count) for count in nodes])
    place.minorticks_off()
    place.set_xlabel("nodes")


def bars(place: Any, title: str, wanted: str, report: dict[str, Any]) -> None:
    rows = [row for row in report["rows"] if wanted in row["name"] and shows(report, row)]
    labels = []
    for at, row in enumerate(rows):
        known = ratios(row)
        labels.append(row["name"].partition(":")[0].partition(",")[0].replace(" of the ", "\n"))
        for turn, (system, value) in enumerate(known.items()):
            middle = at + BAR * (turn + 0.5 - len(known) / 2)
            place.bar(middle, value - LOWEST, BAR, bottom=LOWEST, color=COLOURS[system])
    place.set_xticks(range(len(labels)), labels, fontsize=8)
    limit(place, title)


def draw_figures(report: dict[str, Any], path: Path) -> None:
    """Seconds of each system, panel by panel, as the rows' names say: "panel: x"."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels: dict[str, dict[str, dict[str, Any]]] = {}
    for row in report["rows"]:
        if shows(report, row):
            panel, _, x = row["name"].partition(": ")
            panels.setdefault(panel, {})[x] = row["columns"]
    if not panels:
        return
    height = -(-len(panels) // 4)
    figure, axes = pyplot.subplots(height, 4, figsize=(14, 3.1 * height + 0.4), squeeze=False)
    for place in axes.flat[len(panels) :]:
        place.set_visible(False)
    for place, (panel, found) in zip(axes.flat, panels.items(), strict=False):
        for system in (*SYSTEMS, OPTIMUM):
            there = [
                (at, columns[system]["median"])
                for at, columns in enumerate(found.values())
                if system in columns
            ]
            if not there:
                continue
            if system == OPTIMUM:
                place.plot(*zip(*there, strict=True), "--", color="#444444", linewidth=0.8)
                continue
            width = 2.4 if system == "hoplo" else 1.2
            place.plot(*zip(*there, strict=True), "o-", color=COLOURS[system], linewidth=width)
        place.set_xticks(range(len(found)), list(found), fontsize=8)
        place.set_title(panel, fontsize=10)
        place.set_yscale("log")
        place.set_ylabel("seconds", fontsize=8)
        place.grid(axis="y", color="#dddddd")
    legend(figure)
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.4 / (3.1 * height + 0.4)))
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def legend(figure: Any) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=COLOURS[system], marker="o", label=text)
        for system, text in SYSTEMS.items()
    ]
    figure.legend(handles=handles, loc="upper center", ncols=len(SYSTEMS), frameon=False)


def limit(place: Any, title: str) -> None:
    from matplotlib.ticker import NullLocator, ScalarFormatter

    place.axhline(1, color="#444444", linestyle="--", linewidth=0.8)
    place.set_title(title, fontsize=10)
    place.set_yscale("log", base=2)
    place.set_ylim(LOWEST, 32)
    place.set_yticks([1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24])
    place.yaxis.set_major_formatter(ScalarFormatter())
    place.yaxis.set_minor_locator(NullLocator())
    place.set_ylabel("times of the optimum", fontsize=8)
    place.grid(axis="y", color="#dddddd")
    place.set_axisbelow(True)
