"""The control plane of very many nodes: what `scale.py` asks the model, and how it grows.

Each step is asked at several sizes. n times as many, n^x times as long: x is the *exponent* between
two sizes, and what is not more than linear has one of 1 at most.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from harness import HERE, Question, Row, at_most

TARGET = Path(os.environ.get("CARGO_TARGET_DIR", HERE.parent / "target"))
PROGRAM = os.environ.get("HOPLO_SCALE") or str(TARGET / "sim/examples/scale")

EXPONENT_MAX = 1.05
"""Linear, and what a measured time varies between two runs."""

STORED_SHARDS = 8
"""`hoplo control init --shards 8`: rows of more actors than the store of a head takes."""

RAY_ACTORS = "Ray says 500 /s, of clusters of over 4,000 nodes"

Found = dict[int, dict[str, Any]]
"""What the model says, by size."""


def model(what: str, nodes: int, **told: float) -> dict[str, Any]:
    """One experiment; what is told are costs, and what it asks for."""
    line = [PROGRAM, what, str(nodes), *(f"{name}={value}" for name, value in told.items())]
    began = time.monotonic()
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(line)} failed: {done.stderr.strip()[-500:]}")
    if (took := time.monotonic() - began) > 1:
        print(f"    the model of {what}, {nodes:,}: {took:.0f} s", flush=True)
    found: dict[str, Any] = json.loads(done.stdout)["found"]
    return found


def check(is_right: bool, what: str) -> None:
    if not is_right:
        raise RuntimeError(f"the model's cluster lost something: {what}")


def control_plane(question: Question, hands: dict[str, int]) -> None:
    quick = question.options.quick

    def step(name: str, unit: str, times: dict[int, float], of: str, notes: dict[int, str]) -> None:
        """A row for each size, and one for how it grows from one to the next."""
        for size, value in times.items():
            row = Row(name.format(f"{size:,}"), unit, {})
            row.values["hoplo"] = [value]
            row.note = f"simulated; {notes[size]}"
            question.add(row)
        for (few, before), (many, after) in pairwise(times.items()):
            text = f"{name.format('...')}: exponent, {few:,} to {many:,} {of}"
            row = Row(text, "", {}, [at_most(EXPONENT_MAX, "")])
            row.values["hoplo"] = [math.log(after / before) / math.log(many / few)]
            question.add(row)

    def asked(what: str, sizes: tuple[int, ...], **told: float) -> Found:
        return {size: model(what, size, **told, **hands) for size in sizes}

    sizes = (10, 100) if quick else (100, 1_000, 3_000, 10_000)
    name = "{} nodes join at once: until all work, and all know of all"
    joins(step, name, asked("joins", sizes), {nodes: nodes - 1 for nodes in sizes})

    new, sizes = (10, (10, 100)) if quick else (100, (100, 1_000, 10_000))
    name = f"{new} nodes join at once where {{}} are: until all know of all"
    joins(step, name, asked("join", sizes, joining=new), dict.fromkeys(sizes, new))

    died, sizes = (10, (30, 100)) if quick else (100, (1_000, 10_000))
    name = f"{died} of {{}} nodes die at once: until all have passed it, with the estates"
    deaths(step, name, asked("deaths", sizes, died=died), died)

    found = asked("chain", (10, 100) if quick else (100, 1_000, 3_000))
    step(
        "a control node dies that heads shards, {} clients: the longest update",
        "ms",
        {clients: it["worst_ms"] for clients, it in found.items()},
        "clients",
        {
            clients: f"usually {it['usual_ms']:.2f} ms; all clients know the new head after"
            f" {it['told_ms']:.0f} ms"
            for clients, it in found.items()
        },
    )

    nodes = 10 if quick else 1_000
    counts = (100, 1_000) if quick else (1_000, 10_000, 100_000, 250_000)
    found = {count: model("actors", nodes, actors=count, **hands) for count in counts}
    actors(step, nodes, found)
    counts = (100, 1_000) if quick else (10_000, 100_000, 300_000, 1_000_000)
    asked_for = {"shards": STORED_SHARDS, **hands}
    found = {count: model("stored", nodes, actors=count, **asked_for) for count in counts}
    stored(step, nodes, found)


def joins(step: Any, name: str, found: Found, new: dict[int, int]) -> None:
    for nodes, it in found.items():
        right = it["joined"] == new[nodes] and not it["declared_dead"]
        check(right, f"{name.format(f'{nodes:,}')}: {it}")
    step(
        name,
        "s",
        {nodes: max(it["joined_s"], it["known_s"]) for nodes, it in found.items()},
        "nodes",
        {
            nodes: f"of a core: the desk {it['desk_s']:.2f} s, its clerk {it['clerk_s']:.2f} s, the"
            f" decider {it['decider_s']:.2f} s, the carrier {it['carrier_s']:.2f} s, the busiest"
            f" other node {it['member_s']:.2f} s;"
            f" {it['rows_told']:,} rows told, in {it['flushes']:,} writes"
            for nodes, it in found.items()
        },
    )


def deaths(step: Any, name: str, found: Found, died: int) -> None:
    for nodes, it in found.items():
        right = it["declared_dead"] == died and not it["declared_wrongly"]
        late = it["declared_dead"] == 0 and not it["frames"]
        why = " (the head cannot hear the heartbeats of so many, at the costs of this run)"
        check(right, f"{name.format(f'{nodes:,}')}{why if late else ''}: {it}")
    step(
        name,
        "s",
        {nodes: it["settled_s"] for nodes, it in found.items()},
        "nodes",
        {
            nodes: f"verdicts after {it['verdicts_s']:.2f} s, all have heard after"
            f" {it['heard_s']:.2f} s; of a core: the decider {it['decider_s']:.2f} s, the carrier"
            f" {it['carrier_s']:.2f} s; {it['words']:,} words of estates, {it['passed']:,} times a"
            " node said that it passed"
            for nodes, it in found.items()
        },
    )


def actors(step: Any, nodes: int, found: Found) -> None:
    name = f"{{}} actors are made on {nodes:,} nodes of 16 cores: until the store has them"
    for count, it in found.items():
        check(it["made"] == count and not it["refusals"], f"{count} actors: {it}")
    step(
        name,
        "s",
        {count: max(it["saved_s"], it["alive_s"]) for count, it in found.items()},
        "actors",
        {
            count: f"{it['per_second']:,.0f} /s ({RAY_ACTORS}); all live after"
            f" {it['alive_s']:.2f} s; the head's decider works {it['decider_s']:.2f} s"
            for count, it in found.items()
        },
    )


def stored(step: Any, nodes: int, found: Found) -> None:
    name = (
        f"{{}} actors are made on {nodes:,} nodes, rows on three control nodes in {STORED_SHARDS}"
        " shards: until the store has them"
    )
    for count, it in found.items():
        check(it["made"] == it["rows"] == count and not it["refusals"], f"{count} actors: {it}")
    mib = 1 << 20
    step(
        name,
        "s",
        {count: max(it["saved_s"], it["alive_s"]) for count, it in found.items()},
        "actors",
        {
            count: f"{it['per_second']:,.0f} /s ({RAY_ACTORS}); all live after"
            f" {it['alive_s']:.2f} s; the busiest control node works {it['busiest_s']:.2f} s; the"
            f" fullest shard takes {it['fullest_bytes'] / mib:.0f} of"
            f" {it['memory_bytes'] / mib:.0f} MiB"
            for count, it in found.items()
        },
    )
