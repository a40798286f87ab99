"""Random programs over six nodes while machines fail: `make soak-cluster`. Needs root.

    node 1    the head, without CPUs; dies and is started again on its folder
    node 2    the driver's; nothing befalls it but cuts that nobody notices
    node 3-6  die, are stopped, are cut off, and join again; their workers are killed

Every value is compared with what plain Python computes (`programs.py`). Something happens every
second, and with every second seed all processes are stopped for moments (`hiccups.py`). Then all is
healed, and on no node anything may be left. The first thing that is wrong ends the run, and tells
the seed:

    SOAK_SEED=123 SOAK_SECONDS=60 make soak-cluster
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "cluster"))
from hiccups import hiccups  # noqa: E402
from lab import Lab  # noqa: E402
from machines import Machine, alive, kill, until  # noqa: E402

HEAD, DRIVER = 1, 2
OTHERS = (3, 4, 5, 6)
STORE = ("--object-store-memory", str(64 << 20))
PATIENCE_S = 400.0
"""After the faults: longer than any wait of a program."""

SHORT_S, LONG_S = 0.3, 2.5
"""A silence that nobody minds, and one after which a node is dead."""


class Cluster:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lab = Lab(nodes=2 + len(OTHERS))
        self.deaths = self.lab.folder / "deaths"
        self.deaths.touch()
        self.counts: Counter[str] = Counter()
        self.began = time.monotonic()
        self.joining = self.lab[HEAD].head("--num-cpus", "0", *STORE)
        self.port = self.joining.address.rpartition(":")[2]
        for number in (DRIVER, *OTHERS):
            self.lab[number].join(self.joining, *STORE)
        until(lambda: self.lab[HEAD].states() == ["ALIVE"] * 6)

    def drive(self, seconds: float) -> subprocess.Popen[str]:
        machine = self.lab[DRIVER]
        seed = self.random.randrange(1 << 32)
        program = str(HERE / "cluster_driver.py")
        line = [sys.executable, program, str(seed), str(seconds), str(self.deaths)]
        return subprocess.Popen(
            [*machine.prefix, *line],
            env=machine.environment(PYTHONPATH=str(HERE)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    # ------------------------------------------------------------------- what befalls it

    def something_happens(self) -> None:
        faults: list[tuple[int, Callable[[], None]]] = [
            (5, self.worker_dies),
            (3, self.node_dies),
            (2, self.short_stop),
            (2, self.short_cut),
            (1, self.long_stop),
            (1, self.long_cut),
            (1, self.head_dies),
            (1, self.node_leaves),
        ]
        (fault,) = self.random.choices([it for _, it in faults], [weight for weight, _ in faults])
        print(f"{time.monotonic() - self.began:6.1f} s: {fault.__name__}", flush=True)
        fault()
        self.counts[fault.__name__] += 1

    def dies(self, number: int) -> None:
        with self.deaths.open("a") as file:
            file.write(f"{number}\n")

    def back(self, machine: Machine) -> None:
        """What is left of it ends, and it joins anew."""
        machine.kill()
        until(lambda: not machine.processes())
        machine.join(self.joining, *STORE)

    def worker_dies(self) -> None:
        machine = self.lab[self.random.choice(OTHERS)]
        workers = [row for row in machine.listed("workers") if row.get("kind") == "worker"]
        pids = sorted({row["pid"] for row in workers if row.get("pid")} & machine.processes())
        if pids:
            kill({self.random.choice(pids)})

    def node_dies(self) -> None:
        number = self.random.choice(OTHERS)
        self.dies(number)
        self.lab[number].kill()
        time.sleep(self.random.uniform(0, 2))  # so long it is away
        self.back(self.lab[number])

    def node_leaves(self) -> None:
        """It is told to stop, and drains nothing before."""
        number = self.random.choice(OTHERS)
        self.dies(number)
        self.lab[number].hoplo("stop", check=False)
        self.back(self.lab[number])

    def short_stop(self) -> None:
        pid = self.lab[self.random.choice(OTHERS)].pid
        self.lab.stop(pid)
        time.sleep(self.random.uniform(0, SHORT_S))  # so long it stands
        self.lab.cont(pid)

    def long_stop(self) -> None:
        number = self.random.choice(OTHERS)
        pid = self.lab[number].pid
        self.dies(number)
        self.lab.stop(pid)
        time.sleep(LONG_S)  # so long it stands
        self.lab.cont(pid)
        self.back(self.lab[number])

    def short_cut(self) -> None:
        with self.lab.without(self.random.choice((DRIVER, *OTHERS))):
            time.sleep(self.random.uniform(0, SHORT_S))  # so long it is cut off

    def long_cut(self) -> None:
        number = self.random.choice(OTHERS)
        self.dies(number)
        with self.lab.without(number):
            time.sleep(LONG_S)  # so long it is cut off
        self.back(self.lab[number])

    def head_dies(self) -> None:
        head = self.lab[HEAD]
        head.kill()
        until(lambda: not head.processes())
        time.sleep(self.random.uniform(0, 2))  # so long nobody decides
        head.head("--num-cpus", "0", *STORE, port=int(self.port))
        until(lambda: head.states().count("ALIVE") == 6)

    # ------------------------------------------------------------------- the end

    def nothing_is_held(self) -> None:
        """On no node, while the driver still lives and has dropped everything."""
        for number in (HEAD, DRIVER, *OTHERS):
            machine = self.lab[number]
            self.nothing_left(f"objects at node {number}", machine.objects)
        head = self.lab[HEAD]
        self.nothing_left("actors", lambda: rows_but(head, "actors", "DEAD"))
        # Of a task that the head owned for a dead node when it was killed itself, its store tells.
        self.nothing_left("tasks", lambda: rows_but(head, "tasks", "lost"))
        self.counts["tasks lost"] += len(head.listed("tasks"))

    def nothing_left(self, what: str, rows: Callable[[], list[dict[str, Any]]]) -> None:
        try:
            until(lambda: not rows(), 60)
        except AssertionError:
            raise AssertionError(f"{what} are left for 60 s: {rows()}") from None


def rows_but(machine: Machine, kind: str, state: str) -> list[dict[str, Any]]:
    return [row for row in machine.listed(kind) if row["state"] != state]


def main() -> int:
    parser = argparse.ArgumentParser(description="random programs over nodes that fail")
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    asked = parser.parse_args()
    print(f"soak of six nodes: seed {asked.seed}, {asked.seconds:.0f} s", flush=True)
    cluster = Cluster(asked.seed)
    at_the_end = contextlib.ExitStack()
    try:
        driver = cluster.drive(asked.seconds)
        cluster.began = time.monotonic()
        if cluster.random.random() < 0.5:
            cluster.counts["hiccups"] = 1
            at_the_end.enter_context(hiccups(cluster.lab.folder, asked.seed))
        while time.monotonic() < cluster.began + asked.seconds and alive(driver.pid):
            cluster.something_happens()
            time.sleep(cluster.random.uniform(0, 2))  # until the next one
        assert driver.stdout is not None
        line = driver.stdout.readline()
        if not line:
            raise AssertionError(f"the driver ended with {driver.wait()}")
        told = json.loads(line)
        if told["wrong"]:
            raise AssertionError("\n".join(told["wrong"]))
        cluster.nothing_is_held()
        driver.communicate("\n", timeout=60)
    except BaseException as error:
        print(f"WRONG: {error}", flush=True)
        print(f"again: SOAK_SEED={asked.seed} SOAK_SECONDS={asked.seconds:.0f} make soak-cluster")
        keep_logs(cluster)
        return 1
    finally:
        at_the_end.close()
        cluster.lab.end()
    print(f"soak of six nodes: nothing wrong: {cluster.counts} {told['counts']}", flush=True)
    return 0


def keep_logs(cluster: Cluster) -> None:
    """The daemons' logs go with the machines otherwise."""
    kept = Path(f"{cluster.lab.folder}-logs")
    for log in cluster.lab.folder.rglob("*.log"):
        to = kept / log.relative_to(cluster.lab.folder)
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(log.read_bytes())
    print(f"the logs are in {kept}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
