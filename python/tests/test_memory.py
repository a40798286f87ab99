"""`memory=`: counted like any resource, and enforced."""

from __future__ import annotations

import pytest
from conftest import eventually
from processes import Notes

import hoplo
from hoplo.exceptions import (
    ActorDiedError,
    GetTimeoutError,
    OutOfMemoryError,
    WorkerCrashedError,
)

MIB = 1 << 20
NODE = {"num_cpus": 4, "memory": 2048 * MIB}


def use(mebibytes=4000, step=8):
    """Really uses it, step by step, so that whoever measures has something to see."""
    kept = []
    for _ in range(0, mebibytes, step):
        kept.append(b"\1" * (step * MIB))
    return len(kept) * step


@hoplo.remote(max_retries=0)
def hog(mebibytes):
    return use(mebibytes)


def test_a_task_over_its_limit_is_stopped_and_told():
    with pytest.raises(OutOfMemoryError) as caught:
        hoplo.get(hog.options(memory=200 * MIB).remote(4000))
    assert isinstance(caught.value, WorkerCrashedError)
    text = str(caught.value)
    assert "hog" in text
    assert "200" in text  # its limit
    assert "memory=" in text  # the remedy


def test_a_task_under_its_limit_runs():
    assert hoplo.get(hog.options(memory=400 * MIB).remote(100)) == 104


def test_others_are_spared(gate):
    @hoplo.remote(memory=100 * MIB)
    def innocent():
        return gate.wait("alive")

    ref = innocent.remote()
    eventually(gate.arrived)
    with pytest.raises(OutOfMemoryError):
        hoplo.get(hog.options(memory=200 * MIB).remote(4000))
    gate.open()
    assert hoplo.get(ref) == "alive"


def test_it_is_retried_like_any_crash(tmp_path):
    notes = Notes(tmp_path / "runs")

    @hoplo.remote(memory=200 * MIB, max_retries=2)
    def sometimes():
        if notes.add() < 3:
            use()
        return "fits"

    assert hoplo.get(sometimes.remote()) == "fits"


def test_an_actor_over_its_limit_dies_of_it():
    @hoplo.remote(memory=200 * MIB)
    class Hoarder:
        def __init__(self):
            self.kept = []

        def keep(self, mebibytes):
            self.kept.append(b"\1" * (mebibytes * MIB))
            return len(self.kept)

    hoarder = Hoarder.remote()
    assert hoplo.get(hoarder.keep.remote(50)) == 1
    with pytest.raises(ActorDiedError, match="memory"):
        hoplo.get([hoarder.keep.remote(50) for _ in range(100)])


def test_a_result_in_the_store_is_not_the_tasks_memory():
    @hoplo.remote(memory=200 * MIB, max_retries=0)
    def make(mebibytes):
        total = 0
        for _ in range(20):
            block = hoplo.empty(mebibytes * MIB, "uint8")
            block[:] = 1
            total += int(hoplo.get(hoplo.put(block))[-1])
        return total

    assert hoplo.get(make.remote(30)) == 20


@pytest.mark.near
def test_memory_is_a_resource(gate):
    @hoplo.remote(memory=1024 * MIB)
    def hold():
        return gate.wait("done")

    refs = [hold.remote() for _ in range(3)]
    eventually(lambda: gate.arrived() == 2)
    with pytest.raises(GetTimeoutError, match="memory"):
        hoplo.get(refs, timeout=1)
    assert gate.arrived() == 2  # the third has to wait
    eventually(lambda: "memory" not in hoplo.available_resources())
    gate.open()
    assert hoplo.get(refs) == ["done"] * 3


@pytest.mark.near
def test_actors_with_memory_and_nothing_else_held_a_cpu_each():
    @hoplo.remote(memory=100 * MIB)
    class Small:
        def ping(self):
            return "ok"

    actors = [Small.remote() for _ in range(NODE["num_cpus"] + 2)]
    assert hoplo.get([one.ping.remote() for one in actors], timeout=30) == ["ok"] * len(actors)
    eventually(lambda: hoplo.available_resources().get("CPU") == NODE["num_cpus"])
    assert hoplo.available_resources()["memory"] == NODE["memory"] - len(actors) * 100 * MIB


def test_a_third_actor_waits_for_memory_and_gets_it_when_one_goes():
    @hoplo.remote(memory=1000 * MIB)
    class Large:
        def ping(self):
            return "ok"

    first, second = Large.remote(), Large.remote()
    assert hoplo.get([first.ping.remote(), second.ping.remote()], timeout=30) == ["ok"] * 2
    third = Large.remote()
    waits = third.ping.remote()
    with pytest.raises(GetTimeoutError, match="memory"):
        hoplo.get(waits, timeout=1)
    hoplo.kill(first)
    assert hoplo.get(waits, timeout=30) == "ok"
    hoplo.kill(second)
    hoplo.kill(third)


def test_more_memory_than_there_is_waits_and_says_so():
    with pytest.raises(GetTimeoutError, match=r"needs memory 4\.0 GiB, node has [\d.]+ .iB"):
        hoplo.get(hog.options(memory=4096 * MIB).remote(1), timeout=1)
