"""Async actors: coroutines that run at once, their limits, and concurrency groups."""

from __future__ import annotations

import asyncio
import threading

import pytest
from conftest import eventually

import hoplo
from hoplo.exceptions import ActorDiedError, GetTimeoutError


@hoplo.remote
class Coroutines:
    def __init__(self):
        self.event = asyncio.Event()
        self.running = 0
        self.most = 0

    async def wait(self):
        self.running += 1
        self.most = max(self.most, self.running)
        await self.event.wait()
        self.running -= 1
        return self.most

    async def arrived(self):
        return self.running

    async def open(self):
        self.event.set()

    def plain(self):
        return asyncio.get_running_loop() is not None

    async def fail(self):
        await asyncio.sleep(0)
        raise LookupError("in a coroutine")

    async def ask(self, ref):
        return await ref[0] + 1


def test_coroutines_run_at_once_in_one_thread():
    actor = Coroutines.remote()
    refs = [actor.wait.remote() for _ in range(100)]
    eventually(lambda: hoplo.get(actor.arrived.remote()) == 100)
    hoplo.get(actor.open.remote())
    assert set(hoplo.get(refs)) == {100}


def test_a_thousand_at_once_is_the_default_and_then_they_queue():
    actor = Coroutines.remote()
    refs = [actor.wait.remote() for _ in range(999)]
    eventually(lambda: hoplo.get(actor.arrived.remote()) == 999)
    last = actor.wait.remote()  # the thousandth: from now on calls queue, also this one
    queued = actor.open.remote()
    ready, _ = hoplo.wait([queued, last], num_returns=1, timeout=0.3)
    assert not ready
    hoplo.cancel(refs[0])
    hoplo.get(queued)
    assert max(hoplo.get(refs[1:])) == 1000


def test_max_concurrency_bounds_coroutines():
    actor = Coroutines.options(max_concurrency=2).remote()
    first = actor.wait.remote()
    assert eventually(lambda: hoplo.get(actor.arrived.remote()) == 1)
    second, third = actor.wait.remote(), actor.open.remote()
    assert hoplo.wait([first, second, third], timeout=0.3)[0] == []
    hoplo.cancel(first)
    assert hoplo.get(second) == 2


def test_plain_methods_of_an_async_actor_run_in_its_loop():
    assert hoplo.get(Coroutines.remote().plain.remote()) is True


def test_errors_of_coroutines_come_back():
    with pytest.raises(LookupError, match="in a coroutine"):
        hoplo.get(Coroutines.remote().fail.remote())


def test_coroutines_await_refs():
    @hoplo.remote
    def five():
        return 5

    assert hoplo.get(Coroutines.remote().ask.remote([five.remote()])) == 6


def test_an_async_actor_calls_others_while_it_serves():
    @hoplo.remote
    class Node:
        def __init__(self, next_node):
            self.next = next_node

        async def ping(self, hops):
            if hops == 0 or self.next is None:
                return 0
            return 1 + await self.next.ping.remote(hops - 1)

    chain = None
    for _ in range(3):
        chain = Node.remote(chain)
    assert hoplo.get([chain.ping.remote(10) for _ in range(20)]) == [2] * 20


# ------------------------------------------------------------------------------- groups


@hoplo.remote(concurrency_groups={"io": 2, "compute": 1})
class Grouped:
    def __init__(self):
        self.gates = {name: threading.Event() for name in ("io", "compute", "default")}
        self.running = dict.fromkeys(self.gates, 0)

    async def _wait(self, name):
        self.running[name] += 1
        while not self.gates[name].is_set():  # each group has a loop and a thread of its own
            await asyncio.sleep(0.001)
        return name

    @hoplo.method(concurrency_group="io")
    async def io(self):
        return await self._wait("io")

    @hoplo.method(concurrency_group="compute")
    async def compute(self):
        return await self._wait("compute")

    async def default(self):
        return await self._wait("default")

    async def look(self):
        return self.running

    async def open(self):
        for gate in self.gates.values():
            gate.set()


def test_groups_have_their_own_limits():
    actor = Grouped.remote()
    refs = [method.remote() for method in (actor.io, actor.compute, actor.default)]
    refs += [actor.io.remote() for _ in range(3)]
    refs += [actor.compute.remote() for _ in range(3)]
    expected = {"io": 2, "compute": 1, "default": 1}
    eventually(lambda: hoplo.get(actor.look.remote()) == expected)
    moved = actor.default.options(concurrency_group="io").remote()
    assert hoplo.wait([moved], timeout=0.2)[0] == []
    assert hoplo.get(actor.look.remote()) == expected  # "io" is full
    hoplo.get(actor.open.remote())
    assert hoplo.get(moved) == "default"
    assert sorted(hoplo.get(refs)) == ["compute"] * 4 + ["default"] + ["io"] * 4


def test_groups_of_a_threaded_actor(gate):
    @hoplo.remote(concurrency_groups={"slow": 1})
    class Server:
        @hoplo.method(concurrency_group="slow")
        def slow(self):
            return gate.wait("slow")

        def health(self):
            return "fine"

    server = Server.remote()
    slow = server.slow.remote()
    eventually(gate.arrived)
    assert hoplo.get(server.health.remote(), timeout=20) == "fine"
    gate.open()
    assert hoplo.get(slow) == "slow"


def test_an_unknown_group_is_told():
    actor = Grouped.remote()
    with pytest.raises(ValueError, match=r"no concurrency group 'disk'.*concurrency_groups"):
        hoplo.get(actor.default.options(concurrency_group="disk").remote())

    @hoplo.remote
    class Without:
        @hoplo.method(concurrency_group="io")
        def read(self):
            pass

    with pytest.raises(ValueError, match=r"concurrency_groups=\{'io': 1\}"):
        Without.remote()


