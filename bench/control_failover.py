"""What a client of the control store sees while members of its chain die (OSDI'18, figure 10a).

One client has one request in flight: puts of 512 bytes under keys of 25 bytes. A member of the
chain is killed (SIGKILL), a new process joins, gets all rows by state transfer, and the next one is
killed. One value is the worst latency of all requests of a run. All speak mutual TLS over loopback.
"""

from __future__ import annotations

import statistics
import sys
from typing import Any

from harness import HERE, RESULTS, Question, Row, at_most

sys.path.insert(0, str(HERE / "players"))
from control_cluster import ControlCluster

question = Question("control_failover", "Control store: fail-over", {})
QUICK = question.options.quick
RUNS, KILLS = (1, 2) if QUICK else (10, 10)
KEYS = 2_000 if QUICK else 20_000
"""Rows that a new member gets."""

VICTIMS = {"head": (2, 0), "tail": (2, -1), "middle of 3": (3, 1)}
STEADY_SECONDS = 1 if QUICK else 10
timelines: dict[str, list[tuple[float, float]]] = {}
marks: dict[str, list[float]] = {}


def fail_over(name: str, members: int, place: int) -> tuple[list[float], dict[str, Any]]:
    """The worst latency of one run, in ms."""
    cluster = ControlCluster(members, "never")
    try:
        cluster.bench("--mode", "throughput", "--fill", "--keys", str(KEYS), "--calls", "4")
        worst: list[float] = []
        errors: list[str] = []
        for _ in range(KILLS):
            client = cluster.begin("--mode", "latency", "--keys", str(KEYS), "--seconds", "2.5")
            victim = cluster.chain()[0][place]
            cluster.kill(victim)
            cluster.until_whole(members, newest=cluster.start())
            seen = cluster.end(client)
            errors += seen["errors"]
            worst.append(max(took for _, took in seen["samples"]) / 1e3)
        begin = seen["samples"][0][0]
        timelines[name] = [((at - begin) / 1e6, took / 1e3) for at, took in seen["samples"]]
        return worst, {"errors": errors}
    finally:
        cluster.close()


def steady(fsync: str) -> tuple[float, float]:
    """Median and 99th percentile, in ms."""
    cluster = ControlCluster(2, fsync)
    try:
        seen = cluster.bench("--mode", "latency", "--seconds", str(STEADY_SECONDS))
        took = sorted(took / 1e3 for _, took in seen["samples"])
        return statistics.median(took), took[int(0.99 * len(took))]
    finally:
        cluster.close()


def plot() -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, all_axes = pyplot.subplots(len(timelines), 1, figsize=(8, 6), sharex=True)
    for axes, (name, timeline) in zip(all_axes, timelines.items(), strict=True):
        axes.plot([at for at, _ in timeline], [took for _, took in timeline], linewidth=0.6)
        axes.axhline(30, color="gray", linestyle=":")
        axes.set(ylabel="ms", title=f"the {name} is killed, a new one joins", yscale="log")
    all_axes[-1].set_xlabel("seconds")
    figure.tight_layout()
    figure.savefig(RESULTS / "control_failover.png", dpi=110)


failures: list[str] = []
for name, (members, place) in VICTIMS.items():
    if question.options.only and question.options.only not in name:
        continue
    row = Row(f"worst latency, {name} killed", "ms", {}, [at_most(30, "ms")])
    every: list[float] = []
    for _ in range(RUNS):
        worst, facts = fail_over(name, members, place)
        every += worst
        failures += facts["errors"]
        row.values.setdefault("hoplo", []).append(max(worst))
    row.note = (
        f"each value: the worst of {KILLS} kills; all {len(every)}: median "
        f"{statistics.median(every):.1f} ms, worst {max(every):.1f} ms"
    )
    print(row.note)
    question.add(row)
median = Row("latency, chain of 2, median", "ms", {}, [at_most(0.3, "ms")])
high = Row("latency, chain of 2, 99th percentile", "ms", {}, [at_most(2, "ms")])
for column, fsync in (("hoplo", "never"), ("fsync", "always")):
    for _ in range(1 if QUICK else 3):
        p50, p99 = steady(fsync)
        median.values.setdefault(column, []).append(p50)
        high.values.setdefault(column, []).append(p99)
question.add(median)
question.add(high)
question.facts["errors seen by clients"] = len(failures)
print(f"errors seen by clients: {len(failures)} {failures[:3]}")
if not question.options.only and timelines:
    RESULTS.mkdir(exist_ok=True)
    plot()
question.finish()
