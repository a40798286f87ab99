"""`cancel`, beyond `test_wait`: many at once, code that resists, actors' calls, streams."""

from __future__ import annotations

import asyncio
import os
import time

import pytest
from conftest import eventually, ready
from processes import Notes, alive, forever

import hoplo
from hoplo.exceptions import TaskCancelledError, TaskError

NODE = {"num_cpus": 2}


@hoplo.remote
def hold(gate, value=None):
    return gate.wait(value)


@hoplo.remote
def identity(value):
    return value


def test_a_thousand_queued_tasks_are_cancelled_and_none_runs(gate, tmp_path):
    notes = Notes(tmp_path / "runs")

    @hoplo.remote
    def work():
        notes.add()

    blockers = [hold.remote(gate) for _ in range(2)]
    eventually(lambda: gate.arrived() == 2)
    queued = [work.remote() for _ in range(1000)]
    for ref in queued:
        hoplo.cancel(ref)
    for ref in queued:
        with pytest.raises(TaskCancelledError):
            hoplo.get(ref, timeout=20)
    gate.open()
    hoplo.get(blockers)
    assert hoplo.get(identity.remote(1)) == 1
    assert notes.lines() == []


class OpensSlowly:
    """What a worker that unpickles it runs into."""

    def __init__(self, gate):
        self.gate = gate

    def __reduce__(self):
        return _opened, (self.gate,)


def _opened(gate):
    gate.wait()
    return OpensSlowly(gate)


def test_a_task_cancelled_while_it_loads_a_function_was_told_as_failed(gate):
    """It was told that a module is missing."""
    slow = OpensSlowly(gate)

    @hoplo.remote
    def inner():
        return slow

    @hoplo.remote
    def outer():
        return inner.options(num_cpus=1).remote()

    # What was called once is named in what calls it, and loaded when that uses it.
    hoplo.cancel(inner.options(resources={"nowhere": 1}).remote())
    ref = outer.remote()
    eventually(lambda: gate.arrived() == 1)
    hoplo.cancel(ref)
    with pytest.raises(TaskCancelledError):
        hoplo.get(ref, timeout=20)
    gate.open()
    # The worker has no half of it: the next one loads it anew.
    assert isinstance(hoplo.get(hoplo.get(outer.remote(), timeout=20), timeout=20), OpensSlowly)


@hoplo.remote
def half_done(gate):
    try:
        gate.wait()
    finally:
        raise RuntimeError("release unlocked lock")


def test_a_cancelled_task_whose_clean_up_failed_was_told_as_failed(gate):
    # As `threading.Event().wait()` does that is interrupted between two of its lines.
    ref = half_done.remote(gate)
    eventually(lambda: gate.arrived() == 1)
    hoplo.cancel(ref)
    also = "was cancelled; as it ended, it raised RuntimeError: release unlocked lock"
    with pytest.raises(TaskCancelledError, match=also):
        hoplo.get(ref, timeout=20)
    # Nobody cancelled this one.
    ref = half_done.remote(gate)
    gate.open()
    with pytest.raises(TaskError, match="release unlocked lock"):
        hoplo.get(ref, timeout=20)


def test_tasks_sent_ahead_to_a_busy_worker_can_be_cancelled(gate, tmp_path):
    notes = Notes(tmp_path / "runs")

    @hoplo.remote
    def quick(i):
        notes.add(i)
        return i

    # Short tasks teach the driver to send many at once; then the workers are blocked.
    hoplo.get([quick.remote(-1) for _ in range(500)])
    refs = []
    for i in range(40):
        refs.append(hold.remote(gate) if i % 20 == 0 else quick.remote(i))
    eventually(lambda: gate.arrived() >= 2)
    late = [quick.remote(1000 + i) for i in range(20)]
    for ref in late:
        hoplo.cancel(ref)
    gate.open()
    for ref in late:
        with pytest.raises(TaskCancelledError):
            hoplo.get(ref, timeout=20)
    hoplo.get(refs)
    assert not any(int(line) >= 1000 for line in notes.lines())


