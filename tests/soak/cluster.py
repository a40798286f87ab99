"""Random programs over six nodes while machines fail: `make soak-cluster`. Needs root.

    node 1    the head, without CPUs; dies and is started again on its folder
    node 2    the driver's; nothing befalls it but cuts that nobody notices, and a full disk
    node 3-6  die, are stopped, are cut off, also in one direction, and join again; their workers
              are killed

With every third seed, or if asked for, any of three machines may be head:

    node 1-3  have a control node each; one is head, and dies with its control node, or another one
              does; it is started again, and waits to be head
    node 4    the driver's
    node 5-7  as nodes 3 to 6 above

Now and then the disk of a machine is full for a moment. Every value is compared with what plain
Python computes (`programs.py`). Something happens every second, and with every second seed all
processes are stopped for moments (`hiccups.py`). Then all is healed, and on no node anything may be
left. The first thing that is wrong ends the run, and tells the seed:

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
from three import NUMBERS, Three  # noqa: E402

STORE = ("--object-store-memory", str(64 << 20))
PATIENCE_S = 400.0
"""After the faults: longer than any wait of a program."""

SHORT_S, LONG_S = 0.3, 2.5
"""A silence that nobody minds, and one after which a node is dead."""


class Cluster:
    """Its head has a store of its own, and is started again where it was."""

    size = 6
    driver = 2
    others: tuple[int, ...] = (3, 4, 5, 6)

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lab = Lab(nodes=max(self.others), disk=512 << 20)
        self.deaths = self.lab.folder / "deaths"
        self.full_disks = self.lab.folder / "full_disks"
        for file in (self.deaths, self.full_disks):
            file.touch()
        self.counts: Counter[str] = Counter()
        self.began = time.monotonic()
        self.begin()
        for number in (self.driver, *self.others):
            self.lab[number].join(self.joining, *STORE)
        self.is_whole()

    def begin(self) -> None:
        self.joining = self.lab[1].head("--num-cpus", "0", *STORE)

    @property
    def head(self) -> Machine:
        return self.lab[1]

    def is_whole(self) -> None:
        until(lambda: self.head.states().count("ALIVE") == self.size)

    def drive(self, seconds: float) -> subprocess.Popen[str]:
        machine = self.lab[self.driver]
        seed = self.random.randrange(1 << 32)
        program = str(HERE / "cluster_driver.py")
        line = [sys.executable, program, str(seed), str(seconds)]
        line += [str(self.deaths), str(self.full_disks)]
        return subprocess.Popen(
            [*machine.prefix, *line],
            env=machine.environment(PYTHONPATH=str(HERE)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    # ------------------------------------------------------------------- what befalls it

    def faults(self) -> list[tuple[int, Callable[[], None]]]:
        """With how often each happens."""
        return [
            (5, self.worker_dies),
            (3, self.node_dies),
            (2, self.short_stop),
            (2, self.short_cut),
            (1, self.long_stop),
            (1, self.long_cut),
            (1, self.one_way_cut),
            (1, self.way_is_cut),
            (1, self.head_dies),
            (1, self.node_leaves),
            (1, self.disk_is_full),
        ]

    def something_happens(self) -> None:
        faults = self.faults()
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
        machine = self.lab[self.random.choice(self.others)]
        workers = [row for row in machine.listed("workers") if row.get("kind") == "worker"]
        pids = sorted({row["pid"] for row in workers if row.get("pid")} & machine.processes())
        if pids:
            kill({self.random.choice(pids)})

    def node_dies(self) -> None:
        number = self.random.choice(self.others)
        self.dies(number)
        self.lab[number].kill()
        time.sleep(self.random.uniform(0, 2))  # so long it is away
        self.back(self.lab[number])

    def node_leaves(self) -> None:
        """It is told to stop, and drains nothing before."""
        number = self.random.choice(self.others)
        self.dies(number)
        self.lab[number].hoplo("stop", check=False)
        self.back(self.lab[number])

    def short_stop(self) -> None:
        pid = self.lab[self.random.choice(self.others)].pid
        self.lab.stop(pid)
        time.sleep(self.random.uniform(0, SHORT_S))  # so long it stands
        self.lab.cont(pid)

    def long_stop(self) -> None:
        number = self.random.choice(self.others)
        pid = self.lab[number].pid
        self.dies(number)
        self.lab.stop(pid)
        time.sleep(LONG_S)  # so long it stands
        self.lab.cont(pid)
        self.back(self.lab[number])

    def short_cut(self) -> None:
        with self.lab.without(self.random.choice((self.driver, *self.others))):
            time.sleep(self.random.uniform(0, SHORT_S))  # so long it is cut off

    def long_cut(self) -> None:
        number = self.random.choice(self.others)
        self.dies(number)
        with self.lab.without(number):
            time.sleep(LONG_S)  # so long it is cut off
        self.back(self.lab[number])

    def one_way_cut(self) -> None:
        """A node hears nobody, or nobody hears it."""
        number = self.random.choice(self.others)
        rest = [other for other in range(1, len(self.lab.machines) + 1) if other != number]
        lost = [(number, other) for other in rest]
        if self.random.random() < 1 / 2:
            lost = [(other, number) for other in rest]
        self.dies(number)
        with self.lab.one_way(*lost):
            time.sleep(LONG_S)  # so long it is cut off
        self.back(self.lab[number])

    def way_is_cut(self) -> None:
        """From one node to another one, while the head reaches both: nobody is dead."""
        sender, receiver = self.random.sample((self.driver, *self.others), 2)
        with self.lab.one_way((sender, receiver)):
            time.sleep(self.random.uniform(0, 2))  # so long nothing arrives

    def disk_is_full(self) -> None:
        """Of any machine, also of the head and of the driver's."""
        number = self.random.randint(1, len(self.lab.machines))
        self.full_disks.write_text(f"{number}\n")
        with self.lab.full_disk(number):
            time.sleep(self.random.uniform(0, 2))  # so long nothing can be written

    def head_dies(self) -> None:
        self.head.kill()
        until(lambda: not self.head.processes())
        time.sleep(self.random.uniform(0, 2))  # so long nobody decides
        self.head.head("--num-cpus", "0", *STORE, port=self.joining.port)
        self.is_whole()

    # ------------------------------------------------------------------- the end

    def nothing_is_held(self) -> None:
        """On no node, while the driver still lives and has dropped everything."""
        head = self.head
        self.nothing_left("objects at the head", head.objects)
        for number in (self.driver, *self.others):
            machine = self.lab[number]
            self.nothing_left(f"objects at node {number}", machine.objects)
        self.nothing_left("actors", lambda: rows_but(head, "actors", "DEAD"))
        # Of a task that the head owned for a dead node when it was killed itself, its store tells.
        self.nothing_left("tasks", lambda: rows_but(head, "tasks", "lost"))
        self.counts["tasks lost"] += len(head.listed("tasks"))

    def nothing_left(self, what: str, rows: Callable[[], list[dict[str, Any]]]) -> None:
        try:
            until(lambda: not rows(), 60)
        except AssertionError:
            raise AssertionError(f"{what} are left for 60 s: {rows()}") from None


