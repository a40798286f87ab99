"""The measures that hoplo and Ray share, word for word: only the module differs."""

from __future__ import annotations

import time
from types import ModuleType
from typing import Any

import numpy as np
from player import Player, Run

KIB, MIB = 1 << 10, 1 << 20


def add_measures(play: Player, api: ModuleType) -> None:
    _tasks(play, api)
    _actors(play, api)
    _objects(play, api)
    _refs(play, api)


def _tasks(play: Player, api: Any) -> None:
    @api.remote
    def nothing():
        return None

    @api.remote
    def add_one(x):
        return x + 1

    @api.remote
    def submit(count):
        api.get([nothing.remote() for _ in range(count)])

    @api.remote(num_cpus=1)
    def warm(seconds):
        time.sleep(seconds)

    def workers_up():
        # Both workers exist before anything is timed.
        api.get([warm.remote(0.2) for _ in range(2)])

    @play.measure("task.one")
    def _():
        workers_up()

        def run(count):
            for _ in range(count):
                api.get(nothing.remote())

        yield run

    @play.measure("task.batch")
    def _():
        workers_up()
        yield lambda count: api.get([nothing.remote() for _ in range(count)])

    @play.measure("task.int_batch")
    def _():
        workers_up()

        def run(count):
            assert api.get([add_one.remote(i) for i in range(count)])[-1] == count

        yield run

    @play.measure("task.chain")
    def _():
        def run(count):
            ref = add_one.remote(0)
            for _ in range(count - 1):
                ref = add_one.remote(ref)
            assert api.get(ref) == count

        yield run

    @play.measure("task.nested")
    def _():
        workers_up()
        api.get([submit.remote(100) for _ in range(2)])
        yield lambda count: api.get([submit.remote(count // 2) for _ in range(2)])


def _actors(play: Player, api: Any) -> None:
    @api.remote(num_cpus=0)
    class Counter:
        def __init__(self):
            self.count = 0

        def add(self, x=1):
            self.count += x
            return self.count

    @api.remote(num_cpus=0)
    class AsyncCounter:
        async def add(self, x=1):
            return x

    @api.remote(num_cpus=0)
    class Caller:
        def __init__(self, target):
            self.target = target

        def call(self, count):
            api.get([self.target.add.remote() for _ in range(count)])

    def actors(cls, count, *args):
        made = [cls.remote(*args) for _ in range(count)]
        return made

    def one_at_a_time(actor) -> Run:
        def run(count):
            for _ in range(count):
                api.get(actor.add.remote())

        return run

    def batch(targets, argument=None) -> Run:
        arguments = () if argument is None else (argument,)

        def run(count):
            each = count // len(targets)
            api.get([actor.add.remote(*arguments) for actor in targets for _ in range(each)])

        return run

    @play.measure("actor.one")
    def _():
        counter = Counter.remote()
        api.get(counter.add.remote())
        yield one_at_a_time(counter)
        api.kill(counter)

    @play.measure("actor.latency")
    def _():
        counter = Counter.remote()
        api.get(counter.add.remote())
        yield lambda count: {"latencies": latencies(lambda: api.get(counter.add.remote()), count)}
        api.kill(counter)

    @play.measure("actor.batch")
    def _():
        counter = Counter.remote()
        api.get(counter.add.remote())
        yield batch([counter])
        api.kill(counter)

    @play.measure("actor.ref_batch")
    def _():
        counter, one = Counter.remote(), api.put(1)
        api.get(counter.add.remote(one))
        yield batch([counter], one)
        api.kill(counter)

    @play.measure("actor.to_four")
    def _():
        counters = actors(Counter, 4)
        api.get([counter.add.remote() for counter in counters])
        yield batch(counters)
        for counter in counters:
            api.kill(counter)

    @play.measure("actor.two_to_two")
    def _():
        counters = actors(Counter, 2)
        callers = [Caller.remote(counter) for counter in counters]
        api.get([caller.call.remote(10) for caller in callers])

        def run(count):
            api.get([caller.call.remote(count // 2) for caller in callers])

        yield run
        for actor in callers + counters:
            api.kill(actor)

    @play.measure("actor.async_one")
    def _():
        counter = AsyncCounter.remote()
        api.get(counter.add.remote())
        yield one_at_a_time(counter)
        api.kill(counter)

    @play.measure("actor.async_batch")
    def _():
        counter = AsyncCounter.remote()
        api.get(counter.add.remote())
        yield batch([counter])
        api.kill(counter)

    @play.measure("actor.create")
    def _():
        def run(count):
            for _ in range(count):
                counter = Counter.remote()
                api.get(counter.add.remote())
                api.kill(counter)

        yield run


def _objects(play: Player, api: Any) -> None:
    @api.remote
    def plus_one(x):
        return x + 1

    @api.remote
    def touch(x):
        return int(x[:: 4 * KIB].sum())

    def putting(value) -> Run:
        def run(count):
            for _ in range(count):
                ref = api.put(value)
                del ref

        return run

    @play.measure("put.zero")
    def _():
        yield putting(0)

    @play.measure("get.zero")
    def _():
        ref = api.put(0)

        def run(count):
            for _ in range(count):
                api.get(ref)

        yield run

    for size in (1 << n for n in range(10, 31)):

        @play.measure(f"put.{size}")
        def _(size=size):
            yield putting(np.ones(size, np.uint8))

    @play.measure("put.100KiB")
    def _():
        yield putting(np.ones(100 * KIB, np.uint8))

    @play.measure("put.100MiB")
    def _():
        yield putting(np.ones(100 * MIB, np.uint8))

    @play.measure("get.100MiB")
    def _():
        ref = api.put(np.ones(100 * MIB, np.uint8))

        def run(count):
            for _ in range(count):
                api.get(ref)

        yield run

    @play.measure("array.value")
    def _():
        x = np.ones(10 * MIB // 8)

        def run(count):
            for _ in range(count):
                api.get(plus_one.remote(x))

        yield run

    @play.measure("array.ref")
    def _():
        x = api.put(np.ones(10 * MIB // 8))

        def run(count):
            for _ in range(count):
                api.get(plus_one.remote(x))

        yield run

    @play.measure("array.ten")
    def _():
        x = api.put(np.ones(10 * MIB // 8))

        def run(count):
            for _ in range(max(1, count // 10)):
                api.get([plus_one.remote(x) for _ in range(10)])
            return {"count": max(10, count // 10 * 10)}

        yield run

    @play.measure("share.1GiB")
    def _():
        data = np.ones(1 << 30, np.uint8)

        def run(count):
            for _ in range(count):
                assert api.get(touch.remote(api.put(data))) == (1 << 30) // (4 * KIB)

        yield run


def _refs(play: Player, api: Any) -> None:
    @api.remote
    def nothing():
        return None

    @api.remote
    def count_all(*values):
        return len(values)

    @api.remote
    def many(count):
        return list(range(count))

    @api.remote
    def refs_inside(count):
        return [api.put(i) for i in range(count)]

    @play.measure("wait.each")
    def _():
        def run(count):
            refs = [nothing.remote() for _ in range(count)]
            api.get(refs)
            start = time.perf_counter()
            while refs:
                _, refs = api.wait(refs)
            return time.perf_counter() - start

        yield run

    @play.measure("wait.all")
    def _():
        refs = [nothing.remote() for _ in range(1000)]
        api.get(refs)

        def run(count):
            for _ in range(count):
                ready, _ = api.wait(refs, num_returns=1000)
                assert len(ready) == 1000

        yield run

    @play.measure("refs.arguments")
    def _():
        refs = [api.put(i) for i in range(1000)]

        def run(count):
            for _ in range(count):
                assert api.get(count_all.remote(*refs)) == 1000

        yield run

    @play.measure("refs.returns")
    def _():
        def run(count):
            for _ in range(count):
                assert api.get(many.options(num_returns=1000).remote(1000))[-1] == 999

        yield run

    @play.measure("refs.inside")
    def _():
        def run(count):
            seconds = 0.0
            for _ in range(count):
                ref = refs_inside.remote(10_000)
                api.wait([ref])
                start = time.perf_counter()
                refs = api.get(ref)
                seconds += time.perf_counter() - start
                assert api.get(refs[-1]) == 9_999
            return seconds

        yield run


def latencies(call, count) -> list[float]:
    """Microseconds of each call."""
    found = []
    for _ in range(count):
        start = time.perf_counter()
        call()
        found.append(1e6 * (time.perf_counter() - start))
    return found
