"""Forks of the user's own: in the driver, inside tasks, by multiprocessing and subprocess."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import traceback

import pytest
from conftest import alive, eventually, run_driver

import hoplo

NODE = {"num_cpus": 2}


@hoplo.remote
def work(x):
    return x + 1


@hoplo.remote
class Actor:
    def work(self, x):
        return x + 1


def in_fork(function):
    """What `function` returns, or the error it raises, in a forked child, as text."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            text = str(function())
        except BaseException:
            text = traceback.format_exc()
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as file:
        text = file.read()
    os.waitpid(pid, 0)
    return text


def test_a_forked_child_is_told_to_init_and_the_parent_goes_on():
    ref, actor = hoplo.put(b"x" * 1_000_000), Actor.remote()
    pending = work.remote(1)
    for use in (
        lambda: hoplo.get(ref),
        lambda: hoplo.put(1),
        lambda: work.remote(1),
        lambda: actor.work.remote(1),
        lambda: hoplo.get(pending),
    ):
        text = in_fork(use)
        assert "RuntimeError" in text
        assert "forked" in text
        assert "hoplo.init()" in text
    assert in_fork(lambda: hoplo.is_initialized()) == "False"
    assert hoplo.get([pending, actor.work.remote(2)]) == [2, 3]
    assert len(hoplo.get(ref)) == 1_000_000


def test_a_child_that_ends_without_ceremony_takes_nothing_with_it():
    refs = [hoplo.put(bytes(500_000)) for _ in range(3)]
    for _ in range(20):
        pid = os.fork()
        if pid == 0:
            del refs
            os._exit(0)
        os.waitpid(pid, 0)
    pid = os.fork()
    if pid == 0:
        try:
            hoplo.shutdown()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    assert [len(value) for value in hoplo.get(refs)] == [500_000] * 3
    assert hoplo.get(work.remote(1)) == 2


def test_views_are_readable_in_a_child():
    numpy = pytest.importorskip("numpy")
    view = hoplo.get(hoplo.put(numpy.arange(100_000)))
    assert in_fork(lambda: int(view[-1])) == "99999"


@pytest.mark.parametrize("more", ["", "import faulthandler; faulthandler.enable()"])
def test_a_child_may_have_a_session_of_its_own(more):
    # Where its threads got the memory of its parent's (with `more` nearly always), it hung.
    done = run_driver(
        f"""
import os, hoplo
{more}

@hoplo.remote
def pid():
    return os.getpid()

hoplo.init(num_cpus=1)
mine = hoplo.get(pid.remote())
child = os.fork()
if child == 0:
    hoplo.init(num_cpus=1)
    theirs = hoplo.get(pid.remote())
    hoplo.shutdown()
    os._exit(0 if theirs != mine else 1)
assert os.waitpid(child, 0)[1] == 0
assert hoplo.get(pid.remote()) == mine
print("fine")
"""
    )
    assert "fine" in done.stdout


def test_multiprocessing_inside_a_task():
    @hoplo.remote
    def parallel():
        with multiprocessing.get_context("fork").Pool(2) as pool:
            return pool.map(abs, range(-10, 0))

    assert hoplo.get([parallel.remote() for _ in range(2)]) == [list(range(10, 0, -1))] * 2
    assert hoplo.get(work.remote(1)) == 2


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_other_ways_of_multiprocessing_inside_a_task(method):
    @hoplo.remote
    def parallel():
        with multiprocessing.get_context(method).Pool(1) as pool:
            return pool.map(abs, [-1, -2])

    assert hoplo.get(parallel.remote(), timeout=60) == [1, 2]


def test_a_fork_inside_a_task_harms_neither(tmp_path):
    @hoplo.remote
    def forks():
        pid = os.fork()
        if pid == 0:
            os._exit(5)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    assert hoplo.get([forks.remote() for _ in range(10)]) == [5] * 10


def test_a_child_that_returns_from_the_task_is_no_second_worker():
    @hoplo.remote(max_retries=0)
    def forks():
        return os.fork() == 0 or os.getpid()

    # The child has no session: its answer goes nowhere, and the parent's counts once.
    pids = hoplo.get([forks.remote() for _ in range(5)], timeout=60)
    assert all(isinstance(pid, int) and pid > 1 for pid in pids)
    assert hoplo.get([work.remote(i) for i in range(100)], timeout=60) == list(range(1, 101))


def test_subprocesses_inside_a_task():
    @hoplo.remote
    def run():
        line = [sys.executable, "-c", "print(6 * 7)"]
        return subprocess.run(line, capture_output=True, text=True, check=True).stdout

    assert hoplo.get(run.remote()) == "42\n"


def test_a_child_that_outlives_its_worker_does_not_keep_its_death_secret():
    @hoplo.remote(max_retries=0)
    def leaves_a_child():
        child = subprocess.Popen(["sleep", "30"])
        print("child", child.pid, flush=True)
        os._exit(3)

    # The child holds the worker's output pipes open.
    with pytest.raises(hoplo.exceptions.WorkerCrashedError, match="exited with code 3") as caught:
        hoplo.get(leaves_a_child.remote(), timeout=20)
    words = str(caught.value).split()
    child = int(words[words.index("child") + 1])
    eventually(lambda: not alive(child), what="its child is gone")
