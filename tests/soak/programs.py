"""One random program: what it does follows from a seed, its values from plain Python."""

from __future__ import annotations

import contextlib
import math
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import calls
from calls import same, shown, task

import hoplo
from hoplo.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    GetTimeoutError,
    TaskCancelledError,
    TaskError,
)

PATIENCE_S = 150.0
# What the values of a program take together, in stores; more than one, so that it spills.
LIVE_STORES = 2.0
HELD_STORES = 0.6
NODES_MAX = 60
# What is computed again for each check is not made of more steps than that.
DEPTH_MAX = 6
ACTORS_MAX = 3


class Wrong(AssertionError):
    """A value differs, a wait does not end, or an error came that nothing explains."""


class Node:
    """A ref, and how plain Python comes to the same value."""

    def __init__(
        self,
        ref: Any,
        recipe: Callable[[], Any],
        size: int,
        depth: int,
        story: str,
        below: Sequence[Node] = (),
    ) -> None:
        self.ref = ref
        self.recipe = recipe
        self.size = size
        self.depth = depth
        self.story = story
        self.below = below

    def expected(self) -> Any:
        return self.recipe()


def expected(nodes: list[Node]) -> list[Any]:
    return [node.expected() for node in nodes]


def stories(nodes: list[Node]) -> str:
    return ", ".join(node.story for node in nodes)


class Actor(NamedTuple):
    handle: Any
    name: str | None
    seed: int
    size: int
    given: list[Node]

    def expected(self, nodes: list[Node]) -> list[int]:
        given, asked = expected(self.given), expected(nodes)
        return calls.digests(calls.pattern(self.seed, self.size), given, asked)

    def given_by(self, by: int) -> Any:
        return calls.changed(calls.pattern(self.seed, self.size), by)


