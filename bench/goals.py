"""Writes `docs/internals/goals.md`: how much of each goal of our plan hoplo reached, run by run."""

from typing import Any

from harness import CLUSTER, COLLECTIVES, CONTROL, FAULTS, HERE, SCALE, number

WHY = HERE / "goals_cluster.md"
"""The arithmetic of several nodes, written by hand: the last section."""


def page(reports: list[dict[str, Any]], runs: list[list[dict[str, Any]]]) -> list[str]:
    reached, judged = tally(reports)
    repeated = any(len(each) > 1 for each in runs)
    return [
        "# Goals",
        "",
        "How fast our own plan wants hoplo to be, and how much of that it reached: 1 or more is",
        "reached. Written by `make bench`, `make bench-control`, `make bench-cluster`,",
        "`make bench-collectives` and `make bench-scale` from the same runs as",
        "[the benchmarks](../../bench/RESULTS.md), where machine and noise are told.",
        "",
        f"**{reached} of {judged} goals reached{' in the last run' if repeated else ''}.**",
        "",
        *(line for each in runs for line in several(each)),
        *last(reports),
        *WHY.read_text().splitlines(),
    ]


def goals_of(report: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"question": report["question"], "row": row["name"], "text": g["text"], "ratio": g["ratio"]}
        for row in report["rows"]
        for g in row["goals"]
    ]


def several(runs: list[dict[str, Any]]) -> list[str]:
    """How much of each goal each of several whole runs reached."""
    if len(runs) < 2:
        return []
    ratios: dict[tuple[str, str, str], list[float | None]] = {}
    for at, run in enumerate(runs):
        for goal in run["goals"]:
            key = goal["question"], goal["row"], goal["text"]
            ratios.setdefault(key, [None] * len(runs))[at] = goal["ratio"]
    # A run that failed has no goals, and reached none.
    if not ratios:
        return []
    always = sum(all(is_reached(ratio) for ratio in found) for found in ratios.values())
    dates = ", ".join(f"{run['date']} ({run['seconds'] / 60:.0f} min)" for run in runs)
    question, _, _ = next(iter(ratios))
    names = {
        **dict.fromkeys(CONTROL, "the control store"),
        **dict.fromkeys(CLUSTER, "several nodes"),
        **dict.fromkeys(FAULTS, "nodes that die"),
        **dict.fromkeys(COLLECTIVES, "collectives"),
        **dict.fromkeys(SCALE, "very many nodes"),
    }
    of = f" of {names[question]}" if question in names else ""
    lines = [
        f"## {len(runs)} whole runs{of}, one after the other",
        "",
        f"How much of each goal each run reached; they ended at {dates}.",
        "",
        f"**{always} of {len(ratios)} goals reached in all {len(runs)} runs.**",
        "",
        f"| measure | goal | {' | '.join(f'run {at + 1}' for at in range(len(runs)))} | reached |",
        f"|---|---|{'---|' * len(runs)}---|",
    ]
    for (_, name, text), found in ratios.items():
        times = sum(is_reached(ratio) for ratio in found)
        verdict = f"{times} of {len(runs)}"
        verdict = verdict if times == len(runs) else f"**{verdict}**"
        lines.append(f"| {name} | {text} | {' | '.join(map(of_it, found))} | {verdict} |")
    return [*lines, ""]


def last(reports: list[dict[str, Any]]) -> list[str]:
    """Every goal of the last run, with what was measured."""
    lines = [
        "## The last run",
        "",
        "| measure | hoplo | goal: how much of it | reached |",
        "|---|---|---|---|",
    ]
    for report in reports:
        for row in report["rows"]:
            if not row["goals"]:
                continue
            hoplo = row["columns"].get("hoplo")
            value = f"{number(hoplo['median'])} {row['unit']}" if hoplo else "-"
            goals = "; ".join(f"{goal['text']}: {of_it(goal['ratio'])}" for goal in row["goals"])
            lines.append(f"| {row['name']} | {value} | {goals} | {verdict(row)} |")
    return [*lines, ""]


def verdict(row: dict[str, Any]) -> str:
    ratios = [goal["ratio"] for goal in row["goals"]]
    if not ratios:
        return "-"
    if any(ratio is None for ratio in ratios):
        return "not measured"
    return "yes" if min(ratios) >= 1 else "**no**"


def tally(reports: list[dict[str, Any]]) -> tuple[int, int]:
    ratios = [
        goal["ratio"] for report in reports for row in report["rows"] for goal in row["goals"]
    ]
    return sum(map(is_reached, ratios)), len(ratios)


def is_reached(ratio: float | None) -> bool:
    return ratio is not None and ratio >= 1


def of_it(ratio: float | None) -> str:
    if ratio is None:
        return "not measured"
    return "over 100" if ratio > 100 else f"{ratio:.2f}"