def test_a_task_that_waits_for_its_argument_is_cancelled(gate):
    slow = hold.remote(gate, "slow")
    dependent = identity.remote(slow)
    hoplo.cancel(dependent)
    with pytest.raises(TaskCancelledError, match="identity"):
        hoplo.get(dependent, timeout=20)
    gate.open()
    assert hoplo.get(slow) == "slow"


def test_a_computing_task_is_interrupted(tmp_path):
    notes = Notes(tmp_path / "started")

    @hoplo.remote
    def compute():
        notes.add(os.getpid())
        while True:
            sum(range(1000))

    ref = compute.remote()
    eventually(notes.lines)
    hoplo.cancel(ref)
    with pytest.raises(TaskCancelledError, match="compute"):
        hoplo.get(ref, timeout=20)
    assert hoplo.get(identity.remote(1)) == 1


def test_a_sleeping_task_is_interrupted(tmp_path):
    notes = Notes(tmp_path / "started")

    @hoplo.remote
    def sleep():
        notes.add()
        time.sleep(1000)

    ref = sleep.remote()
    eventually(notes.lines)
    hoplo.cancel(ref)
    with pytest.raises(TaskCancelledError):
        hoplo.get(ref, timeout=20)


def test_a_task_that_waits_in_get_is_interrupted(gate):
    @hoplo.remote
    def outer(boxed):
        return hoplo.get(boxed[0])

    inner = hold.remote(gate, "inner")
    ref = outer.remote([inner])
    eventually(gate.arrived)
    assert not ready(ref, timeout=0.1)
    hoplo.cancel(ref)
    with pytest.raises(TaskCancelledError):
        hoplo.get(ref, timeout=20)
    gate.open()
    assert hoplo.get(inner) == "inner"  # it was an argument, not a child


def test_a_task_that_resists_needs_force(gate, tmp_path):
    notes = Notes(tmp_path / "interrupts")

    @hoplo.remote(max_retries=5)
    def stubborn():
        while True:
            try:
                gate.wait()
            except BaseException:
                notes.add(os.getpid())

    ref = stubborn.remote()
    eventually(gate.arrived)
    hoplo.cancel(ref)
    eventually(notes.lines, what="it was interrupted")
    (pid,) = set(gate.pids_arrived())
    assert alive(pid)
    hoplo.cancel(ref, force=True)
    with pytest.raises(TaskCancelledError):
        hoplo.get(ref, timeout=20)
    eventually(lambda: not alive(pid))
    assert set(gate.pids_arrived()) == {pid}  # cancelled tasks are not retried


def test_the_next_task_on_the_worker_is_not_hit():
    @hoplo.remote
    def short(i):
        return i

    # The interrupt may come when the task has just ended.
    for i in range(200):
        ref = short.remote(i)
        hoplo.cancel(ref)
        try:
            assert hoplo.get(ref, timeout=20) == i
        except TaskCancelledError:
            pass
        assert hoplo.get(identity.remote(i)) == i


def test_children_of_children_are_cancelled(gate):
    @hoplo.remote
    def tree(depth):
        if depth == 0:
            return gate.wait()
        return hoplo.get([tree.remote(depth - 1) for _ in range(2)])

    ref = tree.remote(2)
    eventually(lambda: gate.arrived() >= 2)
    hoplo.cancel(ref)
    with pytest.raises(TaskCancelledError):
        hoplo.get(ref, timeout=20)
    eventually(lambda: hoplo.available_resources().get("CPU") == 2, what="all of it has ended")


def test_all_results_of_a_call_are_cancelled(gate):
    @hoplo.remote(num_returns=2)
    def two():
        return gate.wait(), 1

    first, second = two.remote()
    eventually(gate.arrived)
    hoplo.cancel(second)
    for ref in (first, second):
        with pytest.raises(TaskCancelledError):
            hoplo.get(ref, timeout=20)


# ------------------------------------------------------------------------------- actors


@hoplo.remote
class Actor:
    def hold(self, gate):
        return gate.wait("held")

    def quick(self):
        return os.getpid()


@hoplo.remote
class AsyncActor:
    def __init__(self):
        self.cancelled = 0

    async def hold(self):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    async def count(self):
        return self.cancelled

    async def gives_up(self):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "gave up"


