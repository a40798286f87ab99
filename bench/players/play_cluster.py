"""hoplo or Ray, from the head of a cluster: all but the module is word for word the same.

Its arguments: which of them, and what the addresses of the nodes begin with ("10.199.0."). The
cluster runs already. Without addresses there is none, and it starts one of its own.
BENCH_COMMANDS says how a late node starts, is cut off and so on: by name, JSON of a line and of
variables. RESOURCES in a line is what the node says that it has.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from player import Player, Run, Skipped

SYSTEM, PREFIX = sys.argv[1], (sys.argv[2:] or [""])[0]
COMMANDS = json.loads(os.environ.get("BENCH_COMMANDS", "{}"))
NODES = json.loads(os.environ.get("BENCH_NODES", "[]"))
"""Ids of the nodes, where their addresses are all the same."""

LATE = 4
"""The node that a row starts by itself, and cuts off."""

api: Any = importlib.import_module(SYSTEM)
KIB, MIB = 1 << 10, 1 << 20
play = Player()


def address(number: int) -> str:
    return f"{PREFIX}{number}"


def node(number: int) -> str:
    """The id of the node that is at that address now."""
    if NODES:
        return str(NODES[number - 1])
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


def command(name: str, resources: dict[str, float] | None = None) -> None:
    if name not in COMMANDS:
        raise Skipped(f"nothing says how to {name}")
    line = [word.replace("RESOURCES", json.dumps(resources or {})) for word in COMMANDS[name][0]]
    # Its output goes nowhere: a daemon would keep a pipe open.
    nowhere = subprocess.DEVNULL
    variables = {**os.environ, **COMMANDS[name][1]}
    subprocess.run(line, env=variables, check=True, stdin=nowhere, stdout=nowhere, stderr=nowhere)


# ------------------------------------------------------------------------------- what is timed


def repeated(once: Callable[[], object]) -> Run:
    """One after the other."""

    def run(count):
        for _ in range(count):
            once()

    return run


def using(make: Callable[[int], Any], use: Callable[[Any], object], at_once: int = 1) -> Run:
    """Makes so many things, then uses them: only that is timed. Then they go."""

    def run(count):
        seconds = 0.0
        for first in range(0, count, at_once):
            made = make(min(at_once, count - first))
            start = time.perf_counter()
            use(made)
            seconds += time.perf_counter() - start
            del made
        return seconds

    return run


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
def touch_all(*arrays):
    return sum(int(array[:: 4 * KIB].sum()) for array in arrays)


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
    yield repeated(lambda: api.get(actor.add.remote()))
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

    def once():
        assert len(api.get(actor.echo.remote(payload))) == 64 * KIB

    yield repeated(once)
    api.kill(actor)


@play.measure("actor.create")
def _():
    api.kill(far_actor(Counter, 2))
    strategy = on(2)

    def once():
        actor = Counter.options(scheduling_strategy=strategy).remote()
        api.get(actor.add.remote())
        api.kill(actor)

    yield repeated(once)


@play.measure("task.one")
def _():
    task = far_task(nothing, 2)
    yield repeated(lambda: api.get(task.remote()))


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


def _grouping(wait):
    try:
        groups = importlib.import_module(f"{SYSTEM}.util.placement_group")
    except ImportError:
        raise Skipped(f"this {SYSTEM} has no placement groups") from None

    def once():
        group = groups.placement_group([{"CPU": 1}] * 3, strategy="STRICT_SPREAD")
        assert wait(group)
        groups.remove_placement_group(group)

    yield repeated(once)


@play.measure("group.wait")
def _():
    yield from _grouping(lambda group: group.wait(30))


@play.measure("group.ready")
def _():
    yield from _grouping(lambda group: api.get(group.ready()))


# ------------------------------------------------------------------------------- objects


def get_each(refs):
    for ref in refs:
        assert api.get(ref).nbytes >= MIB


def _getting(nbytes, use):
    """Fresh objects of another node; with `make` that only makes them, what getting does beside."""
    maker = far_actor(Maker, 2)
    at_once = max(1, 256 * MIB // nbytes)
    yield using(lambda count: api.get(maker.put.remote(nbytes, count)), use, at_once)
    api.kill(maker)


for _size in (1, 100, 256):

    @play.measure(f"get.{_size}MiB")
    def _(size=_size):
        yield from _getting(size * MIB, get_each)

    @play.measure(f"make.{_size}MiB")
    def _(size=_size):
        yield from _getting(size * MIB, len)


def _putting(use):
    array = np.ones(10 * MIB, np.uint8)
    yield repeated(lambda: use(api.put(array)))


@play.measure("task.10MiB")
def _():
    task = far_task(touch, 2)

    def read(ref):
        assert api.get(task.remote(ref)) == 10 * MIB // (4 * KIB)

    yield from _putting(read)


@play.measure("put.10MiB")
def _():
    """What `task.10MiB` does beside the task."""
    yield from _putting(lambda ref: None)


def _broadcasting(nodes):
    tasks = [far_task(touch, number) for number in range(2, nodes + 2)]
    array = np.ones(64 * MIB, np.uint8)
    yield using(lambda _: api.put(array), lambda ref: api.get([it.remote(ref) for it in tasks]))


@play.measure("broadcast.2")
def _():
    yield from _broadcasting(2)


@play.measure("broadcast.4")
def _():
    yield from _broadcasting(4)


@play.measure("shuffle")
def _():
    """Every node has 8 MiB for every other node, which a task there reads."""
    numbers, nbytes = (1, 2, 3), 8 * MIB
    makers = [far_actor(Maker, number) for number in numbers]
    tasks = [far_task(touch_all, number) for number in numbers]

    def make(_):
        made = api.get([maker.put.remote(nbytes, len(numbers)) for maker in makers])
        return [[row[to] for row in made if row is not made[to]] for to in range(len(numbers))]

    def use(parts):
        for read in api.get([task.remote(*part) for task, part in zip(tasks, parts, strict=True)]):
            assert read == (len(numbers) - 1) * nbytes // (4 * KIB)

    yield using(make, use)
    for maker in makers:
        api.kill(maker)


# ------------------------------------------------------------------------------- locality


def _near_or_far(nbytes, strategy):
    """Tasks whose one argument is at a node chosen by chance; one after the other."""
    makers = [far_actor(Maker, number) for number in (1, 2)]
    task = length.options(scheduling_strategy=strategy)
    random = np.random.default_rng(0)
    at_once = max(1, min(50, 128 * MIB // nbytes))
    api.get([nothing.options(scheduling_strategy=on(n)).remote() for n in (1, 2)])

    def make(count):
        there = int(random.binomial(count, 0.5))
        refs = api.get(makers[0].put.remote(nbytes, count - there))
        refs += api.get(makers[1].put.remote(nbytes, there))
        random.shuffle(refs)
        return refs

    def use(refs):
        for ref in refs:
            assert api.get(task.remote(ref)) == nbytes

    yield using(make, use, at_once)
    for maker in makers:
        api.kill(maker)


for _size in (100_000, 1_000_000, 10_000_000, 100_000_000):
    for _name, _strategy in (("on", "DEFAULT"), ("off", "SPREAD")):

        @play.measure(f"locality.{_size}.{_name}")
        def _(size=_size, strategy=_strategy):
            yield from _near_or_far(size, strategy)


# ------------------------------------------------------------------- nodes that come and go


@play.measure("head")
def _():
    """From the command to the end of a first task. This process has imported all it needs."""

    def run(count):
        seconds = 0.0
        for _ in range(count):
            start = time.perf_counter()
            command("head")
            connect()
            api.get(nothing.remote())
            seconds += time.perf_counter() - start
            api.shutdown()
            command("leave")
        return seconds

    yield run


@play.measure("join")
def _():
    """From the command at another machine to the end of a task that waits for that node."""

    def make(_):
        name = f"late-{time.monotonic_ns()}"
        return name, where.options(resources={name: 1}).remote()

    def use(made):
        name, ref = made
        command("join", {name: 1})
        ready, _ = api.wait([ref], timeout=60)
        if not ready:
            api.cancel(ref)
            raise Skipped(f"{SYSTEM} gave a node that joined none of the work that waited")

    once = using(make, use)

    def run(count):
        seconds = 0.0
        for _ in range(count):
            try:
                seconds += once(1)
            finally:
                command("leave")
        return seconds

    yield run


@play.measure("silence")
def _():
    """From when the cable of a node is pulled until the head takes it for dead."""

    def run(count):
        seconds = 0.0
        for _ in range(count):
            command("join")
            late = until(lambda: node(LATE), 60)
            start = time.perf_counter()
            command("cut")
            try:
                until(lambda late=late: not is_alive(late), 100)
                seconds += time.perf_counter() - start
            finally:
                command("heal")
                command("leave")
        return seconds

    yield run


def is_alive(node_id):
    return any(row["NodeID"] == node_id and row["Alive"] for row in api.nodes())


def until(condition, seconds):
    """Its first true value; a node that is not there yet is none."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if found := condition():
                return found
        except Skipped:
            pass
        time.sleep(0.001)
    raise Skipped(f"not within {seconds} s")


def connect():
    """To the cluster of this machine."""
    if SYSTEM == "ray":
        here = address(1) if PREFIX else os.environ["BENCH_ADDRESS"]
        api.init(address=f"{here}:6379", log_to_driver=False, logging_level="ERROR")
    else:
        api.init(address="auto")


if __name__ == "__main__":
    if PREFIX:
        connect()
    play.serve(api.shutdown)