# ------------------------------------------------------------------------------- ends


def test_exit_actor_in_a_coroutine_ends_it():
    @hoplo.remote
    class Leaver:
        def __init__(self):
            self.event = asyncio.Event()

        async def leave(self):
            hoplo.exit_actor()

        async def finish(self):
            await self.event.wait()
            return "finished"

        async def open(self):
            self.event.set()

    actor = Leaver.remote()
    running = actor.finish.remote()
    assert hoplo.wait([running], timeout=0.1)[0] == []
    opened = actor.open.remote()
    left = actor.leave.remote()
    with pytest.raises(ActorDiedError, match="exit_actor"):
        hoplo.get(left)
    hoplo.get(opened)
    assert hoplo.get(running) == "finished"  # calls that run reply first
    with pytest.raises(ActorDiedError, match="exit_actor"):
        hoplo.get(actor.open.remote())


def test_out_of_scope_it_finishes_what_runs():
    @hoplo.remote
    class Slow:
        async def work(self, i):
            for _ in range(50):
                await asyncio.sleep(0)
            return i

    refs = [ref for actor in [Slow.remote()] for ref in [actor.work.remote(i) for i in range(50)]]
    assert hoplo.get(refs) == list(range(50))


def test_a_blocked_loop_is_told_apart_from_a_dead_actor(gate):
    @hoplo.remote
    class Blocking:
        async def block(self):
            return gate.wait("free")

        async def quick(self):
            return 1

    actor = Blocking.remote()
    blocked = actor.block.remote()
    eventually(gate.arrived)
    with pytest.raises(GetTimeoutError, match=r"of Blocking.quick is running, or next in line"):
        hoplo.get(actor.quick.remote(), timeout=0.3)
    gate.open()
    assert hoplo.get(blocked) == "free"


# ------------------------------------------------------------------------------- loops of groups


@hoplo.remote(concurrency_groups={"one": 1, "other": 2})
class Loops:
    @hoplo.method(concurrency_group="one")
    async def block(self, gate):
        return gate.wait("free")

    @hoplo.method(concurrency_group="other")
    async def other(self, ref=None):
        await asyncio.sleep(0)
        if ref is not None:
            return await ref[0]
        return threading.current_thread().name

    async def default(self):
        return threading.current_thread().name

    @hoplo.method(concurrency_group="other")
    async def count(self, n):
        for i in range(n):
            yield i

    @hoplo.method(concurrency_group="other")
    async def wait(self):
        self.begun = True
        try:
            await asyncio.Event().wait()
        finally:
            self.ended = True

    async def has(self, what):
        return hasattr(self, what)

    @hoplo.method(concurrency_group="other")
    async def leave(self):
        hoplo.exit_actor()


def test_a_call_that_blocked_in_one_group_stopped_the_others(gate):
    @hoplo.remote
    def five():
        return 5

    actor = Loops.remote()
    blocked = actor.block.remote(gate)
    eventually(gate.arrived)
    assert hoplo.get(actor.other.remote(), timeout=20) == "hoplo:other"
    assert hoplo.get(actor.default.remote(), timeout=20) == "MainThread"
    assert hoplo.get(actor.other.remote([five.remote()]), timeout=20) == 5
    counted = [hoplo.get(ref, timeout=20) for ref in actor.count.remote(3)]
    assert counted == [0, 1, 2]
    back_pressed = actor.count.options(_generator_backpressure_num_objects=1).remote(3)
    assert [hoplo.get(ref, timeout=20) for ref in back_pressed] == [0, 1, 2]
    gate.open()
    assert hoplo.get(blocked) == "free"


def test_a_blocked_default_group_stopped_the_others(gate):
    actor = Loops.remote()
    blocked = actor.block.options(concurrency_group="one").remote(gate)
    in_main = actor.__hoplo_call__.remote(lambda self: gate.wait("main"))
    eventually(lambda: gate.arrived() == 2)
    waiting = actor.other.remote()
    gate.open()
    assert hoplo.get([blocked, in_main, waiting]) == ["free", "main", "hoplo:other"]


def test_calls_in_a_groups_own_loop_are_cancelled_and_leave():
    actor = Loops.remote()
    waiting = [actor.wait.remote() for _ in range(4)]  # two run, two wait for their turn
    assert hoplo.get(actor.default.remote()) == "MainThread"
    # One that is cancelled before its first step has nothing to end.
    eventually(lambda: hoplo.get(actor.has.remote("begun")))
    for ref in waiting:
        hoplo.cancel(ref)
    for ref in waiting:
        with pytest.raises(hoplo.exceptions.TaskCancelledError):
            hoplo.get(ref, timeout=20)
    eventually(lambda: hoplo.get(actor.has.remote("ended")))
    assert hoplo.get(actor.other.remote(), timeout=20) == "hoplo:other"
    with pytest.raises(ActorDiedError, match="exit_actor"):
        hoplo.get(actor.leave.remote(), timeout=20)
    with pytest.raises(ActorDiedError, match="exit_actor"):
        hoplo.get(actor.default.remote(), timeout=20)


@pytest.mark.parametrize("options", [{"max_concurrency": 1}, {"max_concurrency": 2}])
def test_a_group_that_the_actor_does_not_have_ran_in_the_default_one(options):
    @hoplo.remote(**options)
    class Plain:
        def work(self):
            return 1

    plain = Plain.remote()
    with pytest.raises(ValueError, match=r"Plain has no concurrency group 'nope', it has none"):
        plain.work.options(concurrency_group="nope")
    assert hoplo.get(plain.work.remote()) == 1
