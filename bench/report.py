"""Writes RESULTS.md, for users, from what the questions left in `results/`.

How much of our own goals was reached is another page, for us: `goals.py`.
"""

import json
import sys
from pathlib import Path
from typing import Any

import collectives_page
import goals
import overview
from harness import (
    CLUSTER,
    COLLECTIVES,
    CONTROL,
    FAULTS,
    FIGURES,
    HERE,
    LIMITS,
    NOT_INSTALLED,
    ORDER,
    RESULTS,
    SCALE,
    number,
)

OWN = ("one submitter", "1 MiB", "hoplo, 2 threads")
"""Columns that are hoplo again, in another way."""

RUNS = RESULTS / "runs.json"
"""The goals' ratios of each whole run of `run_all.py`, the last run last."""

CONTROL_RUNS = RESULTS / "runs_control.json"
"""Those of `run_all.py --control`."""

CLUSTER_RUNS = RESULTS / "runs_cluster.json"
"""Those of `run_all.py --cluster`."""

FAULTS_RUNS = RESULTS / "runs_faults.json"
"""Those of `run_all.py --faults`."""

COLLECTIVES_RUNS = RESULTS / "runs_collectives.json"
"""Those of `run_all.py --collectives`."""

SCALE_RUNS = RESULTS / "runs_scale.json"
"""Those of `run_all.py --scale`."""

LOWER_IS_BETTER = ("s", "ms", "us", "bytes", "MB", "% core", "")

PUBLISHED = (
    ("task, submit + get, one at a time", "800 /s", "tasks"),
    ("1,000 tasks, then get all", "7,035 /s", "tasks"),
    ("actor call, one at a time", "1,705 /s", "actors"),
    ("1,000 actor calls, then get all", "7,446 /s", "actors"),
    ("put of 100 MiB", "19.3 GB/s", "objects"),
)
"""Ray's own figures, from its 64-core machine."""


def main() -> None:
    reports = [
        json.loads(path.read_text())
        for name in ORDER + CONTROL + CLUSTER + FAULTS + COLLECTIVES + FIGURES + SCALE
        if (path := RESULTS / f"{name}.json").exists()
    ]
    if not reports:
        raise SystemExit("no results: run `make bench` first")
    runs = [
        json.loads(path.read_text())
        for path in (
            RUNS,
            CONTROL_RUNS,
            CLUSTER_RUNS,
            FAULTS_RUNS,
            COLLECTIVES_RUNS,
            SCALE_RUNS,
        )
        if path.exists()
    ]
    quick = "--quick" in sys.argv
    overview.draw(reports, RESULTS / "overview.png")
    write((RESULTS if quick else HERE) / "RESULTS.md", document(reports))
    internals = HERE.parent / "docs" / "internals"
    write((RESULTS if quick else internals) / "goals.md", goals.page(reports, runs))


def write(path: Path, lines: list[str]) -> None:
    path.write_text("\n".join(lines).rstrip("\n") + "\n")
    print(f"written: {path.relative_to(HERE.parent)}")


def document(reports: list[dict[str, Any]]) -> list[str]:
    return [
        "# How fast hoplo is",
        "",
        "![Calls a second: hoplo, Ray, Dask and the bare machine](results/overview.png)",
        "",
        "All systems of a row ran in the same run on the same machine, round by round in turn.",
        "Numbers are medians; the range behind hoplo's is from its 10th to its 90th percentile.",
        "*Bare* is what this machine does with no system at all: a ring in shared memory between",
        "two Python processes, a copy in memory, the same work in one process, a fork. (That",
        "ring sleeps whenever it waits. hoplo looks for a moment before it sleeps, so one call at",
        "a time is faster.) Between nodes it is one connection with nothing around it. To run it:",
        "`make bench`; of the control store `make bench-control`, of several nodes",
        "`make bench-cluster`, of nodes that die `make bench-faults`, of collectives",
        "`make bench-collectives`, of very many nodes `make bench-scale` (simulated, with costs",
        "that were measured).",
        "",
        *absent(reports),
        *lacking(reports),
        *busy(reports[0]),
        *(line for report in reports for line in section(report)),
        *published(reports),
        *setting(reports),
        *figures(reports),
    ]


