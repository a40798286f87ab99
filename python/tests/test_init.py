"""init and shutdown: what they take, give and leave."""

import os
import subprocess
import sys

import pytest
from conftest import eventually, processes, run_driver
from processes import cpu_s, rests

import hoplo
from hoplo.exceptions import ConnectionFailedError

NODE = None


@hoplo.remote
def square(x):
    return x * x


# ------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"num_cpu": 3}, TypeError, "init has no option 'num_cpu'; did you mean 'num_cpus'"),
        ({"object_store_mem": 3}, TypeError, "did you mean 'object_store_memory'"),
        ({"zzz": 3}, TypeError, "the options are address, num_cpus"),
        ({"num_cpus": -1}, ValueError, "0 or more"),
        ({"num_cpus": "two"}, TypeError, "must be a number"),
        ({"num_gpus": -1}, ValueError, "0 or more"),
        ({"resources": {"CPU": 3}}, ValueError, "use num_cpus="),
        ({"object_store_memory": 100}, ValueError, "1048576 or more.*in bytes"),
        ({"object_store_memory": 100.5}, ValueError, "1048576 or more.*in bytes"),
        ({"object_store_memory": float("nan")}, ValueError, "must be a finite number"),
        ({"object_store_memory": "1e9"}, TypeError, "must be a whole number"),
        ({"namespace": ""}, ValueError, "must not be empty"),
        ({"log_to_driver": "yes"}, TypeError, "True or False"),
        ({"runtime_env": {"pip": 3}}, TypeError, "must be a list of requirements"),
        ({"address": 3}, TypeError, "address must be a str"),
        ({"address": "auto", "num_cpus": 2}, ValueError, "leave out num_cpus; .* `hoplo start`"),
        # What works with Ray was taken for the path of a file.
        ({"address": "10.0.0.1:port"}, ValueError, "is no address of a head: give HOST:PORT"),
        ({"address": "ray://head:10001"}, ValueError, "'auto', 'local', or the path"),
        # They were ignored without a word.
        ({"address": "auto", "memory": 2}, ValueError, "leave out memory;"),
        ({"address": "auto", "labels": {"zone": "b"}}, ValueError, "leave out labels;"),
    ],
)
def test_a_wrong_option(options, error, text):
    with pytest.raises(error, match=text):
        hoplo.init(**options)
    assert not hoplo.is_initialized()
    assert processes() == {}


@pytest.mark.parametrize("address", ["auto", "/nowhere/sock"])
def test_nothing_to_join(address):
    with pytest.raises(ConnectionFailedError, match=r"hoplo start --head|/nowhere") as caught:
        hoplo.init(address=address)
    assert isinstance(caught.value, ConnectionError)
    assert not hoplo.is_initialized()


def test_a_folder_that_cannot_be_made():
    with pytest.raises(ConnectionFailedError, match="/proc/nowhere"):
        hoplo.init(_temp_dir="/proc/nowhere")
    assert not hoplo.is_initialized()


def test_init_inside_a_task(fresh_node):
    fresh_node(num_cpus=1)

    @hoplo.remote
    def inner():
        assert hoplo.is_initialized()
        try:
            hoplo.init()
        except RuntimeError as error:
            return str(error)

    assert "a task calls it" in hoplo.get(inner.remote())


def test_questions_before_init():
    for ask in (
        hoplo.nodes,
        hoplo.cluster_resources,
        hoplo.available_resources,
        hoplo.get_runtime_context().get_job_id,
    ):
        with pytest.raises(RuntimeError, match=r"hoplo\.init\(\)"):
            ask()


def test_refs_and_actors_of_a_session_that_ended(fresh_node):
    @hoplo.remote
    class Actor:
        def f(self):
            return 1

    fresh_node(num_cpus=1)
    ref, pending, actor = hoplo.put([1]), square.remote(3), Actor.remote()
    hoplo.shutdown()
    hoplo.init(num_cpus=1)
    for use in (
        lambda: hoplo.get(ref),
        lambda: hoplo.get(pending),
        lambda: hoplo.wait([ref]),
        lambda: square.remote(ref),
        lambda: hoplo.put([ref]),
        lambda: actor.f.remote(),
    ):
        with pytest.raises(Exception, match=r"session|shutdown"):
            use()
    assert hoplo.get(square.remote(4)) == 16


# ------------------------------------------------------------------------------------ init


def test_the_first_call_initializes(fresh_node):
    assert not hoplo.is_initialized()
    assert hoplo.get(square.remote(3)) == 9
    assert hoplo.is_initialized()
    hoplo.shutdown()
    assert hoplo.get(hoplo.put(4)) == 4
    hoplo.shutdown()
    assert hoplo.get([]) == []


def test_init_prints_nothing():
    done = run_driver("import hoplo\nhoplo.init(num_cpus=1)\nhoplo.shutdown()\nhoplo.init()\n")
    assert (done.stdout, done.stderr) == ("", "")


