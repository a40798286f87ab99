"""Updates per second of the control store, and how fast a million records are recovered.

Keys of 25 bytes, values of 512. "one node" is the store inside a node's daemon: batches one after
the other, each in the log's file before the next. "chain" are processes that speak mutual TLS over
loopback, with one client process that keeps many batches in flight.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Any

from harness import HERE, Goal, Question, Row, at_least, at_most, times

sys.path.insert(0, str(HERE / "players"))
from control_cluster import ControlCluster, scheduling
from control_measure import Measure

question = Question("control_throughput", "Control store: updates and recovery", {})
QUICK = question.options.quick
ROUNDS = 1 if QUICK else 3
RECORDS = 50_000 if QUICK else 1_000_000
ROOM = 4 << 30
"""Memory for a million rows."""


@dataclass(frozen=True)
class Chain:
    replicas: int
    shards: int
    processes: int
    goals: tuple[Goal, ...] = ()


ONE = "chain of 1, 1 shard"
CHAINS = {
    ONE: Chain(1, 1, 1, (at_least(200_000, "updates/s"),)),
    "chain of 2, 1 shard": Chain(2, 1, 2, (at_least(80_000, "updates/s"),)),
    "chain of 1, 2 shards in 1 process": Chain(1, 2, 1),
    "chain of 1, 2 shards in 2 processes": Chain(1, 2, 2),
    "chain of 2, 2 shards": Chain(2, 2, 2, (at_least(80_000, "updates/s"),)),
}
BATCH_A_SHARD = 100
"""Updates of a call for each shard: a batch is as long with many shards as with one."""
LATENCY_BOUND = (1, 2, 4)
"""Shards, each in a process of its own: one call in flight, with as many updates for each shard."""
UPDATES_A_SHARD = 8


def one_node(measure: Measure) -> None:
    recovery = Row(f"recovery of {RECORDS:,} records", "s", {}, [at_most(5, "s")])
    for batch in (100, 1000):
        goals = [at_least(200_000, "updates/s")]
        row = Row(f"one node, batches of {batch}", "/s", {}, goals)
        for column, fsync in (("hoplo", "background"), ("fsync", "always"), ("never", "never")):
            for _ in range(ROUNDS):
                records = RECORDS // (20 if fsync == "always" else 2)
                found = measure.run("throughput", records, batch, fsync, ROOM)
                row.values.setdefault(column, []).append(found["updates_per_s"])
        question.add(row)
    for _ in range(ROUNDS):
        measure.run("throughput", RECORDS, 1000, "background", ROOM)
        found = measure.run("recover", RECORDS, 1000, "background", ROOM, keep=True)
        recovery.values.setdefault("hoplo", []).append(found["seconds"])
        recovery.note = f"{found['log_bytes'] >> 20} MiB of log"
    question.add(recovery)


class Spent:
    """CPU time, of several runs."""

    def __init__(self) -> None:
        self.client = self.nodes = self.seconds = 0.0
        self.updates = 0

    def add(self, found: dict[str, Any]) -> None:
        self.client += found["client_s"]
        self.nodes += found["nodes_s"]
        self.seconds += found["seconds"]
        self.updates += found["updates"]

    def note(self) -> str:
        of = 1e6 / max(self.updates, 1)
        busy = (self.client + self.nodes) / self.seconds
        return (
            f"CPU an update: client {self.client * of:.1f} us, nodes {self.nodes * of:.1f} us; "
            f"{busy:.1f} of {os.cpu_count()} cores used"
        )


def run(chain: Chain, fsync: str, *flags: str) -> dict[str, Any]:
    cluster = ControlCluster(chain.replicas, fsync, chain.processes, chain.shards)
    try:
        heads = len(set(cluster.holders()))
        assert heads == min(chain.processes, chain.shards), f"{heads} processes have the heads"
        seconds = "1" if QUICK else "2"
        return cluster.bench("--mode", "throughput", "--seconds", seconds, *flags)
    finally:
        cluster.close()


def chains() -> None:
    """All in turn, round by round: what else the machine does hits all alike."""
    rows = {name: Row(name, "/s", {}, list(chain.goals)) for name, chain in CHAINS.items()}
    spent = {name: Spent() for name in CHAINS}
    for column, fsync in (("hoplo", "never"), ("fsync", "always")):
        for _ in range(ROUNDS):
            for name, chain in CHAINS.items():
                found = run(chain, fsync, "--batch", str(BATCH_A_SHARD * chain.shards))
                rows[name].values.setdefault(column, []).append(found["rate"])
                if fsync == "never":
                    spent[name].add(found)
    for name, row in rows.items():
        if CHAINS[name].replicas == 1 and name != ONE:
            row.values["1 shard"] = rows[ONE].values["hoplo"]
        row.note = spent[name].note()
        question.add(row)
        print(f"    {row.note}")


def latency_bound(name: str, fsync: str, *goals: Goal) -> None:
    """What is waited for is the way there and back, or the disk."""
    name = f"{name}, one call of {UPDATES_A_SHARD} updates a shard in flight"
    row = Row(name, "/s", {}, list(goals))
    columns = {shards: f"{shards} shards" for shards in LATENCY_BOUND[1:-1]}
    columns |= {1: "1 shard", LATENCY_BOUND[-1]: "hoplo"}
    spent = {shards: Spent() for shards in LATENCY_BOUND}
    for _ in range(ROUNDS):
        for shards in LATENCY_BOUND:
            batch = str(UPDATES_A_SHARD * shards)
            found = run(Chain(1, shards, shards), fsync, "--calls", "1", "--batch", batch)
            row.values.setdefault(columns[shards], []).append(found["rate"])
            spent[shards].add(found)
    notes = (f"{shards} shards: {spent[shards].note()}" for shards in LATENCY_BOUND)
    row.note = f"hoplo: {LATENCY_BOUND[-1]} shards; " + "; ".join(notes)
    question.add(row)
    print(f"    {row.note}")


measure = Measure()
try:
    one_node(measure)
finally:
    measure.close()
chains()
latency_bound("1 to 4 shards", "never", times(1.5, "1 shard"))
latency_bound("1 to 4 shards, fsync", "always")
question.facts["scheduling"] = scheduling()
question.finish()