def setting(reports: list[dict[str, Any]]) -> list[str]:
    # The rivals are where these run; the control store has its own Python.
    last = [report for report in reports if report["question"] in ORDER][-1:] or reports
    machine, versions = last[-1]["machine"], last[-1]["versions"]
    commits = dict.fromkeys(report["commit"] for report in reports)
    lines = [
        "## The machine",
        "",
        "| what | |",
        "|---|---|",
        f"| machine | {machine['cpus']} cores of {machine['cpu']}"
        f"{' (virtual)' if machine['virtual'] else ''}, {machine['memory_gib']} GiB,"
        f" Linux {machine['kernel']}, Python {machine['python']} |",
        f"| date, commit | {last[-1]['date']}, {', '.join(commits)} |",
        f"| versions | {', '.join(f'{name} {version}' for name, version in versions.items())} |",
        "",
        "How noisy it was, program by program: a fixed piece of work, its median and its 95th"
        " percentile over its best; the load before and after (its own included); the time that the"
        " hypervisor took; how long the other processor takes to wake up, before and after.",
        "",
        "| program | median | 95th | load before | after | stolen | wake-up before | after |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for report in reports:
        noise = report["noise"]
        lines.append(
            f"| {report['question']}{' (quick: tiny counts)' if report['quick'] else ''}"
            f" | {noise['fixed work, median over best']:.2f}"
            f" | {noise['fixed work, 95th percentile over best']:.2f}"
            f" | {noise['load before']:.1f} | {noise.get('load after', 0):.1f}"
            f" | {noise['stolen %']:.1f}%"
            f" | {wake_up(noise, 'before')} | {wake_up(noise, 'after')} |"
        )
    return [*lines, ""]


def wake_up(noise: dict[str, float], when: str) -> str:
    """Reports of before 2026-11-26 do not have it."""
    us = noise.get(f"wake-up {when}, us")
    return "-" if us is None else f"{us:.0f} us"


def absent(reports: list[dict[str, Any]]) -> list[str]:
    """Programs that ended without a result."""
    names = [name for name in ORDER if name not in {report["question"] for report in reports}]
    return [f"**These programs failed, their rows are missing: {', '.join(names)}.**", ""] * bool(
        names
    )


def lacking(reports: list[dict[str, Any]]) -> list[str]:
    """Rivals that were not there: a goal that needs one is not reached."""
    rivals = [report["versions"] for report in reports if report["question"] in ORDER]
    names = sorted({n for found in rivals for n, v in found.items() if v == NOT_INSTALLED})
    return [f"**Not installed, so without figures: {', '.join(names)}.**", ""] * bool(names)


def busy(first: dict[str, Any]) -> list[str]:
    """What else ran before the first program began; later on the load is our own as well."""
    load = first["noise"]["load before"]
    if load < 0.5 * first["machine"]["cpus"]:
        return []
    return [
        f"**The machine was busy with something else: a load of {load:.1f} before the run.**",
        "",
    ]


def section(report: dict[str, Any]) -> list[str]:
    lines = [f"## {report['title']}", ""]
    picture = RESULTS / f"{report['question']}.png"
    if picture.exists():
        lines += [f"![{report['title']}](results/{picture.name})", ""]
    own = collectives_page.near_optimum(report, COLLECTIVES_RUNS)
    rows = [row for row in report["rows"] if not collectives_page.shows(report, row)]
    if not rows:
        return [*lines, *own]
    lines += [
        *own,
        "| measure | unit | hoplo (10th .. 90th percentile) | Ray | others, best first"
        " | bare, or hoplo otherwise |",
        "|---|---|---|---|---|---|",
    ]
    notes = []
    for row in rows:
        lines.append(table_row(row))
        for column, why in row["missing"].items():
            notes.append(f"- {row['name']}, {column}: {first_line(why)}")
        if row["note"]:
            notes.append(f"- {row['name']}: {row['note']}")
    return [*lines, "", *notes, ""] if notes else [*lines, ""]


def table_row(row: dict[str, Any]) -> str:
    columns = row["columns"]
    hoplo = columns.get("hoplo")
    own = "-"
    if hoplo:
        own = f"**{number(hoplo['median'])}**"
        if hoplo.get("runs", 1) > 1:
            own += f" ({number(hoplo['low'])} .. {number(hoplo['high'])})"
    rivals = {
        name: cell["median"]
        for name, cell in columns.items()
        if name not in ("hoplo", "ray", *LIMITS, *OWN)
    }
    order = sorted(rivals, key=lambda rival: rivals[rival])
    if row["unit"] not in LOWER_IS_BETTER:
        order.reverse()
    others = "; ".join(f"{name} {number(rivals[name])}" for name in order) or "-"
    limits = [
        f"{name} {number(cell['median'])}" for name, cell in columns.items() if name in LIMITS + OWN
    ]
    ray = number(columns["ray"]["median"]) if "ray" in columns else "-"
    if hoplo and "ray" in columns and row["unit"] not in LOWER_IS_BETTER:
        ray += f" ({hoplo['median'] / columns['ray']['median']:,.1f}x)"
    cells = [row["name"], row["unit"] or "-", own, ray, others, "; ".join(limits) or "-"]
    return f"| {' | '.join(cells)} |"


def published(reports: list[dict[str, Any]]) -> list[str]:
    lines = [
        "## Ray's published figures",
        "",
        "From its own 64-core machine; hoplo's are from the machine above.",
        "",
        "| measure | Ray, 64 cores | hoplo here |",
        "|---|---|---|",
    ]
    for name, value, question in PUBLISHED:
        for report in reports:
            for row in report["rows"]:
                if report["question"] == question and row["name"] == name:
                    hoplo = row["columns"].get("hoplo", {}).get("median")
                    here = f"{number(hoplo)} {row['unit']}" if hoplo else "-"
                    lines.append(f"| {name} | {value} | {here} |")
    lines += [
        "",
        "And the papers': object store writes over 15 GB/s for large objects and 18 K IOPS for"
        " small ones from one client with 16 cores (OSDI'18, figure 9); serving 6,200 and 6,900"
        " states/s against 4,400 and 290 of REST (table 3); Pendulum 22,300 timesteps/s on one"
        " core, 290,000 on 16 (table 4).",
        "",
    ]
    return lines


def figures(reports: list[dict[str, Any]]) -> list[str]:
    """What the questions noted beside their rows."""
    lines = [
        f"- {report['question']}: {key}: {value}"
        for report in reports
        for key, value in report["facts"].items()
    ]
    return ["## Notes", "", *lines, ""] if lines else []


def first_line(why: str) -> str:
    return why.strip().splitlines()[0][:160] if why.strip() else "no reason given"


if __name__ == "__main__":
    main()
