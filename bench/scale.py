"""How hoplo scales: simulated with measured costs, from 1 to 10,000 nodes.

1. Costs are measured on this machine (scale_costs.py): CPU nanoseconds of threads of real nodes.
2. The model of empty tasks (crates/sim/src/cost/tasks.rs) is compared with real nodes, 1, 2 and 4
   of them in network namespaces. All of them share the machine's cores, so the model is told how
   many cores all nodes have together (`cores`), and which share of them was there for us (`share`:
   what we used and what nobody used, by the kernel's counts of the same seconds). If a ratio is
   beyond 15%, this program fails at its end, and says so in its rows.
3. Figure 8b (OSDI'18): empty tasks on 1 to 10,000 nodes of 16 cores, and a few more. Each node has
   a driver of its own, and tells its head its load as often as it may. A head that cannot hear all
   of that, and the heartbeats, is where the line ends.
4. The control plane (scale_control.py): the head's real machines, with stand-ins for its nodes.

Needs root. HOPLO_SCALE names the program of the model that `make bench-scale` builds.
"""

from __future__ import annotations

import math
import statistics
import sys
from dataclasses import asdict
from pathlib import Path

from cluster_places import BARE_PROGRAM
from harness import HERE, RESULTS, Goal, Question, Row, at_least
from scale_control import PROGRAM, control_plane, model
from scale_costs import BATCH, CORES, Farm, TaskCosts, bare_ns

sys.path.insert(0, str(HERE.parent / "tests" / "cluster"))
from lab import why_not

if why := why_not():
    sys.exit(f"bench/scale.py: {why}")
for program in (PROGRAM, BARE_PROGRAM):
    if not Path(program).exists():
        sys.exit(f"bench/scale.py: {program} is missing: run `make bench-scale`")

question = Question("scale", "How hoplo scales, simulated with measured costs", {})
QUICK = question.options.quick

WITHIN = 0.15
REAL_NODES = (1, 2, 4)
ROUNDS = 2 if QUICK else 9
SECONDS = 0.3 if QUICK else 1.0

NODE_CORES = 16
"""Of a node of the figure: one is its driver's."""

PAPER_NODES, PAPER_TASKS = 100, 1.8e6
FIGURE = (1, 10, 100) if QUICK else (1, 10, 30, 100, 300, 1_000, 3_000, 5_000, 10_000, 15_000)
HEARS = 0.98
"""A head that hears less than this of what is told falls behind, more and more."""


# ------------------------------------------------------------------------------- costs


def costs_of_hands(farm: Farm) -> dict[str, int]:
    """Of what the model does not run: names as in `crates/sim/src/cost/costs.rs`."""
    found = {**bare_ns(farm.lab, QUICK), **model("small", 1)}
    joins = farm.join_ns(2 if QUICK else 10)
    # The desk makes three connections: to ask, to the store, between the carriers.
    desk = sum(ns for name, ns in joins.items() if name in ("hoplo-desk", "hoplo-clerk"))
    question.facts["a node joins: us of each thread of the head"] = {
        name: round(ns / 1e3) for name, ns in sorted(joins.items()) if ns > 1e4
    }
    found["join"] = max(desk - 2 * found["handshake"], 0)
    found["fork"] = farm.fork_ns(4 if QUICK else 30)
    return {name: round(ns) for name, ns in found.items()}


# ------------------------------------------------------------------------------- real nodes


def validate(farm: Farm) -> list[str]:
    """What is not within bounds; empty if all is well."""
    near = [
        Goal(f">= {1 - WITHIN:.0%} of simulated", 1 - WITHIN, ("simulated",)),
        Goal(f"<= {1 + WITHIN:.0%} of simulated", 1 + WITHIN, ("simulated",), at_most=True),
    ]
    rows = {
        nodes: Row(f"empty tasks, {nodes} real nodes that share {CORES} cores", "/s", {}, near)
        for nodes in REAL_NODES
    }
    ratios: dict[int, list[float]] = {nodes: [] for nodes in REAL_NODES}
    each: list[TaskCosts] = []
    shares = []
    for _ in range(ROUNDS):
        # Before and after: what slows the machine for some seconds slows both.
        each.append(farm.costs(SECONDS))
        for nodes, row in rows.items():
            real = farm.run(nodes, SECONDS)
            each.append(farm.costs(SECONDS))
            costs = middle(each[-2:])
            simulated = tasks(costs, nodes, workers=1, cores=CORES, share=real.share)
            row.values.setdefault("hoplo", []).append(real.tasks_per_s)
            row.values.setdefault("simulated", []).append(simulated)
            ratios[nodes].append(real.tasks_per_s / simulated)
            shares.append(real.share)
    question.facts["costs of an empty task at a node with one worker"] = told(each)
    question.facts["share of the cores that was there"] = f"{min(shares):.2f} .. {max(shares):.2f}"
    failed = []
    for nodes, row in rows.items():
        ratio = statistics.median(ratios[nodes])
        is_near = abs(ratio - 1) <= WITHIN
        row.note = (
            f"hoplo: real; real over simulated, round by round: median {ratio:.2f}"
            f" ({min(ratios[nodes]):.2f} .. {max(ratios[nodes]):.2f}),"
            f" {'within' if is_near else 'NOT within'} {WITHIN:.0%}"
        )
        question.add(row)
        print(f"    {row.note}")
        if not is_near:
            failed.append(f"{nodes} nodes: {ratio:.2f}")
    return failed