class ClusterOfThree(Cluster):
    """Any of three machines may be head, and each has a control node."""

    size = 5
    driver = 4
    others = (5, 6, 7)

    def begin(self) -> None:
        self.three = Three(self.lab, "--num-cpus", "0", *STORE)
        self.joining = self.three.joining

    def head_number(self, but: int = 0) -> int:
        """Once there is a head, on another machine than that one."""

        def number() -> int:
            head = self.three.head(self.lab[self.driver])
            return head if head != but else 0

        return int(until(number, what="a machine is head"))

    @property
    def head(self) -> Machine:
        return self.lab[self.head_number()]

    def head_dies(self) -> None:
        """Its machine. In one of three times a worker's dies at the same moment."""
        head = self.head_number()
        with_it = self.random.choice(self.others) if self.random.random() < 1 / 3 else None
        self.three.kill(head)
        if with_it:
            self.dies(with_it)
            self.lab[with_it].kill()
        self.head_number(but=head)
        self.three.back(head)
        if with_it:
            self.back(self.lab[with_it])
        self.is_whole()

    def control_node_dies(self) -> None:
        """With the machine of one that waits to be head."""
        head = self.head_number()
        number = self.random.choice([number for number in NUMBERS if number != head])
        self.three.kill(number)
        time.sleep(self.random.uniform(0, 2))  # so long it is away
        self.three.back(number)

    def faults(self) -> list[tuple[int, Callable[[], None]]]:
        return [*super().faults(), (1, self.head_dies), (1, self.control_node_dies)]


def rows_but(machine: Machine, kind: str, state: str) -> list[dict[str, Any]]:
    return [row for row in machine.listed(kind) if row["state"] != state]


def main() -> int:
    parser = argparse.ArgumentParser(description="random programs over nodes that fail")
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--three", action="store_true", help="any of three machines may be head")
    asked = parser.parse_args()
    kind = ClusterOfThree if asked.three or asked.seed % 3 == 0 else Cluster
    words = f"soak of {kind.size} nodes"
    print(f"{words}: {kind.__name__}, seed {asked.seed}, {asked.seconds:.0f} s", flush=True)
    cluster = kind(asked.seed)
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
        again = f"--seed {asked.seed} --seconds {asked.seconds:.0f}{' --three' * asked.three}"
        print(f"again: {sys.executable} {sys.argv[0]} {again}")
        keep_logs(cluster)
        return 1
    finally:
        at_the_end.close()
        cluster.lab.end()
    print(f"{words}: nothing wrong: {cluster.counts} {told['counts']}", flush=True)
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
