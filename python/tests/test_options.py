"""Options of tasks: what each one does."""

import os
import sys

import pytest
from conftest import command, eventually

import hoplo
from hoplo.exceptions import GetTimeoutError, TaskCancelledError, WorkerCrashedError
from hoplo.util.scheduling_strategies import NodeAffinitySchedulingStrategy

NODE = {"num_cpus": 4, "resources": {"disk": 2}, "memory": 4 << 30}


@hoplo.remote
def pid():
    return os.getpid()


@hoplo.remote
def context():
    asked = hoplo.get_runtime_context()
    return asked.get_task_name(), asked.get_task_function_name(), asked.get_assigned_resources()


class Flaky(Exception):
    pass


@hoplo.remote
def fail_until(path, tries, error=Flaky):
    with open(path, "a") as file:
        file.write(".")
    if os.path.getsize(path) < tries:
        raise error("not yet")
    return hoplo.get_runtime_context().get_attempt_number()


# ------------------------------------------------------------------------------------ unfit


def test_too_few_resources_wait_and_say_what_lacks(capfd):
    ref = pid.options(resources={"disk": 3}).remote()
    other = pid.options(num_gpus=1).remote()
    with pytest.raises(GetTimeoutError, match=r"pid.*queued.*disk 3.*has 2"):
        hoplo.get(ref, timeout=0.3)
    with pytest.raises(GetTimeoutError, match=r"pid.*queued.*GPU 1.*has 0"):
        hoplo.get(other, timeout=0.3)
    told = ""

    def both_are_told():
        nonlocal told
        told += capfd.readouterr().err
        return "disk" in told and "GPU" in told

    eventually(both_are_told)
    assert told.count("disk") == 1  # once, however long it takes
    why = command("why", ref.hex()).stdout
    assert "disk 3" in why
    hoplo.cancel(ref)
    hoplo.cancel(other)
    for one in (ref, other):
        with pytest.raises(hoplo.exceptions.TaskCancelledError):
            hoplo.get(one, timeout=10)


# ------------------------------------------------------------------------------------ resources


def test_a_task_holds_what_it_asks_for(gate):
    @hoplo.remote(num_cpus=2, resources={"disk": 1}, memory=1 << 30)
    def hold():
        gate.wait()
        return hoplo.get_runtime_context().get_assigned_resources()

    free = hoplo.cluster_resources()
    eventually(lambda: hoplo.available_resources()["CPU"] == free["CPU"])  # no lease is left over
    before = hoplo.available_resources()
    ref = hold.remote()
    eventually(gate.arrived)
    left = hoplo.available_resources()
    assert before["CPU"] - left["CPU"] == 2
    assert before["disk"] - left["disk"] == 1
    assert before["memory"] - left["memory"] == 1 << 30
    gate.open()
    assert hoplo.get(ref) == {"CPU": 2, "disk": 1, "memory": 1 << 30}
    held = ("CPU", "disk", "memory")
    eventually(lambda: all(hoplo.available_resources()[name] == before[name] for name in held))


@pytest.mark.parametrize(
    ("options", "at_once"),
    [({"num_cpus": 2}, 2), ({"resources": {"disk": 1}}, 2), ({"num_cpus": 0.5}, 8)],
)
def test_as_many_run_as_resources_allow(gate, options, at_once):
    @hoplo.remote(**options)
    def hold():
        gate.wait()

    refs = [hold.remote() for _ in range(at_once + 2)]
    eventually(lambda: gate.arrived() == at_once)
    assert hoplo.wait(refs, timeout=0)[0] == []
    assert gate.arrived() == at_once
    gate.open()
    hoplo.get(refs)


def test_a_task_without_cpus_runs_when_all_are_taken(gate):
    @hoplo.remote
    def hold():
        gate.wait()

    refs = [hold.remote() for _ in range(4)]
    eventually(lambda: gate.arrived() == 4)
    assert hoplo.get(pid.options(num_cpus=0).remote(), timeout=10)
    gate.open()
    hoplo.get(refs)


@pytest.mark.near
def test_resources_that_the_node_has():
    assert hoplo.cluster_resources()["CPU"] == 4
    assert hoplo.cluster_resources()["disk"] == 2
    assert hoplo.cluster_resources()["memory"] == 4 << 30
    (node,) = hoplo.nodes()
    assert node["Alive"] is True
    assert node["Resources"]["disk"] == 2
    assert node["NodeID"] == hoplo.get_runtime_context().get_node_id()


@pytest.mark.near
@pytest.mark.parametrize("strategy", ["DEFAULT", "SPREAD", "here", "soft"])  # one node: accepted
def test_scheduling_strategies_are_accepted(strategy):
    if strategy == "here":
        node_id = hoplo.get_runtime_context().get_node_id()
        strategy = NodeAffinitySchedulingStrategy(node_id, soft=False)
    elif strategy == "soft":
        strategy = NodeAffinitySchedulingStrategy("0000ab", soft=True)
    assert hoplo.get(pid.options(scheduling_strategy=strategy).remote(), timeout=10)


