"""Random programs for a given time, while workers are killed: `make soak-programs`.

Each round is a node of its own: a store of 16 to 256 MiB, 1 to 4 CPUs, one or two programs beside
each other (`programs.py`), and somebody who kills workers (`watch.py`). In every second one all
processes are stopped for moments (`hiccups.py`). Every value is compared with what plain Python
computes. Afterwards the session must be as empty as at its beginning, and
after `shutdown` no process, file, descriptor, map or thread may be left. The first thing that is
wrong ends the run, and tells its round's seed:

    SOAK_SEED=123 SOAK_SECONDS=60 make soak-programs
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import os
import random
import shutil
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter

from hiccups import hiccups
from programs import Program
from watch import Killer, nothing_is_held, nothing_is_left, open_here

import hoplo

ROUND_S = 30.0
# Much longer than any wait in a round: then where all threads stand is printed, and all ends.
STUCK_S = 600.0
MIB = 1 << 20


def main() -> int:
    parser = argparse.ArgumentParser(description="random programs under kills, every value checked")
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--round-seconds", type=float, default=ROUND_S)
    asked = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="hoplo-soak-")
    os.environ["HOPLO_TMPDIR"] = folder
    os.environ.pop("HOPLO_ADDRESS", None)
    end = time.monotonic() + asked.seconds
    totals: Counter[str] = Counter()
    seed = asked.seed
    print(f"soak: seed {seed}, {asked.seconds:.0f} s", flush=True)
    while time.monotonic() < end:
        faulthandler.dump_traceback_later(STUCK_S + asked.round_seconds, exit=True)
        try:
            totals += one_round(seed, min(asked.round_seconds, end - time.monotonic()), folder)
        except BaseException:
            traceback.print_exc()
            again = f"SOAK_SEED={seed} SOAK_SECONDS={asked.round_seconds:.0f} make soak-programs"
            print(f"WRONG in the round of seed {seed}; again: {again}", flush=True)
            print(f"the node's logs are in {folder}", flush=True)
            return 1
        faulthandler.cancel_dump_traceback_later()
        seed += 1
    if not totals["killed at work"]:
        print("WRONG: no worker was killed while it worked: nothing was tried", flush=True)
        return 1
    shutil.rmtree(folder)
    print(f"soak: {seed - asked.seed} rounds, nothing wrong: {told(totals)}", flush=True)
    return 0


def one_round(seed: int, seconds: float, folder: str) -> Counter[str]:
    rng = random.Random(seed)
    store = int(16 * MIB * 2 ** rng.uniform(0, 4))
    cpus, programs = rng.randint(1, 4), rng.randint(1, 2)
    # A worker starts in a tenth of a second, on a busy machine in half of one: a tree of tasks must
    # now and then live to its end. With hiccups everything takes twice as long.
    slow = rng.random() < 0.5
    pause = rng.choice([0.5, 1.0, 2.0]) * (2 if slow else 1)
    before = open_here()
    began = time.monotonic()
    hoplo.init(num_cpus=cpus, object_store_memory=store)
    try:
        killer = Killer(seed, pause)
        killer.start()
        try:
            with hiccups(folder, seed) if slow else contextlib.nullcontext():
                counts = run(seed, programs, store, began + seconds)
        finally:
            killer.stop()
        last = nothing_is_held(cpus)
    except BaseException:
        with contextlib.suppress(Exception):
            print_state()
        raise
    hoplo.shutdown()
    nothing_is_left(folder, before)
    counts["killed"] += killer.killed
    counts["killed at work"] += killer.killed_at_work
    counts["spills"] += last["counters"]["spills"]
    counts["tasks"] += last["counters"]["tasks_finished"]
    took = time.monotonic() - began
    counts["rounds with hiccups"] += slow
    what = f"{store / MIB:.0f} MiB, {cpus} CPUs, {programs} programs, {took:.0f} s"
    print(f"seed {seed}: {what}: {told(counts)}", flush=True)
    return counts


def run(seed: int, programs: int, store: int, end: float) -> Counter[str]:
    counts: Counter[str] = Counter()
    failures: list[BaseException] = []

    def play(number: int) -> None:
        program = Program(str(number), seed * 10 + number, store // programs, end)
        try:
            counts.update(program.run())
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=play, args=(number,)) for number in range(programs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return counts


def told(counts: Counter[str]) -> str:
    first = ("checked", "tasks", "killed", "killed at work", "spills")
    rest = sorted(counts.keys() - set(first))
    return ", ".join(f"{name} {counts[name]}" for name in (*first, *rest))


def print_state() -> None:
    """What the node knows when something is wrong."""
    from watch import listed, status

    print(f"status: {status()}")
    for kind in ("tasks", "workers", "actors", "objects"):
        rows = listed(kind)
        print(f"{kind}: {len(rows)}")
        for row in rows[:30]:
            print(f"  {row}")


if __name__ == "__main__":
    sys.exit(main())