def test_what_init_gives(fresh_node):
    context = fresh_node(num_cpus=3, num_gpus=1, resources={"disk": 5}, namespace="mine")
    assert set(context) >= {"address", "node_id", "job_id", "session_dir", "namespace"}
    assert context["namespace"] == "mine"
    assert os.path.isdir(context["session_dir"])
    assert os.stat(context["session_dir"]).st_mode & 0o777 == 0o700
    resources = hoplo.cluster_resources()
    assert (resources["CPU"], resources["GPU"], resources["disk"]) == (3, 1, 5)
    assert resources["memory"] > 0
    assert resources["object_store_memory"] >= 64 << 20
    asked = hoplo.get_runtime_context()
    assert asked.get_job_id() == context["job_id"]
    assert asked.get_node_id() == context["node_id"]
    assert asked.worker_mode == "driver"
    assert asked.namespace == "mine"
    assert asked.get_task_id() is None
    assert asked.get_actor_id() is None
    with pytest.raises(RuntimeError):
        asked.current_actor


def test_as_many_cpus_as_this_process_may_use(fresh_node):
    fresh_node()
    assert hoplo.cluster_resources()["CPU"] == len(os.sched_getaffinity(0))


def test_the_labels_of_a_node_were_never_shown(fresh_node):
    fresh_node(num_cpus=1, labels={"zone": "b", "example.com/size": "2-m"})
    assert hoplo.nodes()[0]["Labels"] == {"zone": "b", "example.com/size": "2-m"}


def test_labels_that_no_selector_can_name_are_refused():
    for labels, words in (
        ({"a b!": "x"}, 'init.labels.: "a b!" is no key of a label: a key has 1 to 63 letters'),
        ({"zone": "in(x"}, "is no value of the label zone: a value is empty, or has 63"),
        ({"hoplo.io/node-id": "x"}, "the label hoplo.io/node-id is not yours to give"),
    ):
        with pytest.raises(ValueError, match=words):
            hoplo.init(labels=labels)
        assert not hoplo.is_initialized()


def test_more_object_store_memory_than_the_machine_has_is_refused():
    with pytest.raises(ConnectionFailedError, match=r"from 1.0 MiB to .*this machine's memory"):
        hoplo.init(num_cpus=1, object_store_memory=1 << 50)
    assert not hoplo.is_initialized()


def test_the_object_store_memory(fresh_node):
    fresh_node(num_cpus=1, object_store_memory=100 << 20, memory=1 << 30)
    assert hoplo.cluster_resources()["object_store_memory"] == 100 << 20
    assert hoplo.cluster_resources()["memory"] == 1 << 30


def test_a_with_block_shuts_down(fresh_node):
    with hoplo.init(num_cpus=1) as context:
        assert hoplo.get(square.remote(2)) == 4
        assert context["node_id"]
    assert not hoplo.is_initialized()


def test_temp_dir(fresh_node, tmp_path):
    context = fresh_node(num_cpus=1, _temp_dir=str(tmp_path))
    assert context["session_dir"].startswith(str(tmp_path))
    assert hoplo.get(square.remote(2)) == 4


def test_two_processes_before_the_first_worker(fresh_node):
    fresh_node(num_cpus=2)
    eventually(lambda: len(processes()) == 2)
    assert hoplo.get(square.remote(2)) == 4
    assert len(processes()) == 3


def test_nobody_is_busy_when_nothing_happens(fresh_node, gate):
    fresh_node(num_cpus=2)

    @hoplo.remote
    def hold():
        gate.wait()

    ref = hold.remote()
    eventually(gate.arrived)
    hoplo.get(square.remote(1))

    def ours():
        return {*processes(), os.getpid()}

    eventually(rests(processes), what="imports and warm-up ended")
    before = cpu_s(ours())
    assert hoplo.wait([ref], timeout=1)[0] == []
    assert cpu_s(ours()) - before < 0.1


def test_nothing_but_cloudpickle_is_needed():
    out = run_driver(
        """
import sys
before = set(sys.modules)
for name in ("numpy", "torch", "pyarrow", "joblib", "IPython"):
    sys.modules[name] = None  # importing it raises ImportError

import hoplo

@hoplo.remote
def f(x):
    return x, b"x" * 1_000_000

@hoplo.remote
class A:
    def f(self):
        return [1]

print(hoplo.get(f.remote({"a": (1, 2)}))[0], hoplo.get(A.remote().f.remote()))
loaded = {name.partition(".")[0] for name in set(sys.modules) - before}
print(sorted(loaded & {"asyncio", "multiprocessing", "numpy", "cloudpickle"} - {"numpy"}))
"""
    ).stdout
    first, second = out.splitlines()
    assert first == "{'a': (1, 2)} [1]"
    assert "asyncio" not in second
    assert "multiprocessing" not in second


def test_a_context_inside_a_task(fresh_node):
    fresh_node(num_cpus=1, namespace="mine")

    @hoplo.remote
    def asked():
        context = hoplo.get_runtime_context()
        return context.get()

    inside = hoplo.get(asked.remote())
    outside = hoplo.get_runtime_context().get()
    assert inside["worker_mode"] == "worker"
    assert inside["job_id"] == outside["job_id"]
    assert inside["node_id"] == outside["node_id"]
    assert inside["worker_id"] != outside["worker_id"]
    assert inside["namespace"] == "mine"
    assert inside["attempt"] == 0
    assert inside["task_id"]


def test_a_first_task_waits_for_no_needless_import():
    """difflib came with every `from hoplo import _worker`, which asks `hoplo.__getattr__` first."""
    program = (
        "import sys; before = set(sys.modules); import hoplo._zygote; "
        "print(*sorted(set(sys.modules) - before))"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    imported = set(done.stdout.split())
    assert "hoplo._worker" in imported
    assert not imported & {"difflib", "pathlib", "sysconfig", "shutil", "hoplo._serialization"}
