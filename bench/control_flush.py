"""Memory of the control store under records of finished tasks (OSDI'18, figure 10b).

Empty task records come one after the other, under a cap of 256 MB. With flushing, finished ones
go to the cold tier on disk; without, they are not finished, and the store refuses more when the cap
is reached. Then records are read back from disk: before each read the kernel drops what it has of
the file, so that the disk is asked (the store's own cache of 16 MiB stays). `--records 50000000`
runs ten times as long.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from harness import HERE, RESULTS, Question, Row, at_most

sys.path.insert(0, str(HERE / "players"))
from control_measure import Measure

parser = argparse.ArgumentParser(add_help=False)
parser.add_argument("--records", type=int, default=5_000_000)
ours, sys.argv[1:] = parser.parse_known_args()

question = Question("control_flush", "Control store: finished tasks in constant memory", {})
RECORDS = 200_000 if question.options.quick else ours.records
CAP = (16 if question.options.quick else 256) << 20
BATCH = 1000


def plot(flushed: dict[str, Any], kept: dict[str, Any]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4))
    for label, found in (("flushed to disk", flushed), ("kept, until it is full", kept)):
        records, resident, *_ = zip(*found["series"], strict=True)
        axes.plot([n / 1e6 for n in records], [bytes_ / 2**20 for bytes_ in resident], label=label)
    axes.axhline(CAP / 2**20, color="gray", linestyle=":", label="cap on rows")
    axes.set(xlabel="million task records", ylabel="resident MiB", ylim=(0, None))
    axes.legend()
    figure.tight_layout()
    figure.savefig(RESULTS / "control_flush.png", dpi=110)


measure = Measure()
try:
    flushed = measure.run("flush", RECORDS, BATCH, "background", CAP)
    kept = measure.run("no-flush", RECORDS, BATCH, "background", CAP)
finally:
    measure.close()

# Since the cap was reached and rows flow through the cold tier: before, memory grows as it should.
full = max(counted for _, _, _, counted, _ in flushed["series"]) * 15 / 16
begins = next(records for records, _, _, counted, _ in flushed["series"] if counted >= full)
steady = [resident for records, resident, *_ in flushed["series"] if records >= begins * 1.5]
flat = Row("resident memory, largest over smallest", "ratio", {}, [at_most(1.1, "")])
flat.values["hoplo"] = [max(steady) / min(steady)]
flat.note = f"{min(steady) >> 20} to {max(steady) >> 20} MiB, cap {CAP >> 20} MiB"
question.add(flat)
rate = Row("records", "/s", {})
rate.values["hoplo"] = [flushed["records_per_s"]]
question.add(rate)
for name in ("p50", "p99", "max"):
    goals = [at_most(5, "ms")] if name != "max" else []
    row = Row(f"a flushed record is read back from disk, {name}", "ms", {}, goals)
    row.values["hoplo"] = [flushed["read_back_ms"][name]]
    on_cpu = flushed["read_back_on_cpu_ms"][name]
    cached = flushed["read_back_cached_ms"][name]
    row.note = (
        f"{on_cpu:.2f} ms without the time in which others had the processors; "
        f"{cached:.3f} ms when the kernel has it in memory"
    )
    question.add(row)
worst = Row("the worst of them, while it had a processor", "ms", {}, [at_most(5, "ms")])
worst.values["hoplo"] = [flushed["read_back_on_cpu_ms"]["max"]]
question.add(worst)
stalled = kept["stalled"]
question.facts |= {
    "records": flushed["records"],
    "records on disk": flushed["archived_rows"],
    "bytes on disk": flushed["disk_bytes"],
    "without flushing, it is full after": stalled["records"] if stalled else "not full",
}
print(question.facts)
if not question.options.only:
    RESULTS.mkdir(exist_ok=True)
    plot(flushed, kept)
question.finish()
