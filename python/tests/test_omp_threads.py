"""How many threads libraries start in workers: `OMP_NUM_THREADS`."""

import os

import pytest
from conftest import run_driver

BEFORE = """
import os, sys
import hoplo

def number():
    return os.environ.get("OMP_NUM_THREADS")

@hoplo.remote
class Actor:
    at_class = os.environ.get("OMP_NUM_THREADS")
    def number(self):
        return number()

task = hoplo.remote(number)
"""
OPENBLAS = """
import ctypes
def openblas():
    import numpy
    from hoplo._threads import _openblas
    found = []
    for path in _openblas():
        for name in ("scipy_openblas_get_num_threads64_", "openblas_get_num_threads"):
            asked = getattr(ctypes.CDLL(path), name, None)
            if asked is not None:
                found.append(asked())
    return found
"""


def driver(code: str, **variables: str) -> list[str]:
    kept = {name: text for name, text in os.environ.items() if not name.endswith("NUM_THREADS")}
    return run_driver(BEFORE + code, env={**kept, **variables}).stdout.splitlines()


def test_a_worker_has_one_thread_for_each_whole_cpu_and_the_driver_is_left_alone():
    assert driver("""
hoplo.init(num_cpus=4)
print(number())
print([hoplo.get(task.options(num_cpus=cpus).remote()) for cpus in (0, 0.5, 1, 2, 3.5, 1, 4)])
print([hoplo.get(Actor.options(num_cpus=cpus).remote().number.remote()) for cpus in (0, 1, 2.5)])
print(hoplo.get(Actor.remote().number.remote()), number())
""") == ["None", "['1', '1', '1', '2', '3', '1', '4']", "['1', '1', '2']", "1 None"]


def test_one_cpu_is_one_thread():
    assert driver("""
hoplo.init(num_cpus=2)
print([hoplo.get(task.options(num_cpus=cpus).remote()) for cpus in (0, 0.5, 1)])
print(hoplo.get(Actor.remote().number.remote()), number())
""") == ["['1', '1', '1']", "1 None"]


def test_the_number_is_there_before_the_function_and_the_class_are_loaded(tmp_path):
    (tmp_path / "reads.py").write_text(
        "import os\n"
        "AT_IMPORT = os.environ.get('OMP_NUM_THREADS')\n"
        "def task():\n"
        "    return AT_IMPORT\n"
        "class Actor:\n"
        "    def number(self):\n"
        "        return AT_IMPORT\n"
    )
    assert driver(
        """
import reads
hoplo.init(num_cpus=2)
print(hoplo.get(hoplo.remote(num_cpus=2)(reads.task).remote()))
print(hoplo.get(hoplo.remote(num_cpus=2)(reads.Actor).remote().number.remote()))
""",
        PYTHONPATH=str(tmp_path),
    ) == ["2", "2"]


def test_in_a_placement_group_it_is_what_the_task_has_of_its_bundle():
    assert driver("""
from hoplo.util import placement_group
from hoplo.util.scheduling_strategies import PlacementGroupSchedulingStrategy
hoplo.init(num_cpus=3)
group = placement_group([{"CPU": 3}])
inside = PlacementGroupSchedulingStrategy(group, 0)
print(hoplo.get(task.options(num_cpus=2, scheduling_strategy=inside).remote()))
print(hoplo.get(Actor.options(num_cpus=3, scheduling_strategy=inside).remote().number.remote()))
""") == ["2", "3"]


def test_what_the_user_says_stays():
    code = """
hoplo.init(num_cpus=2)
own = {"env_vars": {"OMP_NUM_THREADS": "7"}}
print(hoplo.get(task.options(num_cpus=2).remote()))
print(hoplo.get(task.options(num_cpus=2, runtime_env=own).remote()))
print(hoplo.get(Actor.options(num_cpus=2, runtime_env=own).remote().number.remote()))
"""
    assert driver(code, OMP_NUM_THREADS="5") == ["5", "7", "7"]


@pytest.mark.parametrize("imports", ["", "import numpy"], ids=["later", "by_the_zygote"])
def test_openblas_of_numpy_starts_as_many(imports):
    pytest.importorskip("numpy")
    told = driver(f"""
{imports}
{OPENBLAS}
hoplo.init(num_cpus=2)
asks = hoplo.remote(openblas)
def with_two():
    from hoplo import _threads
    _threads.use(2)
    return openblas()
own = {{"env_vars": {{"OMP_NUM_THREADS": "2"}}}}
print(hoplo.get(asks.remote()))
print(hoplo.get(hoplo.remote(max_calls=1)(with_two).remote()))
print(hoplo.get(asks.options(runtime_env=own).remote()))
""")
    if "[]" in told:
        pytest.skip("this numpy has another library")
    assert told == ["[1]", "[2]", "[2]"]
