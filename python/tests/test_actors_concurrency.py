"""Actors that run several calls at once in threads; the order of calls, and how many may wait."""

from __future__ import annotations

import asyncio
import threading

import pytest
from conftest import eventually
from processes import Notes

import hoplo
from hoplo.exceptions import PendingCallsLimitExceeded

# ------------------------------------------------------------------------------- threads


@hoplo.remote
class Threads:
    def __init__(self):
        self.lock = threading.Lock()
        self.names = set()

    def wait(self, gate):
        gate.wait()
        with self.lock:
            self.names.add(threading.current_thread().name)
        return threading.get_ident()

    def threads(self):
        return len(self.names)

    def quick(self, value):
        return value


def test_max_concurrency_threads_run_at_once_and_no_more(gate):
    actor = Threads.options(max_concurrency=3).remote()
    refs = [actor.wait.remote(gate) for _ in range(7)]
    eventually(lambda: gate.arrived() == 3)
    ready, _ = hoplo.wait([actor.quick.remote(1)], timeout=0.2)
    assert not ready  # all three threads are busy
    assert gate.arrived() == 3
    gate.open()
    assert len(set(hoplo.get(refs))) <= 3
    assert hoplo.get(actor.threads.remote()) <= 3


def test_one_call_at_a_time_is_the_default(gate):
    actor = Threads.remote()
    refs = [actor.wait.remote(gate) for _ in range(3)]
    eventually(gate.arrived)
    ready, _ = hoplo.wait([actor.quick.remote(1)], timeout=0.2)
    assert not ready
    assert gate.arrived() == 1
    gate.open()
    assert len(set(hoplo.get(refs))) == 1


def test_calls_that_wait_for_each_other_inside_one_actor():
    @hoplo.remote(max_concurrency=2)
    class Meeting:
        def __init__(self):
            self.barrier = threading.Barrier(2)

        def meet(self):
            return self.barrier.wait(timeout=30)

    meeting = Meeting.remote()
    assert sorted(hoplo.get([meeting.meet.remote(), meeting.meet.remote()])) == [0, 1]


def test_a_threaded_actor_may_call_itself():
    @hoplo.remote(max_concurrency=2)
    class Self:
        def outer(self):
            me = hoplo.get_runtime_context().current_actor
            return hoplo.get(me.inner.remote()) + 1

        def inner(self):
            return 1

    assert hoplo.get(Self.remote().outer.remote()) == 2


def test_errors_of_threads_come_back():
    @hoplo.remote(max_concurrency=4)
    class Failing:
        def fail(self, i):
            raise ValueError(i)

    actor = Failing.remote()
    for i, ref in enumerate([actor.fail.remote(i) for i in range(8)]):
        with pytest.raises(ValueError, match=str(i)):
            hoplo.get(ref)


# ------------------------------------------------------------------------------- limits


def test_max_pending_calls_refuses_one_more(gate):
    actor = Threads.options(max_pending_calls=3).remote()
    hoplo.get(actor.quick.remote(0))
    refs = [actor.wait.remote(gate) for _ in range(3)]
    with pytest.raises(PendingCallsLimitExceeded, match="max_pending_calls"):
        actor.wait.remote(gate)
    gate.open()
    hoplo.get(refs)
    assert hoplo.get(actor.quick.remote(1)) == 1


# ------------------------------------------------------------------------------- order


def test_each_callers_calls_are_in_order(tmp_path):
    notes = Notes(tmp_path / "calls")

    @hoplo.remote
    class Log:
        def write(self, caller, i):
            notes.add(f"{caller} {i}")

    @hoplo.remote
    def call(log, caller):
        hoplo.get([log.write.remote(caller, i) for i in range(100)])

    log = Log.remote()
    hoplo.get([call.remote(log, caller) for caller in range(3)])
    lines = [line.split() for line in notes.lines()]
    assert len(lines) == 300
    for caller in "012":
        mine = [int(i) for who, i in lines if who == caller]
        assert mine == list(range(100))


def test_a_call_whose_argument_is_late_holds_those_after_it(gate):
    @hoplo.remote
    class Log:
        def __init__(self):
            self.seen = []

        def write(self, value):
            self.seen.append(value)
            return list(self.seen)

    @hoplo.remote
    def late():
        return gate.wait("late")

    log = Log.remote()
    hoplo.get(log.write.remote("first"))
    waiting, after = log.write.remote(late.remote()), log.write.remote("after")
    assert hoplo.wait([after], timeout=0.2)[0] == []
    gate.open()
    assert hoplo.get(waiting) == ["first", "late"]
    assert hoplo.get(after) == ["first", "late", "after"]


def test_threads_of_one_caller_share_its_order_and_lose_nothing():
    @hoplo.remote
    class Sum:
        def __init__(self):
            self.total = 0

        def add(self, amount):
            self.total += amount
            return self.total

    total = Sum.remote()

    def call():
        hoplo.get([total.add.remote(1) for _ in range(200)])

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert hoplo.get(total.add.remote(0)) == 1600


# ------------------------------------------------------------------------------- late arguments


class Signal:
    def __init__(self):
        self.sent = threading.Event()

    def store(self, value):
        return value

    def send(self):
        self.sent.set()

    def wait(self):
        return self.sent.wait(20)


class AsyncSignal(Signal):
    def __init__(self):
        self.sent = asyncio.Event()

    async def send(self):
        self.sent.set()

    async def wait(self):
        return await self.sent.wait()


@hoplo.remote(num_cpus=0)
def waits(signal):
    return hoplo.get(signal.wait.remote())


@pytest.mark.parametrize(
    ("of", "options"),
    [
        (AsyncSignal, {}),
        (Signal, {"max_concurrency": 2}),
        (Signal, {"concurrency_groups": {"one": 1}, "max_concurrency": 2}),
    ],
)
def test_a_call_whose_argument_needs_a_later_call_waited_for_ever(of, options):
    signal = hoplo.remote(num_cpus=0, **options)(of).remote()
    stored = signal.store.remote(waits.remote(signal))
    signal.send.remote()
    assert hoplo.get(stored, timeout=20) is True


@pytest.mark.parametrize(
    ("options", "overtakes"),
    [
        ({}, False),
        ({"allow_out_of_order_execution": True}, True),
        ({"max_concurrency": 2, "allow_out_of_order_execution": False}, False),
    ],
)
def test_whether_a_call_that_waits_for_its_argument_is_overtaken(options, overtakes, gate):
    @hoplo.remote(num_cpus=0)
    def late():
        gate.wait()

    actor = hoplo.remote(num_cpus=0, **options)(Signal).remote()
    first, second = actor.store.remote(late.remote()), actor.store.remote(2)
    done, _ = hoplo.wait([first, second], timeout=20 if overtakes else 0.3)
    assert done == ([second] if overtakes else [])
    gate.open()
    assert hoplo.get([first, second], timeout=20) == [None, 2]