def tasks(costs: TaskCosts, nodes: int, **told: float) -> float:
    asked = {name: round(ns) for name, ns in asdict(costs).items()}
    return float(model("tasks", nodes, **asked, batch=BATCH, **told)["tasks_per_s"])


def middle(each: list[TaskCosts]) -> TaskCosts:
    def median(name: str) -> float:
        return statistics.median(asdict(costs)[name] for costs in each)

    return TaskCosts(median("submit"), median("get"), median("run"), median("daemon"))


def told(each: list[TaskCosts]) -> str:
    costs = asdict(middle(each))
    return ", ".join(f"{name} {ns:.0f} ns" for name, ns in costs.items())


# ------------------------------------------------------------------------------- figure 8b


def figure(costs: TaskCosts, hands: dict[str, int]) -> list[dict[str, float]]:
    """For each number of nodes: tasks a second of all, and how much its head has to do."""

    def node(cores: int) -> float:
        return tasks(costs, 1, workers=NODE_CORES - 1, cores=cores, share=1)

    alone = node(NODE_CORES)
    points = []
    for nodes in FIGURE:
        # So often as a node of so many may tell its load: `LOAD_GATHERED`, `LOAD_TOLD_OF_EACH`.
        head = {"decider": 0.0, "carrier": 0.0, "declared_dead": 0, "told": 1, "heard": 1}
        if nodes > 1:
            every_us = max(2_000, 50 * nodes)
            head = model("busy", nodes, every_us=every_us, seconds=2, **hands)
        # The head's two threads take from the cores of its own node.
        taken = math.ceil(min(head["decider"], 1) + min(head["carrier"], 1))
        living = nodes - 1 - head["declared_dead"]
        points.append(
            {
                "nodes": nodes,
                "tasks_per_s": alone * living + node(NODE_CORES - taken),
                "decider": head["decider"],
                "carrier": head["carrier"],
                "hears": head["heard"] / head["told"],
            }
        )
    for point in points:
        nodes = int(point["nodes"])
        goals = [at_least(10e6, "/s")] if nodes == PAPER_NODES else []
        of = f"{nodes:,} nodes" if nodes > 1 else "one node"
        row = Row(f"empty tasks, {of} of {NODE_CORES} cores", "/s", {}, goals)
        row.values["hoplo"] = [point["tasks_per_s"]]
        if nodes == PAPER_NODES:
            row.values["the paper"] = [PAPER_TASKS]
        row.note = (
            f"simulated; the head's decider takes {point['decider']:.2f} of a core, its carrier"
            f" {point['carrier']:.2f}; it hears {min(point['hears'], 1):.0%} of what it is told"
        )
        if point["hears"] < HEARS:
            row.note += ": it FALLS BEHIND, and finds no dead node in time"
        question.add(row)
    row = Row("nodes that all tell their loads, and whose head keeps up", "nodes", {})
    row.goals = [at_least(10_000, "nodes")]
    row.values["hoplo"] = [max(it["nodes"] for it in points if it["hears"] >= HEARS)]
    row.note = f"simulated: the most of {', '.join(f'{size:,}' for size in FIGURE)}"
    question.add(row)
    return points


# ------------------------------------------------------------------------------- all of it


def plot(points: list[dict[str, float]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (axes, below) = pyplot.subplots(2, 1, figsize=(8, 7), sharex=True)
    nodes = [point["nodes"] for point in points]
    rates = [point["tasks_per_s"] for point in points]
    straight = [rates[0] * n / nodes[0] for n in nodes]
    axes.plot(nodes, straight, color="#999999", linestyle=":", label="linear")
    axes.plot(nodes, rates, marker="o", color="#d62728", label="hoplo, simulated")
    behind = [point for point in points if point["hears"] < HEARS]
    if behind:
        late = [point["nodes"] for point in behind], [point["tasks_per_s"] for point in behind]
        axes.plot(*late, "kx", markersize=10, label="the head falls behind")
    axes.plot([PAPER_NODES], [PAPER_TASKS], "k^", label="the paper, 100 nodes")
    axes.set(xscale="log", yscale="log", ylabel="empty tasks a second")
    axes.set_title(f"Empty tasks on nodes of {NODE_CORES} cores (OSDI'18, figure 8b)")
    for name, colour in (("carrier", "#1f77b4"), ("decider", "#2ca02c")):
        below.plot(nodes, [it[name] for it in points], marker="o", color=colour, label=name)
    below.axhline(1, color="#999999", linestyle=":")
    below.set(xlabel="nodes", ylabel="of a core", ylim=(0, None))
    below.set_title("The head's two threads")
    for each in (axes, below):
        each.grid(alpha=0.3)
        each.legend()
    figure.tight_layout()
    RESULTS.mkdir(parents=True, exist_ok=True)
    figure.savefig(RESULTS / "scale.png", dpi=110)
    pyplot.close(figure)


def main() -> None:
    farm = Farm(max(REAL_NODES), workers=1)
    try:
        failed = validate(farm)
        hands = costs_of_hands(farm)
    finally:
        farm.end()
    farm = Farm(CORES, workers=NODE_CORES - 1)
    try:
        each = [farm.costs(SECONDS) for _ in range(ROUNDS)]
    finally:
        farm.end()
    question.facts[f"costs of an empty task at a node with {NODE_CORES - 1} workers"] = told(each)
    question.facts["costs of what the model does not run, ns"] = hands
    plot(figure(middle(each), hands))
    control_plane(question, hands)
    question.finish()
    if failed:
        sys.exit(f"the model is not within {WITHIN:.0%} of real nodes: {'; '.join(failed)}")


main()