# ------------------------------------------------------------------------------------ names


def test_names():
    name, function_name, resources = hoplo.get(context.options(name="step 1").remote())
    assert name == "step 1"
    assert "context" in function_name
    assert resources == {"CPU": 1}
    assert "context" in hoplo.get(context.remote())[0]


@hoplo.remote(max_retries=0)
def goes_wrong(how, gate=None):
    if how == "raises":
        raise LookupError("broken")
    if how == "exits":
        sys.exit(3)
    gate.wait()


def test_errors_and_why_say_the_name_of_a_task(gate):
    named = goes_wrong.options(name="step 2")
    with pytest.raises(LookupError, match=r"^step 2 raised LookupError"):
        hoplo.get(named.remote("raises"))
    with pytest.raises(WorkerCrashedError, match=r"step 2 called sys.exit\(3\)"):
        hoplo.get(named.remote("exits"))
    ref = named.remote("waits", gate)
    eventually(lambda: "of step 2 has run" in hoplo._core.query("why", ref.hex()))
    hoplo.cancel(ref)
    with pytest.raises(TaskCancelledError, match="of step 2 was cancelled"):
        hoplo.get(ref)


def test_options_change_a_copy_only():
    named = context.options(name="a").options(num_cpus=2)
    assert hoplo.get(named.remote())[::2] == ("a", {"CPU": 2})
    assert hoplo.get(context.remote())[0] != "a"


# ------------------------------------------------------------------------------------ retries


def test_an_exception_is_not_retried_unless_asked(tmp_path):
    path = str(tmp_path / "tries")
    with pytest.raises(Flaky):
        hoplo.get(fail_until.remote(path, 2))
    assert os.path.getsize(path) == 1


@pytest.mark.parametrize("kinds", [True, [Flaky], Flaky, [KeyError, Flaky]])
def test_an_exception_is_retried_when_asked(tmp_path, kinds):
    path = str(tmp_path / "tries")
    ref = fail_until.options(retry_exceptions=kinds).remote(path, 3)
    assert hoplo.get(ref) == 2


def test_another_exception_is_not_retried(tmp_path):
    path = str(tmp_path / "tries")
    with pytest.raises(Flaky):
        hoplo.get(fail_until.options(retry_exceptions=[KeyError]).remote(path, 3))
    assert os.path.getsize(path) == 1


def test_retries_are_used_up(tmp_path):
    path = str(tmp_path / "tries")
    with pytest.raises(Flaky, match="not yet"):
        hoplo.get(fail_until.options(retry_exceptions=True, max_retries=2).remote(path, 9))
    assert os.path.getsize(path) == 3


@pytest.mark.parametrize(("max_retries", "runs"), [(0, 1), (2, 3), (None, 4)])
def test_a_crash_is_retried(tmp_path, max_retries, runs):
    path = tmp_path / "tries"

    @hoplo.remote(max_retries=max_retries)
    def crash():
        with open(path, "a") as file:
            file.write(".")
        os._exit(7)

    with pytest.raises(WorkerCrashedError, match=r"crash died: pid \d+ exited with code 7"):
        hoplo.get(crash.remote())
    assert path.stat().st_size == runs


def test_retries_without_a_limit(tmp_path):
    path = tmp_path / "tries"

    @hoplo.remote(max_retries=-1)
    def crash():
        with open(path, "a") as file:
            file.write(".")
        if os.path.getsize(path) < 8:
            os._exit(7)
        return hoplo.get_runtime_context().get_attempt_number()

    assert hoplo.get(crash.remote()) == 7


# ------------------------------------------------------------------------------------ max_calls


def test_max_calls_ends_the_worker():
    once = hoplo.remote(max_calls=1)(lambda: os.getpid())
    pids = [hoplo.get(once.remote()) for _ in range(4)]
    assert len(set(pids)) == 4

    thrice = hoplo.remote(max_calls=3)(lambda: os.getpid())
    pids = hoplo.get([thrice.remote() for _ in range(12)])
    assert max(pids.count(p) for p in pids) <= 3


def test_a_worker_is_used_again_without_max_calls():
    pids = [hoplo.get(pid.remote()) for _ in range(20)]
    assert len(set(pids)) <= 4


def test_a_result_in_the_store_survives_max_calls():
    once = hoplo.remote(max_calls=1)(lambda i: b"%d" % i * 500_000)
    refs = [once.remote(i) for i in range(4)]
    assert hoplo.get(refs) == [b"%d" % i * 500_000 for i in range(4)]
