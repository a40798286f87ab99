"""Monarch: an actor in a process of its own on this host. It has no tasks."""

from __future__ import annotations

from monarch.actor import Actor, endpoint, this_host
from player import Player
from ray_like import latencies

play = Player()


class Counter(Actor):
    def __init__(self) -> None:
        self.count = 0

    @endpoint
    def add(self, x: int) -> int:
        self.count += x
        return self.count


class AsyncCounter(Actor):
    @endpoint
    async def add(self, x: int) -> int:
        return x


def _spawn(cls):
    processes = this_host().spawn_procs(per_host={"workers": 1})
    actor = processes.spawn("counter", cls)
    actor.add.call_one(1).get()
    return processes, actor


def _one(cls):
    processes, actor = _spawn(cls)

    def run(count):
        for _ in range(count):
            actor.add.call_one(1).get()

    yield run
    processes.stop().get()


def _batch(cls):
    processes, actor = _spawn(cls)

    def run(count):
        for future in [actor.add.call_one(1) for _ in range(count)]:
            future.get()

    yield run
    processes.stop().get()


@play.measure("actor.one")
def _():
    yield from _one(Counter)


@play.measure("actor.latency")
def _():
    processes, actor = _spawn(Counter)
    yield lambda count: {"latencies": latencies(lambda: actor.add.call_one(1).get(), count)}
    processes.stop().get()


@play.measure("actor.batch")
def _():
    yield from _batch(Counter)


@play.measure("actor.async_one")
def _():
    yield from _one(AsyncCounter)


@play.measure("actor.async_batch")
def _():
    yield from _batch(AsyncCounter)


@play.measure("actor.create")
def _():
    def run(count):
        for _ in range(count):
            processes, _ = _spawn(Counter)
            processes.stop().get()

    yield run


if __name__ == "__main__":
    play.serve()
