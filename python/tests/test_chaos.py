"""Workers are killed at random while programs run: every answer is right, and nothing is left."""

from __future__ import annotations

import gc
import os
import random
import signal
import threading

import numpy as np
import pytest
from conftest import eventually
from processes import daemon_pid, listed, objects_left

import hoplo
from hoplo.exceptions import ActorDiedError, ActorUnavailableError

NODE = {"num_cpus": 4, "object_store_memory": 128 << 20}
MIB = 1 << 20


class Killer:
    """Kills a worker of this node now and then; a block in which none died is a failure."""

    def __init__(self, seed, pause):
        self.random = random.Random(seed)
        self.pause = pause
        self.killed = 0
        self.killed_at_work = 0
        self.error = None
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._run)

    def _run(self):
        try:
            while not self.done.wait(self.random.uniform(0, 2 * self.pause)):
                self._kill_one()
        except BaseException as error:
            self.error = error

    def _kill_one(self):
        rows = [row for row in listed("workers") if row["kind"] == "worker"]
        workers = [row for row in rows if row["pid"] is not None]  # else it is being started
        if workers:
            worker = self.random.choice(workers)
            try:
                os.kill(worker["pid"], signal.SIGKILL)
            except ProcessLookupError:
                return
            self.killed += 1
            self.killed_at_work += worker["state"] in ("leased", "blocked")

    def goes_on(self, least=3):
        """Whether too few were killed at work as yet for the test to mean anything."""
        assert self.thread.is_alive(), self.error
        return self.killed_at_work < least

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, kind, *_):
        self.done.set()
        self.thread.join()
        if kind is None:
            assert self.error is None
            assert self.killed_at_work > 0, f"{self.killed} killed, none of them at work"


@pytest.fixture(autouse=True)
def nothing_stays(node):
    """After each test the store and the CPUs are as they were before it."""
    before = {row["id"] for row in objects_left()}
    yield
    gc.collect()

    def no_object():
        left = [row for row in objects_left() if row["id"] not in before]
        assert not left, left[:3]
        return True

    eventually(no_object, what="every object is gone")
    eventually(lambda: hoplo.available_resources().get("CPU") == 4, what="every CPU is free")


@hoplo.remote(max_retries=-1)
def block(i):
    return np.full(MIB, i % 251, "uint8")


@hoplo.remote(max_retries=-1)
def total(*blocks):
    return sum(int(b[0]) + int(b[-1]) for b in blocks)


@hoplo.remote(max_retries=-1)
def tree(depth, i):
    if depth == 0:
        return i
    return sum(hoplo.get([tree.remote(depth - 1, 2 * i), tree.remote(depth - 1, 2 * i + 1)]))


@pytest.mark.parametrize("seed", range(3))
def test_small_tasks(seed):
    @hoplo.remote(max_retries=-1)
    def square(x):
        return x * x

    with Killer(seed, 0.05) as killer:
        while killer.goes_on(6):
            assert hoplo.get([square.remote(i) for i in range(500)]) == [i * i for i in range(500)]


@pytest.mark.parametrize("seed", range(3))
def test_trees_of_tasks(seed):
    with Killer(seed, 0.1) as killer:
        while killer.goes_on():
            assert hoplo.get(tree.remote(5, 1), timeout=90) == sum(range(32, 64))


@pytest.mark.parametrize("seed", range(3))
def test_large_objects_and_spilling(seed):
    with Killer(seed, 0.1) as killer:
        while killer.goes_on():
            blocks = [block.remote(i) for i in range(200)]  # more than the store holds
            totals = [total.remote(*blocks[i : i + 4]) for i in range(0, 200, 4)]
            expected = [2 * sum(k % 251 for k in range(i, i + 4)) for i in range(0, 200, 4)]
            assert hoplo.get(totals, timeout=90) == expected
            for i, ref in enumerate(blocks):
                value = hoplo.get(ref)
                assert value[0] == value[-1] == i % 251


@pytest.mark.parametrize("seed", range(3))
def test_actors_that_restart(seed):
    @hoplo.remote(max_restarts=-1, max_task_retries=-1)
    class Store:
        def __init__(self, boxed):
            self.block = hoplo.get(boxed[0])

        def at(self, i):
            return int(self.block[i])

    data = hoplo.put(np.arange(MIB, dtype="int32"))
    with Killer(seed, 0.1) as killer:
        stores = [Store.remote([data]) for _ in range(3)]
        turn = 0
        while turn < 10 or killer.goes_on():
            refs = [store.at.remote(i) for store in stores for i in range(turn % 10, 1000, 10)]
            assert hoplo.get(refs, timeout=90) == list(range(turn % 10, 1000, 10)) * 3
            turn += 1


def test_actors_without_retries_tell_the_truth():
    @hoplo.remote(max_restarts=-1)
    class Counter:
        def __init__(self):
            self.value = 0

        def add(self):
            self.value += 1
            return self.value

    counter = Counter.remote()
    told = []
    with Killer(7, 0.05) as killer:
        last = 0
        while killer.goes_on(10):
            refs = [counter.add.remote() for _ in range(100)]
            for ref in refs:
                try:
                    value = hoplo.get(ref, timeout=60)
                    assert value in (last + 1, 1)  # one more, or it began anew
                    last = value
                except (ActorUnavailableError, ActorDiedError) as error:
                    told.append(str(error))
                    last = 0
    assert len(told) <= killer.killed
    assert all("SIGKILL" in text for text in told)


@pytest.mark.parametrize("seed", range(2))
def test_streams(seed):
    @hoplo.remote(max_retries=-1)
    def numbers(n):
        for i in range(n):
            yield np.full(50_000, i % 251, "uint8")

    with Killer(seed, 0.1) as killer:
        while killer.goes_on():
            for i, ref in enumerate(numbers.remote(100)):
                assert hoplo.get(ref)[-1] == i % 251
            assert i == 99


@pytest.mark.near
def test_the_daemon_counted_no_breach():
    import json

    status = json.loads(hoplo._core.query("status"))
    assert status["violations"] == 0
    assert daemon_pid() == status["pid"]