def test_what_an_async_method_returns_when_it_is_cancelled_is_its_result():
    actor = AsyncActor.remote()
    ref = actor.gives_up.remote()
    hoplo.get(actor.count.remote())  # it has begun
    hoplo.cancel(ref)
    assert hoplo.get(ref, timeout=20) == "gave up"


@pytest.mark.near
def test_a_queued_call_of_an_actor_is_cancelled(gate):
    actor = Actor.remote()
    running, queued, after = actor.hold.remote(gate), actor.quick.remote(), actor.quick.remote()
    eventually(gate.arrived)
    hoplo.cancel(queued)
    gate.open()
    with pytest.raises(TaskCancelledError):
        hoplo.get(queued, timeout=20)
    assert hoplo.get(running) == "held"
    assert hoplo.get(after) > 0


def test_a_running_coroutine_is_cancelled_and_the_actor_lives():
    actor = AsyncActor.remote()
    ref = actor.hold.remote()
    assert hoplo.get(actor.count.remote()) == 0
    hoplo.cancel(ref)
    with pytest.raises(TaskCancelledError, match="hold"):
        hoplo.get(ref, timeout=20)
    assert hoplo.get(actor.count.remote()) == 1


def test_force_is_not_for_actors(gate):
    actor = Actor.remote()
    ref = actor.hold.remote(gate)
    eventually(gate.arrived)
    with pytest.raises(ValueError, match="kill"):
        hoplo.cancel(ref, force=True)
    gate.open()
    assert hoplo.get(ref) == "held"


def test_cancel_takes_refs_of_tasks():
    with pytest.raises(TypeError, match=r"use hoplo\.kill for an actor"):
        hoplo.cancel(Actor.remote())
    with pytest.raises(TypeError, match="cancel was given 3"):
        hoplo.cancel(3)
    with pytest.raises(TypeError, match=r"call it first: identity.remote\(\)"):
        hoplo.cancel(identity)


# ------------------------------------------------------------------------------- streams


def test_a_stream_is_cancelled(gate):
    @hoplo.remote
    def numbers():
        yield 1
        yield 2
        gate.wait()
        yield 3

    stream = numbers.remote()
    assert [hoplo.get(next(stream)), hoplo.get(next(stream))] == [1, 2]
    eventually(gate.arrived)
    hoplo.cancel(stream)
    with pytest.raises(TaskCancelledError):
        hoplo.get(next(stream))
    assert list(stream) == []


@pytest.mark.parametrize("kind", ["coroutine", "nested coroutine", "thread", "own loop"])
def test_cancel_did_not_reach_what_one_of_several_calls_of_an_actor_had_made(tmp_path, kind):
    notes = Notes(tmp_path / "notes")

    @hoplo.remote
    def child(name):
        notes.add(f"{name} began")
        try:
            forever()
        except BaseException:
            notes.add(f"{name} was stopped")
            raise

    if kind == "thread":

        @hoplo.remote(max_concurrency=2)
        class Parent:
            def run(self, name):
                return hoplo.get(child.options(num_cpus=0).remote(name))
    else:
        groups = {"own": 2} if kind == "own loop" else {}

        @hoplo.remote(concurrency_groups=groups, max_concurrency=2)
        class Parent:
            async def run(self, name):
                if kind == "nested coroutine":
                    return await asyncio.create_task(self.inner(name))
                return await self.inner(name)

            async def inner(self, name):
                return await child.options(num_cpus=0).remote(name)

    parent = Parent.remote()
    run = parent.run.options(concurrency_group="own") if kind == "own loop" else parent.run
    stopped, other = run.remote("one"), run.remote("other")
    eventually(lambda: sorted(notes.lines()) == ["one began", "other began"])
    hoplo.cancel(stopped)
    eventually(lambda: "one was stopped" in notes.lines())
    with pytest.raises((TaskCancelledError, TaskError)):
        hoplo.get(stopped, timeout=20)
    assert "other was stopped" not in notes.lines()
    hoplo.cancel(other)
    eventually(lambda: "other was stopped" in notes.lines())
