"""Updates per second of the control store, and how fast a million records are recovered.

Keys of 25 bytes, values of 512. "one node" is the store inside a node's daemon: batches one after
the other, each in the log's file before the next. "chain" are processes that speak mutual TLS over
loopback, with one client process that keeps many batches in flight.
"""

from __future__ import annotations

import statistics
import sys

from harness import HERE, Question, Row, at_least, at_most

sys.path.insert(0, str(HERE / "players"))
from control_cluster import ControlCluster
from control_measure import Measure

question = Question("control_throughput", "Control store: updates and recovery", {})
QUICK = question.options.quick
ROUNDS = 1 if QUICK else 3
RECORDS = 50_000 if QUICK else 1_000_000
ROOM = 4 << 30
"""Memory for a million rows."""

CHAINS = {
    "chain of 1, 1 shard": (1, 1, 200_000),
    "chain of 2, 1 shard": (2, 1, 80_000),
    "chain of 1, 2 shards": (1, 2, None),
}


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


def chain(name: str, replicas: int, shards: int, wanted: float | None) -> None:
    row = Row(name, "/s", {}, [at_least(wanted, "updates/s")] if wanted else [])
    for column, fsync in (("hoplo", "never"), ("fsync", "always")):
        for _ in range(ROUNDS):
            cluster = ControlCluster(replicas, fsync, shards=shards)
            try:
                seconds = "1" if QUICK else "5"
                found = cluster.bench("--mode", "throughput", "--seconds", seconds)
                row.values.setdefault(column, []).append(found["rate"])
            finally:
                cluster.close()
    print(f"{name}: median {statistics.median(row.values['hoplo']):,.0f}")
    question.add(row)


measure = Measure()
try:
    one_node(measure)
finally:
    measure.close()
for name, (replicas, shards, wanted) in CHAINS.items():
    chain(name, replicas, shards, wanted)
question.finish()
