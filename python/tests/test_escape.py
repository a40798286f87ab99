"""Objects and tasks survive the process that owned them."""

from __future__ import annotations

import gc
import os
import signal

import numpy as np
import pytest
from conftest import eventually
from processes import Notes, alive, objects_left

import hoplo
from hoplo.exceptions import OwnerDiedError, WorkerCrashedError

NODE = {"num_cpus": 2}


def kill(pid):
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not alive(pid))


def value_of_size(size, i=0):
    return np.full(size, i, "uint8") if size > 100_000 else bytes([i]) * size


@pytest.mark.parametrize("size", [10, 1_000_000], ids=["small", "stored"])
def test_what_a_dead_worker_put_is_still_there(size):
    @hoplo.remote
    def make():
        return [hoplo.put(value_of_size(size, i)) for i in range(5)], os.getpid()

    refs, pid = hoplo.get(make.remote())
    kill(pid)
    for i, ref in enumerate(refs):
        assert bytes(hoplo.get(ref)) == bytes([i]) * size

    @hoplo.remote
    def read(boxed):
        return [bytes(value)[0] for value in hoplo.get(boxed)]

    assert hoplo.get(read.remote(refs)) == list(range(5))


@pytest.mark.parametrize("size", [10, 1_000_000], ids=["small", "stored"])
def test_results_of_tasks_that_a_dead_worker_called(size):
    @hoplo.remote
    def inner(i):
        return value_of_size(size, i)

    @hoplo.remote
    def outer():
        refs = [inner.remote(i) for i in range(5)]
        hoplo.wait(refs, num_returns=5)
        return refs, os.getpid()

    refs, pid = hoplo.get(outer.remote())
    kill(pid)
    assert [bytes(value)[0] for value in hoplo.get(refs)] == list(range(5))


def test_a_value_that_was_nested_twice():
    @hoplo.remote
    def make():
        inner = hoplo.put({"deep": hoplo.put(value_of_size(500_000, 7))})
        return [inner], os.getpid()

    (ref,), pid = hoplo.get(make.remote())
    kill(pid)
    gc.collect()
    assert hoplo.get(hoplo.get(ref)["deep"])[-1] == 7


@pytest.mark.parametrize("stored", [False, True], ids=["in-the-call", "in-an-argument"])
@pytest.mark.parametrize("size", [10, 1_000_000], ids=["small", "stored"])
def test_what_an_actor_keeps_of_a_call_outlives_a_caller_that_is_killed_meanwhile(
    size, stored, gate, tmp_path
):
    notes = Notes(tmp_path / "callers")

    @hoplo.remote
    class Keeper:
        def keep(self, refs):
            self.refs = refs
            gate.wait()

        def read(self):
            return [bytes(value)[0] for value in hoplo.get(self.refs)]

    @hoplo.remote(max_retries=0)
    def call(keeper):
        notes.add(os.getpid())
        refs = [hoplo.put(value_of_size(size, i)) for i in range(5)]
        hoplo.get(keeper.keep.remote(hoplo.put(refs) if stored else refs))

    keeper = Keeper.remote()
    killed = call.remote(keeper)
    eventually(gate.arrived)
    kill(notes.pids()[0])
    with pytest.raises(WorkerCrashedError):
        hoplo.get(killed)
    assert len(objects_left()) >= 5
    gate.open()
    assert hoplo.get(keeper.read.remote()) == list(range(5))


@pytest.mark.near
def test_a_pending_task_of_a_dead_owner_is_taken_over(gate, tmp_path):
    notes = Notes(tmp_path / "runs")

    @hoplo.remote
    def slow(x):
        notes.add(os.getpid())
        return gate.wait(x * 2)

    @hoplo.remote
    def owner(boxed):
        return [slow.remote(boxed[0])], os.getpid()

    argument = hoplo.put(21)
    (pending,), pid = hoplo.get(owner.remote([argument]))
    eventually(gate.arrived)
    kill(pid)
    gate.open()
    assert hoplo.get(pending, timeout=60) == 42


