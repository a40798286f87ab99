"""Tasks inside tasks: never a deadlock, and never more busy at once than there are CPUs."""

from __future__ import annotations

import os
import threading

import pytest
from conftest import eventually

import hoplo

NODE = {"num_cpus": 2}


@hoplo.remote
def hold(gate, value=None):
    return gate.wait(value)


@hoplo.remote
def deep(depth):
    return 0 if depth == 0 else 1 + hoplo.get(deep.remote(depth - 1))


@hoplo.remote
def fib(n):
    return n if n < 2 else sum(hoplo.get([fib.remote(n - 1), fib.remote(n - 2)]))


def test_recursion_far_deeper_than_there_are_cpus():
    assert hoplo.get(deep.remote(20)) == 20


def test_a_tree_of_tasks_that_wait():
    assert hoplo.get(fib.remote(7)) == 13


def test_many_parents_at_once_each_with_children():
    @hoplo.remote
    def child(x):
        return x

    @hoplo.remote
    def parent(x):
        return sum(hoplo.get([child.remote(x) for _ in range(10)]))

    assert hoplo.get([parent.remote(i) for i in range(30)]) == [10 * i for i in range(30)]


@pytest.mark.parametrize("way", ["get", "get many", "wait", "iterate"])
def test_every_way_of_waiting_lends_the_cpu(gate, way):
    @hoplo.remote
    def stream():
        yield hoplo.get(hold.remote(gate, "done"))

    @hoplo.remote
    def parent():
        if way == "iterate":
            return hoplo.get(next(stream.remote()))
        ref = hold.remote(gate, "done")
        if way == "get many":
            return hoplo.get([ref, ref])[1]
        if way == "wait":
            hoplo.wait([ref])
        return hoplo.get(ref)

    # Without the CPUs of their parents, the children could not start.
    refs = [parent.remote() for _ in range(2)]
    eventually(lambda: gate.arrived() == 2)
    gate.open()
    assert hoplo.get(refs, timeout=60) == ["done"] * 2


def test_no_more_are_busy_than_there_are_cpus(gate):
    @hoplo.remote
    def parent():
        return hoplo.get([hold.remote(gate, 1) for _ in range(3)])

    refs = [parent.remote() for _ in range(4)]
    eventually(lambda: gate.arrived() == 2)
    extra = hold.remote(gate, 2)
    assert hoplo.wait([extra], timeout=0.5)[0] == []
    assert gate.arrived() == 2  # four parents wait, two children are busy, the rest queue
    gate.open()
    assert hoplo.get(refs) == [[1, 1, 1]] * 4
    assert hoplo.get(extra) == 2


def test_a_fraction_of_a_cpu_is_lent_too(gate):
    @hoplo.remote(num_cpus=0.5)
    def parent():
        return hoplo.get(child.remote())

    @hoplo.remote(num_cpus=2)
    def child():
        return gate.wait("all of it")

    gate.open()
    assert hoplo.get([parent.remote() for _ in range(4)], timeout=60) == ["all of it"] * 4


def test_a_wide_task_is_not_starved_by_narrow_ones():
    stop = threading.Event()

    @hoplo.remote
    def narrow():
        return 1

    @hoplo.remote(num_cpus=2)
    def wide():
        return "wide"

    def feed():
        while not stop.is_set():
            hoplo.get([narrow.remote() for _ in range(50)])

    feeder = threading.Thread(target=feed)
    feeder.start()
    try:
        assert hoplo.get([wide.remote() for _ in range(3)], timeout=60) == ["wide"] * 3
    finally:
        stop.set()
        feeder.join()


def test_actors_that_hold_all_cpus_do_not_stop_what_they_call():
    @hoplo.remote(num_cpus=1)
    class Boss:
        def work(self, depth):
            return hoplo.get(deep.remote(depth))

    bosses = [Boss.remote() for _ in range(2)]
    try:
        assert hoplo.get([boss.work.remote(4) for boss in bosses], timeout=20) == [4, 4]
    finally:
        for boss in bosses:
            hoplo.kill(boss)


def test_actors_that_call_each_other():
    @hoplo.remote
    class Left:
        def ask(self, right, n):
            return 0 if n == 0 else 1 + hoplo.get(right.ask.remote(n))

    @hoplo.remote
    class Right:
        def ask(self, n):
            return hoplo.get(deep.remote(n))

    left, right = Left.remote(), Right.remote()
    assert hoplo.get(left.ask.remote(right, 3)) == 4


def test_threads_of_a_task_may_call_tasks():
    @hoplo.remote
    def threaded():
        answers = []
        threads = [
            threading.Thread(target=lambda i=i: answers.append(hoplo.get(deep.remote(i))))
            for i in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sorted(answers)

    assert hoplo.get(threaded.remote(), timeout=60) == [0, 1, 2, 3]


def test_a_blocked_workers_queue_moves_on(gate):
    @hoplo.remote
    def quick(i):
        return i

    @hoplo.remote
    def blocks():
        return hoplo.get(hold.remote(gate, "late"))

    hoplo.get([quick.remote(i) for i in range(500)])  # teaches it to send many at once
    refs = [blocks.remote() if i == 50 else quick.remote(i) for i in range(200)]
    others = [ref for i, ref in enumerate(refs) if i != 50]
    # What was sent to the worker that waits runs elsewhere, though the gate is closed.
    assert hoplo.get(others, timeout=60) == [i for i in range(200) if i != 50]
    gate.open()
    assert hoplo.get(refs[50]) == "late"


def test_workers_are_reused_not_heaped_up():
    @hoplo.remote
    def pid():
        return os.getpid()

    @hoplo.remote
    def parent():
        return hoplo.get(pid.remote())

    seen = set()
    for _ in range(20):
        seen.update(hoplo.get([parent.remote() for _ in range(4)]))
    assert len(seen) <= 12