class Program:
    """`store_bytes`: what this one may count on; others may run beside it."""

    def __init__(self, name: str, seed: int, store_bytes: int, until_s: float) -> None:
        self.name = name
        self.random = random.Random(seed)
        self.store_bytes = store_bytes
        self.until_s = until_s
        self.nodes: list[Node] = []
        self.held: list[tuple[Any, Node]] = []
        self.actors: list[Actor] = []
        self.counts: Counter[str] = Counter()
        self.last_name = 0

    def run(self) -> Counter[str]:
        steps: list[tuple[int, Callable[[], None]]] = [
            (8, self.put),
            (4, self.make),
            (14, self.call),
            (6, self.call_in_a_box),
            (3, self.tree),
            (3, self.scatter),
            (4, self.stream),
            (3, self.cancel),
            (2, self.fail),
            (3, self.map),
            (3, self.new_actor),
            (8, self.ask_actor),
            (2, self.end_actor),
            (2, self.count),
            (2, self.ledger),
            (6, self.wait),
            (10, self.get),
            (4, self.hold),
            (4, self.let_go),
            (8, self.drop),
        ]
        weights = [weight for weight, _ in steps]
        while time.monotonic() < self.until_s:
            (step,) = self.random.choices([step for _, step in steps], weights)
            self.attempt(step)
            self.counts[step.__name__] += 1
            self.attempt(self.make_room)
        for node in list(self.nodes):
            self.attempt(partial(self.check, node))
        self.nodes.clear()
        self.held.clear()
        self.actors.clear()
        return self.counts

    def attempt(self, step: Callable[[], Any]) -> None:
        step()

    def is_sure(self, node: Node) -> bool:
        """Whether nothing that befalls the program may take it away."""
        return True

    # ---- values ----

    def size(self, most: float = 0.3) -> int:
        """Mostly small; now and then a good part of the store."""
        largest = min(self.store_bytes * most, 24 << 20)
        return int(2 ** self.random.uniform(0, math.log2(largest)))

    def any_size(self) -> int:
        """Once in a while about as large as the store, or larger."""
        if self.random.random() < 0.03:
            return int(self.store_bytes * self.random.uniform(0.9, 1.2))
        return self.size()

    def seed(self) -> int:
        return self.random.randrange(1 << 40)

    def add(self, ref: Any, recipe: Callable[[], Any], size: int, story: str, *below: Node) -> Node:
        depth = 1 + max((node.depth for node in below), default=0)
        node = Node(ref, recipe, size, depth, story, below)
        self.nodes.append(node)
        return node

    def some(self, most: int) -> list[Node]:
        shallow = [node for node in self.nodes if node.depth < DEPTH_MAX]
        return self.random.sample(shallow, min(len(shallow), self.random.randint(1, most)))

    def make_room(self) -> None:
        live = sum(node.size for node in self.nodes)
        while self.nodes and (live > LIVE_STORES * self.store_bytes or len(self.nodes) > NODES_MAX):
            node = self.nodes.pop(self.random.randrange(len(self.nodes)))
            live -= node.size
            if self.random.random() < 0.5:
                self.check(node)
        while self.held and (
            sum(node.size for _, node in self.held) > HELD_STORES * self.store_bytes
            or len(self.held) > 20
        ):
            self.held.pop(0)

    def check(self, node: Node) -> Any:
        value = self.fetched(node.ref, node.story)
        value = self.fetched_inside(value, node.story)
        expected = node.expected()
        self.compare(value, expected, node.story)
        return value

    def compare(self, value: Any, expected: Any, story: str) -> None:
        self.counts["checked"] += 1
        if not same(value, expected):
            raise Wrong(f"{story}: {shown(value)} instead of {shown(expected)}")

    def fetched(self, ref: Any, story: str) -> Any:
        try:
            return hoplo.get(ref, timeout=PATIENCE_S)
        except GetTimeoutError as error:
            raise Wrong(f"{story}: no value within {PATIENCE_S:.0f} s: {error}") from error

    def fetched_inside(self, value: Any, story: str) -> Any:
        if isinstance(value, hoplo.ObjectRef):
            return self.fetched_inside(self.fetched(value, story), story)
        if isinstance(value, list):
            return [self.fetched_inside(item, story) for item in value]
        return value

    # ---- steps: values and tasks ----

    def put(self) -> None:
        seed, size = self.seed(), self.any_size()
        make: Callable[[int, int], Any] = self.random.choice([calls.pattern, calls.text])
        self.add(hoplo.put(make(seed, size)), lambda: make(seed, size), size, f"put {size}")

    def make(self) -> None:
        seed, size = self.seed(), self.any_size()
        ref = task(calls.pattern).remote(seed, size)
        self.add(ref, lambda: calls.pattern(seed, size), size, f"made {size}")

    def call(self) -> None:
        nodes = self.some(4)
        if not nodes:
            return
        first, seed = nodes[0], self.seed()
        which = self.random.randrange(3)
        if which == 0:
            ref = task(calls.digests).remote(*[node.ref for node in nodes])
            story = f"digests of ({stories(nodes)})"
            self.add(ref, lambda: calls.digests(*expected(nodes)), 100, story, *nodes)
        elif which == 1:
            ref = task(calls.changed).remote(first.ref, seed % 250)
            story, by = f"changed ({first.story})", seed % 250
            self.add(ref, lambda: calls.changed(first.expected(), by), first.size, story, first)
        else:
            left, right = task(calls.two).options(num_returns=2).remote(first.ref, seed)
            story = f"first of two of ({first.story})"
            self.add(left, lambda: calls.changed(first.expected(), 1), first.size, story, first)
            self.add(right, lambda: calls.small(seed), 100, "second of two", first)

    def call_in_a_box(self) -> None:
        """Refs travel inside values: of a call, or of an object that is put."""
        nodes = self.some(5)
        if not nodes:
            return
        refs = [node.ref for node in nodes]
        story = f"box of ({stories(nodes)})"
        way = self.random.randrange(3)
        if way == 0:
            self.add(hoplo.put(refs), lambda: expected(nodes), 100, story, *nodes)
            return
        argument = hoplo.put([refs, 7]) if way == 1 else [refs, 7]
        ref = task(calls.digest).remote(argument)
        story = f"digest of a {story}"
        self.add(ref, lambda: calls.digest([expected(nodes), 7]), 100, story, *nodes)

    def tree(self) -> None:
        depth, seed, size = self.random.randint(1, 3), self.seed() % 1000, self.size(0.05)
        ref = task(calls.tree).remote(depth, seed, size)
        self.add(ref, lambda: calls.tree_plain(depth, seed, size), 100, f"tree {depth} {size}")

    def scatter(self) -> None:
        seed, sizes = self.seed(), [self.size(0.1) for _ in range(self.random.randint(1, 5))]
        ref = task(calls.scattered).remote(seed, sizes)
        story = f"scattered {sizes} (refs)"
        self.add(ref, lambda: calls.scattered_plain(seed, sizes), sum(sizes), story)

    def stream(self) -> None:
        seed, sizes = self.seed(), [self.size(0.1) for _ in range(self.random.randint(1, 12))]
        options = {"num_returns": "streaming"}
        if self.random.random() < 0.5:
            options["_generator_backpressure_num_objects"] = self.random.randint(1, 3)
        values = task(calls.stream).options(**options).remote(seed, sizes)
        taken = self.random.randint(0, len(sizes))
        for i, ref in zip(range(taken), values, strict=False):
            story, size = f"item {i} of stream {sizes}", sizes[i]
            recipe = partial(calls.pattern, seed + i, size)
            node = self.add(ref, recipe, size, story)
            if self.random.random() < 0.5:
                self.check(node)
        if taken == len(sizes) and next(values, None) is not None:
            raise Wrong(f"stream {sizes} goes on behind its end")

    def map(self) -> None:
        seeds = [self.seed() for _ in range(self.random.randint(1, 60))]
        values = list(task(calls.small).map(seeds))
        self.compare(values, [calls.small(seed) for seed in seeds], "map")

    def cancel(self) -> None:
        """A task that would run for ever; and one that may be done before it is cancelled."""
        force = self.random.random() < 0.5
        endless = task(calls.never).remote()
        seed, size = self.seed(), self.size(0.1)
        short = task(calls.pattern).remote(seed, size)
        if self.random.random() < 0.5:
            hoplo.wait([endless], timeout=self.random.uniform(0, 0.2))
        for ref in (endless, short):
            hoplo.cancel(ref, force=force)
        try:
            self.compare(self.fetched(short, "cancelled"), calls.pattern(seed, size), "cancelled")
        except TaskCancelledError:
            pass
        try:
            self.fetched(endless, f"an endless task that was cancelled, force={force}")
        except TaskCancelledError:
            return
        raise Wrong("a task that runs for ever has ended")

    def fail(self) -> None:
        number = self.seed()
        failed = task(calls.raises).remote(number)
        ref = failed if self.random.random() < 0.5 else task(calls.digests).remote(1, failed)
        try:
            self.fetched(ref, "a task that raises")
        except TaskError as error:
            self.compare(error.cause.args, (number,), "the exception of a task")
            return
        raise Wrong("a task that raises has given a value")

    # ---- steps: actors ----

    def new_actor(self) -> None:
        if len(self.actors) >= ACTORS_MAX:
            return
        nodes, seed, size = self.some(2), self.seed(), self.size(0.1)
        name = None
        if self.random.random() < 0.5:
            self.last_name += 1
            name = f"keeper-{self.name}-{self.last_name}"
        made_of = self.random.choice([calls.Keeper, calls.AsyncKeeper])
        kind = hoplo.remote(max_restarts=-1, max_task_retries=-1, num_cpus=0)(made_of)
        handle = kind.options(name=name).remote(seed, size, [node.ref for node in nodes])
        self.actors.append(Actor(handle, name, seed, size, nodes))

    def ask_actor(self) -> None:
        if not self.actors:
            return
        actor, nodes = self.random.choice(self.actors), self.some(2)
        refs, way = [node.ref for node in nodes], self.random.randrange(3)
        recipe = partial(actor.expected, nodes)
        if way == 0:
            by = self.random.randrange(250)
            ref = actor.handle.give.remote(by)
            self.add(ref, partial(actor.given_by, by), actor.size, "given by an actor")
        elif way == 1 and actor.name is not None and all(map(self.is_sure, actor.given)):
            # The task is another caller: what this one calls may come to the actor behind its call,
            # which waits for these.
            hoplo.wait(refs, num_returns=len(refs), timeout=PATIENCE_S, fetch_local=False)
            # Its name goes with its last handle: the task needs it until then.
            ref = task(calls.ask_by_name).remote(actor.name, refs)
            self.check(Node(ref, recipe, 100, 1, "answer of an actor, by name"))
        else:
            ref = actor.handle.answer.remote(refs)
            story = f"answer of an actor to ({stories(nodes)})"
            self.add(ref, recipe, 100, story, *nodes, *actor.given)

    def end_actor(self) -> None:
        """Its calls so far are waited for; a later one is told that it is dead."""
        if not self.actors:
            return
        actor = self.actors.pop(self.random.randrange(len(self.actors))).handle
        if self.random.random() < 0.5:
            return  # its handle goes
        for node in [node for node in self.nodes if "actor" in node.story]:
            self.check(node)
        hoplo.kill(actor)
        try:
            self.fetched(actor.give.remote(1), "a call of a killed actor")
        except ActorDiedError:
            return
        raise Wrong("a killed actor has answered")

    def count(self) -> None:
        """Without retries an answer is one more than the last, or an error, and it began anew."""
        counter = hoplo.remote(max_restarts=-1, num_cpus=0)(calls.Counter).remote()
        last = 0
        for ref in [counter.add.remote() for _ in range(self.random.randint(1, 50))]:
            try:
                value = self.fetched(ref, "a counter")
            except (ActorUnavailableError, ActorDiedError):
                last = 0
                continue
            if value not in (last + 1, 1):
                raise Wrong(f"a counter said {value} after {last}")
            last = value

    def ledger(self) -> None:
        """Each call takes effect once, whatever dies, and stands at the place that was replied."""
        every, count = self.random.randint(1, 10), self.random.randint(1, 40)
        made = hoplo.remote(max_restarts=-1, num_cpus=0, checkpoint_every=every)(calls.Ledger)
        ledger = made.remote()
        callers = [task(calls.adds).remote(ledger, name, count) for name in range(1, 3)]
        mine = [ledger.add.remote((0, one)) for one in range(count)]
        for _ in range(self.random.randint(0, 3)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.fetched(ledger.pid.remote(), "its pid"), signal.SIGKILL)
        replies = [[self.fetched(ref, "a call of a ledger") for ref in mine]]
        replies += [self.fetched(ref, "callers of a ledger") for ref in callers]
        entries = self.fetched(ledger.all.remote(), "a ledger")
        stands = dict(enumerate(entries, start=1))
        for name, places in enumerate(replies):
            said = [(name, one) for one in range(count)]
            self.compare([stands.get(place) for place in places], said, f"a ledger, {places}")
        # A task that ran again called again.
        once = [entry for entry in entries if entry[0] == 0]
        self.compare(once, [(0, one) for one in range(count)], "a ledger's entries of one caller")

    # ---- steps: waiting, holding, dropping ----

    def wait(self) -> None:
        nodes = self.some(10)
        if not nodes:
            return
        refs = [node.ref for node in nodes]
        many = self.random.randint(1, len(refs))
        ready, others = hoplo.wait(refs, num_returns=many, timeout=PATIENCE_S)
        if len(ready) != many or set(ready) | set(others) != set(refs):
            raise Wrong(f"wait for {many} of {len(refs)} gave {len(ready)} and {len(others)}")

    def get(self) -> None:
        for node in self.some(3):
            self.check(node)

    def hold(self) -> None:
        """What was read stays as it is, though its ref may go."""
        for node in self.some(1):
            if node.size < self.store_bytes * HELD_STORES:
                self.held.append((self.check(node), node))
                if self.random.random() < 0.5:
                    self.nodes.remove(node)
                    node.ref = None

    def let_go(self) -> None:
        if self.held:
            value, node = self.held.pop(self.random.randrange(len(self.held)))
            self.compare(value, node.expected(), f"held: {node.story}")

    def drop(self) -> None:
        if self.nodes:
            self.nodes.pop(self.random.randrange(len(self.nodes)))