def test_a_queued_task_of_a_dead_owner_is_taken_over(gate):
    @hoplo.remote
    def hold():
        return gate.wait()

    @hoplo.remote
    def triple(x):
        return 3 * x

    @hoplo.remote(num_cpus=0)
    def owner():
        return [triple.remote(14)], os.getpid()

    blockers = [hold.remote() for _ in range(2)]
    eventually(lambda: gate.arrived() == 2)
    (pending,), pid = hoplo.get(owner.remote())
    kill(pid)
    gate.open()
    assert hoplo.get(pending, timeout=60) == 42
    hoplo.get(blockers)


@pytest.mark.near
def test_a_chain_of_pending_tasks_is_taken_over(gate):
    @hoplo.remote
    def first():
        return gate.wait(1)

    @hoplo.remote
    def plus(x, y):
        return x + y

    @hoplo.remote
    def owner():
        ref = first.remote()
        for i in range(5):
            ref = plus.remote(ref, i)
        return [ref], os.getpid()

    (last,), pid = hoplo.get(owner.remote())
    eventually(gate.arrived)
    kill(pid)
    gate.open()
    assert hoplo.get(last, timeout=60) == 11


def test_a_method_call_of_a_dead_owner_is_lost_and_says_so(gate):
    @hoplo.remote
    class Actor:
        def hold(self):
            return gate.wait("held")

        def ping(self):
            return "pong"

    @hoplo.remote
    def owner(actor):
        return [actor.hold.remote()], os.getpid()

    actor = Actor.remote()
    # Otherwise the actor may be given the owner's worker, once the owner has returned.
    hoplo.get(actor.ping.remote())
    (pending,), pid = hoplo.get(owner.remote(actor))
    eventually(gate.arrived)
    kill(pid)
    with pytest.raises(OwnerDiedError, match="owner died"):
        hoplo.get(pending, timeout=20)
    gate.open()
    assert hoplo.get(actor.ping.remote(), timeout=20) == "pong"


def test_what_a_dead_actor_made():
    @hoplo.remote
    class Maker:
        def make(self, size):
            return [hoplo.put(value_of_size(size, 3))]

        def direct(self, size):
            return value_of_size(size, 4)

        def pid(self):
            return os.getpid()

    maker = Maker.remote()
    boxes = hoplo.get([maker.make.remote(size) for size in (10, 1_000_000)])
    direct = [maker.direct.remote(size) for size in (10, 1_000_000)]
    hoplo.wait(direct, num_returns=2)
    kill(hoplo.get(maker.pid.remote()))
    assert [bytes(hoplo.get(box[0]))[0] for box in boxes] == [3, 3]
    assert [bytes(value)[0] for value in hoplo.get(direct)] == [4, 4]


def test_a_dead_borrower_lets_go(gate):
    @hoplo.remote(max_retries=0)
    def borrow(boxed):
        hoplo.get(boxed[0])
        return gate.wait()

    ref = hoplo.put(value_of_size(1_000_000))
    borrowing = borrow.remote([ref])
    eventually(gate.arrived)
    del ref
    (pid,) = gate.pids_arrived()
    kill(pid)
    hoplo.wait([borrowing])
    del borrowing
    eventually(lambda: not objects_left(), what="the store is empty")


@pytest.mark.near
def test_nobody_left_who_could_reach_it_and_it_goes():
    @hoplo.remote
    class Owner:
        def make(self):
            self.kept = [hoplo.put(value_of_size(1_000_000)) for _ in range(5)]
            self.shared = hoplo.put(value_of_size(1_000_000))
            return [self.shared], os.getpid()

    owner = Owner.remote()
    (shared,), pid = hoplo.get(owner.make.remote())
    assert len(objects_left()) >= 6
    kill(pid)
    eventually(lambda: len(objects_left()) == 1, what="only the borrowed one stays")
    assert len(hoplo.get(shared)) == 1_000_000
    del shared
    gc.collect()
    eventually(lambda: not objects_left())
