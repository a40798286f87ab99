"""Threads that call the API at once, forks in user code, multiprocessing inside tasks."""

import concurrent.futures
import os
import threading

import numpy as np
import pytest
from conftest import eventually, processes, run_driver

import hoplo


@hoplo.remote
def square(x):
    return x * x


@hoplo.remote
class Counter:
    def __init__(self):
        self.value = 0

    def add(self):
        self.value += 1
        return self.value


# ------------------------------------------------------------------------------------ fork


def test_a_forked_child_is_told_that_it_cannot_share_the_session():
    reader, writer = os.pipe()
    ref = square.remote(3)
    pid = os.fork()
    if pid == 0:
        told = []
        for use in (lambda: hoplo.get(ref), lambda: square.remote(2), lambda: hoplo.put(1)):
            try:
                use()
            except RuntimeError as error:
                told.append(str(error))
        os.write(writer, "\n".join(told).encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as file:
        told = file.read().splitlines()
    assert os.waitpid(pid, 0)[1] == 0
    assert len(told) == 3
    assert all("forked" in line and "hoplo.init()" in line for line in told)
    assert hoplo.get(ref) == 9
    assert hoplo.get(square.remote(4)) == 16


def test_a_forked_child_may_start_its_own():
    out = run_driver(
        """
import os, hoplo
hoplo.init(num_cpus=1)
f = hoplo.remote(lambda: os.getppid())
print(hoplo.get(f.remote()) > 0, flush=True)
pid = os.fork()
if pid == 0:
    assert not hoplo.is_initialized()
    hoplo.init(num_cpus=1)
    print(hoplo.get(f.remote()) > 0, flush=True)
    hoplo.shutdown()
    os._exit(0)
print(os.waitpid(pid, 0)[1], hoplo.get(f.remote()) > 0)
"""
    ).stdout
    assert out.splitlines() == ["True", "True", "0 True"]


def test_a_fork_inside_a_task():
    @hoplo.remote
    def forks():
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.write(writer, b"from the child")
            os._exit(0)
        os.close(writer)
        with open(reader) as file:
            text = file.read()
        return text, os.waitpid(pid, 0)[1]

    assert hoplo.get([forks.remote() for _ in range(4)]) == [("from the child", 0)] * 4


def test_a_child_that_a_task_leaves_behind_goes_with_its_job():
    out = run_driver(
        """
import hoplo, os, subprocess
@hoplo.remote
def leaves():
    return subprocess.Popen(["cat"], stdin=subprocess.PIPE).pid
print(hoplo.get(leaves.remote()))
"""
    ).stdout
    eventually(lambda: int(out) not in processes(), timeout=5)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_multiprocessing_inside_a_task(method):
    @hoplo.remote
    def pools(method):
        import math
        import multiprocessing

        with multiprocessing.get_context(method).Pool(2) as pool:
            return pool.map(math.sqrt, [1, 4, 9])

    assert hoplo.get(pools.remote(method), timeout=50) == [1, 2, 3]


def test_subprocesses_inside_a_task():
    @hoplo.remote
    def runs():
        import subprocess

        return subprocess.run(["echo", "hello"], capture_output=True, text=True).stdout

    assert hoplo.get(runs.remote()) == "hello\n"


def test_multiprocessing_in_the_driver():
    out = run_driver(
        """
import multiprocessing, hoplo
def double(x):
    return 2 * x
if __name__ == "__main__":
    hoplo.init(num_cpus=1)
    f = hoplo.remote(double)
    print(hoplo.get(f.remote(1)))
    with multiprocessing.get_context("fork").Pool(2) as pool:
        print(pool.map(double, range(4)))
    print(hoplo.get(f.remote(5)))
"""
    ).stdout
    assert out.splitlines() == ["2", "[0, 2, 4, 6]", "10"]


# ------------------------------------------------------------------------------------ threads


def in_threads(count, work):
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, range(count)))


def test_threads_call_get_and_put():
    def work(i):
        refs = [square.remote(j) for j in range(100)]
        stored = [hoplo.put(np.full(20_000, j)) for j in range(10)]
        assert [int(hoplo.get(ref)[0]) for ref in stored] == list(range(10))
        return sum(hoplo.get(refs))

    assert in_threads(8, work) == [sum(j * j for j in range(100))] * 8


def test_threads_wait_and_cancel(gate):
    @hoplo.remote
    def hold():
        gate.wait()

    refs = [hold.remote() for _ in range(8)]

    def work(i):
        assert hoplo.wait([refs[i]], timeout=0.05) == ([], [refs[i]])
        hoplo.cancel(refs[i])
        with pytest.raises(hoplo.exceptions.TaskCancelledError):
            hoplo.get(refs[i], timeout=20)
        return i

    assert in_threads(8, work) == list(range(8))


def test_threads_get_the_same_ref(gate):
    @hoplo.remote
    def hold():
        return gate.wait("same")

    ref = hold.remote()
    started = threading.Barrier(9)

    def work(i):
        started.wait()
        return hoplo.get(ref, timeout=20)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        results = pool.map(work, range(8))
        started.wait()
        gate.open()
        assert list(results) == ["same"] * 8


def test_threads_share_an_actor():
    counter = Counter.remote()

    def work(i):
        return [hoplo.get(counter.add.remote()) for _ in range(50)]

    seen = in_threads(6, work)
    assert sorted(x for values in seen for x in values) == list(range(1, 301))
    assert all(values == sorted(values) for values in seen)


def test_threads_stream():
    @hoplo.remote
    def count(n):
        yield from range(n)

    def work(i):
        return [hoplo.get(ref) for ref in count.remote(50)]

    assert in_threads(4, work) == [list(range(50))] * 4


def test_threads_inside_a_task():
    @hoplo.remote
    def outer():
        def work(i):
            return hoplo.get([square.remote(j) for j in range(20)])

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            return list(pool.map(work, range(4)))

    assert hoplo.get(outer.remote()) == [[j * j for j in range(20)]] * 4


def test_a_thread_that_outlives_its_task():
    @hoplo.remote
    def starts(refs):
        done = []

        def work():
            done.append(hoplo.get(refs[0]))

        threading.Thread(target=work, daemon=True).start()
        return "returned"

    assert hoplo.get(starts.remote([hoplo.put(1)])) == "returned"
    assert hoplo.get(square.remote(3)) == 9


def test_the_first_calls_of_many_threads_make_one_session():
    out = run_driver(
        """
import concurrent.futures, hoplo
f = hoplo.remote(lambda x: x + 1)
with concurrent.futures.ThreadPoolExecutor(8) as pool:
    print(list(pool.map(lambda i: hoplo.get(f.remote(i)), range(8))))
print(len(hoplo.nodes()))
"""
    ).stdout
    assert out.splitlines() == ["[1, 2, 3, 4, 5, 6, 7, 8]", "1"]


def test_shutdown_while_threads_wait():
    out = run_driver(
        """
import threading, hoplo
hoplo.init(num_cpus=1)
f = hoplo.remote(lambda: __import__("threading").Event().wait())
ref = f.remote()
told = []
def work():
    try:
        hoplo.get(ref)
    except BaseException as error:
        told.append(type(error).__name__)
threads = [threading.Thread(target=work) for _ in range(4)]
for t in threads: t.start()
hoplo.wait([ref], timeout=0.1)
hoplo.shutdown()
for t in threads: t.join(10)
print(len(told), [t.is_alive() for t in threads])
"""
    ).stdout
    assert out.strip() == "4 [False, False, False, False]"
