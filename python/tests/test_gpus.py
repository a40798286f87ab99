"""GPUs: counted and told to tasks, on a machine that has none too."""

import os

import pytest
from conftest import alive, eventually

import hoplo

NODE = {"num_cpus": 4, "num_gpus": 2}


@hoplo.remote
def seen():
    return os.environ.get("CUDA_VISIBLE_DEVICES"), hoplo.get_gpu_ids()


@hoplo.remote(num_gpus=1)
class Holder:
    def seen(self):
        return os.environ["CUDA_VISIBLE_DEVICES"], hoplo.get_gpu_ids()

    def accelerators(self):
        return hoplo.get_runtime_context().get_accelerator_ids()


def test_more_gpus_than_there_are():
    with pytest.raises(hoplo.exceptions.GetTimeoutError, match=r"GPU 3.*has 2"):
        hoplo.get(seen.options(num_gpus=3).remote(), timeout=0.3)


@pytest.mark.near
def test_the_node_has_what_init_said():
    assert hoplo.cluster_resources()["GPU"] == 2
    assert hoplo.get_gpu_ids() == [0, 1]


def test_a_task_without_gpus_sees_none():
    visible, ids = hoplo.get(seen.remote())
    assert visible == ""
    assert ids == []


def test_a_task_sees_its_gpu():
    visible, ids = hoplo.get(seen.options(num_gpus=1).remote())
    assert len(ids) == 1
    assert visible == str(ids[0])
    assert ids[0] in (0, 1)


def test_a_task_sees_both():
    assert hoplo.get(seen.options(num_gpus=2).remote()) == ("0,1", [0, 1])


def test_two_tasks_never_share_a_gpu(gate):
    @hoplo.remote(num_gpus=1)
    def hold():
        gate.wait()
        return hoplo.get_gpu_ids()

    refs = [hold.remote() for _ in range(4)]
    eventually(lambda: gate.arrived() == 2)
    assert hoplo.available_resources().get("GPU", 0) == 0
    gate.open()
    ids = hoplo.get(refs)
    assert sorted(ids[:2]) == [[0], [1]]


def test_fractions_share_one_gpu(gate):
    @hoplo.remote(num_gpus=0.5, num_cpus=0.5)
    def hold():
        gate.wait()
        return hoplo.get_gpu_ids(), os.environ["CUDA_VISIBLE_DEVICES"]

    refs = [hold.remote() for _ in range(5)]
    eventually(lambda: gate.arrived() == 4)
    assert hoplo.wait(refs, timeout=0)[0] == []
    gate.open()
    answers = hoplo.get(refs)
    ids = [ids for ids, _ in answers]
    assert sorted(ids[:4]) == [[0], [0], [1], [1]]
    assert all(visible == str(one[0]) for one, visible in answers)


def test_an_actor_keeps_its_gpu():
    first, second = Holder.remote(), Holder.remote()
    one, two = hoplo.get([first.seen.remote(), second.seen.remote()])
    assert sorted([one[1], two[1]]) == [[0], [1]]
    assert one[0] == str(one[1][0])
    assert hoplo.get(first.seen.remote()) == one
    assert hoplo.get(first.accelerators.remote()) == {"GPU": [str(one[1][0])]}
    hoplo.kill(first)
    hoplo.kill(second)
    eventually(lambda: hoplo.available_resources().get("GPU") == 2)


def test_a_gpu_task_gets_a_fresh_process():
    pid = hoplo.remote(num_gpus=1)(lambda: os.getpid())
    assert len({hoplo.get(pid.remote()) for _ in range(3)}) == 3
    again = pid.options(max_calls=0)
    assert len({hoplo.get(again.remote()) for _ in range(6)}) < 6


def test_a_gpu_task_reused_a_process_that_ran_without_gpus_or_with_others():
    """CUDA looks for devices once in a process."""

    @hoplo.remote
    def where():
        return os.getpid()

    def on(count):
        return where.options(num_gpus=count, max_calls=0, num_cpus=4)

    plain = {hoplo.get(where.options(num_cpus=4).remote()) for _ in range(4)}
    one, two = hoplo.get(on(1).remote()), hoplo.get(on(2).remote())
    assert one not in plain
    assert two not in plain | {one}
    assert hoplo.get(on(2).remote()) == two
    # The idle process that still holds memory of its GPU has gone.
    eventually(lambda: not alive(one))
    assert hoplo.get(where.options(num_cpus=4).remote()) in plain
    assert hoplo.get(on(1).remote()) not in plain | {one, two}


def test_a_function_was_unpickled_before_it_saw_its_gpus(tmp_path):
    (tmp_path / "looks_for_gpus.py").write_text(
        "import os\nSEEN = os.environ.get('CUDA_VISIBLE_DEVICES')\n"
    )

    class Looks:
        def __reduce__(self):
            return (__import__("importlib").import_module, ("looks_for_gpus",))

    module = Looks()

    @hoplo.remote(num_gpus=2, runtime_env={"working_dir": str(tmp_path)})
    def look():
        return module.SEEN

    assert hoplo.get(look.remote()) == "0,1"


def test_an_accelerator_type_that_the_node_lacks():
    ref = seen.options(accelerator_type="H100").remote()
    with pytest.raises(hoplo.exceptions.GetTimeoutError, match="accelerator_type:H100"):
        hoplo.get(ref, timeout=0.3)
    hoplo.cancel(ref)
