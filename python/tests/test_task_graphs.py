"""Graphs of tasks: chains, trees, nests; how many run at once."""

import os

from conftest import eventually

import hoplo


@hoplo.remote
def add(x, y=1):
    return x + y


def test_thousands_of_tasks():
    assert hoplo.get([add.remote(i) for i in range(5000)]) == list(range(1, 5001))


def test_a_long_chain():
    ref = hoplo.put(0)
    for _ in range(1000):
        ref = add.remote(ref)
    assert hoplo.get(ref) == 1000


def test_a_tree():
    refs = [hoplo.put(i) for i in range(256)]
    while len(refs) > 1:
        refs = [add.remote(a, b) for a, b in zip(refs[::2], refs[1::2], strict=True)]
    assert hoplo.get(refs[0]) == sum(range(256))


def test_tasks_that_wait_for_tasks_never_use_up_the_workers():
    @hoplo.remote
    def fib(n):
        if n < 2:
            return n
        return sum(hoplo.get([fib.remote(n - 1), fib.remote(n - 2)]))

    assert hoplo.get(fib.remote(7)) == 13


def test_a_nest_deeper_than_there_are_cpus():
    @hoplo.remote
    def deeper(n):
        return 0 if n == 0 else 1 + hoplo.get(deeper.remote(n - 1))

    assert hoplo.get(deeper.remote(12)) == 12


def test_tasks_run_at_the_same_time(gate):
    @hoplo.remote
    def arrive():
        gate.wait()
        return os.getpid()

    refs = [arrive.remote() for _ in range(4)]
    eventually(lambda: gate.arrived() == 4)
    gate.open()
    assert len(set(hoplo.get(refs))) == 4


def test_no_more_tasks_run_than_there_are_cpus(gate):
    @hoplo.remote
    def arrive():
        gate.wait()

    refs = [arrive.remote() for _ in range(12)]
    eventually(lambda: gate.arrived() == 4)
    assert hoplo.available_resources().get("CPU", 0) == 0
    assert hoplo.wait(refs, timeout=0)[0] == []
    assert gate.arrived() == 4
    gate.open()
    hoplo.get(refs)
    assert gate.arrived() == 12


def test_resources_come_back():
    hoplo.get([add.remote(i) for i in range(100)])
    eventually(lambda: hoplo.available_resources()["CPU"] == hoplo.cluster_resources()["CPU"])
