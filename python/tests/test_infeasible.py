"""What can never run here: it waits, says so once, and says what the node lacks."""

from __future__ import annotations

import time

import pytest
from conftest import command, eventually, ready
from processes import listed

import hoplo
from hoplo.exceptions import GetTimeoutError, TaskCancelledError

NODE = {"num_cpus": 2, "num_gpus": 0, "resources": {"licence": 1}}


@hoplo.remote
def work(value=1):
    return value


@hoplo.remote
class Actor:
    def work(self):
        return 1


CASES = {
    "GPU": ({"num_gpus": 1}, "needs GPU 1, node has 0"),
    "CPU": ({"num_cpus": 3}, "needs CPU 3, node has 2"),
    "named": ({"resources": {"tpu": 2}}, "needs tpu 2, node has 0"),
    "too many": ({"resources": {"licence": 1.5}}, "needs licence 1.5, node has 1"),
}


@pytest.mark.parametrize(("options", "lack"), CASES.values(), ids=CASES)
def test_a_task_waits_and_every_explanation_names_the_lack(options, lack, capfd):
    ref = work.options(name="wide", **options).remote()
    with pytest.raises(GetTimeoutError) as caught:
        hoplo.get(ref, timeout=1)
    text = str(caught.value)
    assert f"of wide is queued: {lack}" in text
    assert "task:" in text
    assert lack in command("why", ref.hex()).stdout
    assert lack in command("why", ref.task_id()).stdout
    (row,) = [row for row in listed("tasks") if row["name"] == "wide"]
    assert lack in str(row)
    error = capfd.readouterr().err
    assert error.count(lack) == 1, error  # one warning
    assert "hoplo: " in error
    assert "pending" in error or "wait" in error
    hoplo.cancel(ref)
    with pytest.raises(TaskCancelledError):
        hoplo.get(ref, timeout=20)


def test_a_hundred_of_a_kind_make_one_warning(capfd):
    refs = [work.options(resources={"crane": 1}).remote(i) for i in range(100)]
    assert not ready(refs, timeout=1)
    # What can run does, meanwhile.
    assert hoplo.get([work.remote(i) for i in range(100)]) == list(range(100))
    error = ""

    def told():
        nonlocal error
        error += capfd.readouterr().err
        return "crane" in error

    eventually(told)
    assert not ready(refs, timeout=0.5)
    error += capfd.readouterr().err
    assert error.count("crane") == 1, error
    for ref in refs:
        hoplo.cancel(ref)


def test_a_hundred_actors_of_a_kind_made_a_hundred_warnings(capfd):
    actors = [Actor.options(resources={"derrick": 1}).remote() for _ in range(100)]
    refs = [actor.work.remote() for actor in actors]
    error = ""

    def told():
        nonlocal error
        error += capfd.readouterr().err
        return "derrick" in error

    eventually(told)
    assert not ready(refs, timeout=0.5)
    error += capfd.readouterr().err
    assert error.count("derrick") == 1, error
    for actor in actors:
        hoplo.kill(actor)


def test_an_actor_waits_too(capfd):
    actor = Actor.options(num_gpus=1, name="thinker").remote()
    ref = actor.work.remote()
    with pytest.raises(GetTimeoutError, match=r"needs GPU 1, node has 0"):
        hoplo.get(ref, timeout=1)
    why = command("why", actor._actor_id).stdout
    assert "thinker" in why
    assert "needs GPU 1, node has 0" in why
    (row,) = [row for row in listed("actors") if row["name"] == "thinker"]
    assert "pending" in str(row).lower()
    error = capfd.readouterr().err
    assert error.count("needs GPU 1, node has 0") == 1, error
    hoplo.kill(actor)


def test_a_chain_names_the_first_cause():
    last = work.remote(work.remote(work.options(num_gpus=2, name="root").remote()))
    with pytest.raises(GetTimeoutError, match=r"(?s)of work is waiting for .*root.*needs GPU 2"):
        hoplo.get(last, timeout=1)
    why = command("why", last.hex()).stdout
    assert "root" in why
    assert "needs GPU 2, node has 0" in why


def test_feasible_but_taken_names_who_has_it(gate):
    @hoplo.remote(resources={"licence": 1})
    def hold():
        return gate.wait()

    first, second = hold.remote(), hold.remote()
    eventually(gate.arrived)
    with pytest.raises(GetTimeoutError, match=r"licence|leased workers are busy"):
        hoplo.get(second, timeout=1)
    assert gate.arrived() == 1
    gate.open()
    hoplo.get([first, second])


def test_a_waiting_task_is_idle():
    ref = work.options(num_gpus=1).remote()
    began, used = time.monotonic(), time.process_time()
    assert not ready(ref, timeout=1)
    assert time.monotonic() - began >= 1
    assert time.process_time() - used < 0.2  # waiting is not polling
    hoplo.cancel(ref)
