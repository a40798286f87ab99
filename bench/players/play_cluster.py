"""hoplo or Ray, from the head of a cluster whose nodes are 10.199.0.1, .2, .3 and so on.

Its argument: which of them. The cluster runs already. All but the module is word for word the same.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
from typing import Any

import numpy as np
from player import Player, Skipped

SYSTEM = sys.argv[1]
api: Any = importlib.import_module(SYSTEM)
KIB, MIB = 1 << 10, 1 << 20
play = Player()


def address(number: int) -> str:
    return f"10.199.0.{number}"


def node(number: int) -> str:
    """The id of the node that is at that address now."""
    found = [
        row["NodeID"]
        for row in api.nodes()
        if row["Alive"] and row["NodeManagerAddress"] == address(number)
    ]
    if not found:
        raise Skipped(f"no node is at {address(number)}")
    return str(found[-1])


def on(number: int) -> Any:
    """The strategy that sends something to that node and no other."""
    strategies = importlib.import_module(f"{SYSTEM}.util.scheduling_strategies")
    return strategies.NodeAffinitySchedulingStrategy(node(number), soft=False)


def here() -> str:
    return str(api.get_runtime_context().get_node_id())


@api.remote
def nothing():
    return None


@api.remote
def where():
    return here()


@api.remote
def pause():
    """Long enough that one node cannot have done them all before the others begin."""
    time.sleep(0.05)
    return here()


@api.remote
def touch(array):
    """Reads one byte of each page: all of it is here."""
    return int(array[:: 4 * KIB].sum())


@api.remote
def length(array):
    return len(array)


@api.remote(num_cpus=0)
class Counter:
    def __init__(self):
        self.count = 0

    def add(self):
        self.count += 1
        return self.count

    def echo(self, value):
        return value

    def where(self):
        return here()


@api.remote(num_cpus=0)
class Caller:
    def __init__(self, target):
        self.target = target

    def call(self, count):
        start = time.perf_counter()
        api.get([self.target.add.remote() for _ in range(count)])
        return time.perf_counter() - start

    def where(self):
        return here()


@api.remote(num_cpus=0)
class Maker:
    """Puts objects at its node, and hands out their refs."""

    def where(self):
        return here()

    def put(self, nbytes, count):
        return [api.put(np.ones(nbytes, np.uint8)) for _ in range(count)]


def far_actor(cls, number, *arguments):
    """One that is there, or no measure: nothing is measured at the wrong place."""
    actor = cls.options(scheduling_strategy=on(number)).remote(*arguments)
    if api.get(actor.where.remote()) != node(number):
        raise Skipped(f"{SYSTEM} made the actor at another node")
    return actor


def far_task(task, number):
    there = where.options(scheduling_strategy=on(number))
    if api.get(there.remote()) != node(number):
        raise Skipped(f"{SYSTEM} ran the task at another node")
    return task.options(scheduling_strategy=on(number))


# ------------------------------------------------------------------------------- calls


@play.measure("actor.one")
def _():
    actor = far_actor(Counter, 2)

    def run(count):
        for _ in range(count):
            api.get(actor.add.remote())

    yield run
    api.kill(actor)


@play.measure("actor.batch")
def _():
    actor = far_actor(Counter, 2)
    yield lambda count: api.get([actor.add.remote() for _ in range(count)])
    api.kill(actor)


@play.measure("actor.actor")
def _():
    target = far_actor(Counter, 3)
    caller = far_actor(Caller, 2, target)
    yield lambda count: float(api.get(caller.call.remote(count)))
    api.kill(caller)
    api.kill(target)


@play.measure("actor.64KiB")
def _():
    actor, payload = far_actor(Counter, 2), b"x" * (64 * KIB)

    def run(count):
        for _ in range(count):
            assert len(api.get(actor.echo.remote(payload))) == 64 * KIB

    yield run
    api.kill(actor)


@play.measure("actor.create")
def _():
    far_actor(Counter, 2)

    def run(count):
        for _ in range(count):
            actor = Counter.options(scheduling_strategy=on(2)).remote()
            api.get(actor.add.remote())
            api.kill(actor)

    yield run


@play.measure("task.one")
def _():
    task = far_task(nothing, 2)

    def run(count):
        for _ in range(count):
            api.get(task.remote())

    yield run


@play.measure("task.batch")
def _():
    task = far_task(nothing, 2)
    yield lambda count: api.get([task.remote() for _ in range(count)])


@play.measure("task.spread")
def _():
    asked = [pause.options(scheduling_strategy="SPREAD").remote() for _ in range(60)]
    if len(set(api.get(asked))) < 3:
        raise Skipped(f"{SYSTEM} used not all nodes")
    task = nothing.options(scheduling_strategy="SPREAD")
    yield lambda count: api.get([task.remote() for _ in range(count)])


@play.measure("group")
def _():
    try:
        groups = importlib.import_module(f"{SYSTEM}.util.placement_group")
    except ImportError:
        raise Skipped(f"this {SYSTEM} has no placement groups") from None

    def run(count):
        for _ in range(count):
            group = groups.placement_group([{"CPU": 1}] * 3, strategy="STRICT_SPREAD")
            api.get(group.ready())
            groups.remove_placement_group(group)

    yield run


# ------------------------------------------------------------------------------- objects


def _getting(nbytes):
    maker = far_actor(Maker, 2)
    at_once = max(1, 256 * MIB // nbytes)

    def run(count):
        seconds = 0.0
        for first in range(0, count, at_once):
            refs = api.get(maker.put.remote(nbytes, min(at_once, count - first)))
            start = time.perf_counter()
            for ref in refs:
                assert api.get(ref).nbytes == nbytes
            seconds += time.perf_counter() - start
            del refs, ref
        return seconds

    yield run
    api.kill(maker)


@play.measure("make.100MiB")
def _():
    """What `get.100MiB` does beside getting."""
    maker = far_actor(Maker, 2)

    def run(count):
        for first in range(0, count, 2):
            api.get(maker.put.remote(100 * MIB, min(2, count - first)))

    yield run
    api.kill(maker)


@play.measure("get.1MiB")
def _():
    yield from _getting(MIB)


@play.measure("get.100MiB")
def _():
    yield from _getting(100 * MIB)


@play.measure("task.10MiB")
def _():
    task, array = far_task(touch, 2), np.ones(10 * MIB, np.uint8)

    def run(count):
        for _ in range(count):
            assert api.get(task.remote(api.put(array))) == 10 * MIB // (4 * KIB)

    yield run


def _broadcasting(nodes):
    tasks = [far_task(touch, number) for number in range(2, nodes + 2)]
    array = np.ones(64 * MIB, np.uint8)

    def run(count):
        seconds = 0.0
        for _ in range(count):
            ref = api.put(array)
            start = time.perf_counter()
            api.get([task.remote(ref) for task in tasks])
            seconds += time.perf_counter() - start
            del ref
        return seconds

    yield run


@play.measure("broadcast.2")
def _():
    yield from _broadcasting(2)


@play.measure("broadcast.4")
def _():
    yield from _broadcasting(4)


PARTS = 6


@api.remote(num_returns=PARTS)
def split(seed, nbytes):
    part = np.full(nbytes // PARTS, seed, np.uint8)
    return tuple(part.copy() for _ in range(PARTS))


@api.remote
def merge(*parts):
    return sum(int(part[0]) for part in parts), sum(part.nbytes for part in parts)


@play.measure("shuffle")
def _():
    """Each of 6 tasks makes 6 parts, each of 6 others reads one part of each: nodes in turn."""
    splits = [far_task(split, 1 + number % 3) for number in range(PARTS)]
    merges = [far_task(merge, 1 + number % 3) for number in range(PARTS)]
    nbytes = 12 * MIB

    def run(count):
        for _ in range(count):
            rows = [task.remote(seed, nbytes) for seed, task in enumerate(splits)]
            merged = [task.remote(*(row[part] for row in rows)) for part, task in enumerate(merges)]
            found = api.get(merged)
            assert {total for total, _ in found} == {sum(range(PARTS))}
        return {"count": count * PARTS * (nbytes // PARTS) * PARTS}

    yield run


# ------------------------------------------------------------------------------- locality


def _near_or_far(nbytes, strategy):
    """Tasks whose one argument is at a node chosen by chance; one after the other."""
    makers = [far_actor(Maker, number) for number in (1, 2)]
    task = length.options(scheduling_strategy=strategy)
    random = np.random.default_rng(0)
    at_once = max(1, min(50, 128 * MIB // nbytes))
    api.get([nothing.options(scheduling_strategy=on(n)).remote() for n in (1, 2)])

    def run(count):
        seconds = 0.0
        for first in range(0, count, at_once):
            wanted = min(at_once, count - first)
            there = int(random.binomial(wanted, 0.5))
            refs = api.get(makers[0].put.remote(nbytes, wanted - there))
            refs += api.get(makers[1].put.remote(nbytes, there))
            random.shuffle(refs)
            start = time.perf_counter()
            for ref in refs:
                assert api.get(task.remote(ref)) == nbytes
            seconds += time.perf_counter() - start
            del refs, ref
        return seconds

    yield run
    for maker in makers:
        api.kill(maker)


for _size in (100_000, 1_000_000, 10_000_000, 100_000_000):
    for _name, _strategy in (("on", "DEFAULT"), ("off", "SPREAD")):

        @play.measure(f"locality.{_size}.{_name}")
        def _(size=_size, strategy=_strategy):
            yield from _near_or_far(size, strategy)


# ------------------------------------------------------------------------------- nodes that join


@play.measure("join")
def _():
    """From the command at another machine to the end of a task that waits for that node."""
    join = json.loads(os.environ.get("BENCH_JOIN", "null"))
    leave = json.loads(os.environ.get("BENCH_LEAVE", "null"))
    if not join:
        raise Skipped("nothing says how a node joins")

    def run(count):
        seconds = 0.0
        for _ in range(count):
            name = f"late-{time.monotonic_ns()}"
            ref = where.options(resources={name: 1}).remote()
            line = [word.replace("RESOURCES", json.dumps({name: 1})) for word in join["line"]]
            start = time.perf_counter()
            # Its output goes nowhere: a daemon would keep a pipe open.
            subprocess.run(
                line,
                env={**os.environ, **join["environment"]},
                check=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            ready, _ = api.wait([ref], timeout=60)
            seconds += time.perf_counter() - start
            subprocess.run(
                leave["line"],
                env={**os.environ, **leave["environment"]},
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            if not ready:
                api.cancel(ref)
                raise Skipped(f"{SYSTEM} gave a node that joined none of the work that waited")
        return seconds

    yield run


if __name__ == "__main__":
    if SYSTEM == "ray":
        api.init(address=f"{address(1)}:6379", log_to_driver=False, logging_level="ERROR")
    else:
        api.init(address="auto")
    play.serve(api.shutdown)
