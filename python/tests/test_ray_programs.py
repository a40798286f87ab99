"""Programs written for Ray run as they are, and print what Ray 2.60 prints.

`ray_programs/` holds them. Lines at the end of each, behind `# > `, are what it prints: they were
compared with Ray itself. Each runs by `python -m hoplo.ray`, and unchanged.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import TREE, assert_nothing_left

NODE = None

PROGRAMS = sorted((Path(__file__).parent / "ray_programs").glob("*.py"))
PROGRAM_SECONDS_MAX = 60


def said_by(program: Path) -> str:
    """What it says that it prints."""
    lines = program.read_text().splitlines()
    return "".join(f"{line[4:]}\n" for line in lines if line.startswith("# > "))


def run(*arguments: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=PROGRAM_SECONDS_MAX,
        cwd=folder,
        env={**os.environ, **variables},
    )


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)
def test_a_program_written_for_ray_runs_and_prints_what_it_prints_there(
    program: Path, tmp_path: Path
) -> None:
    assert said_by(program)
    done = run("-m", "hoplo.ray", str(program), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == said_by(program), done.stderr
    assert_nothing_left()


def test_there_are_as_many_programs_as_we_say() -> None:
    assert len(PROGRAMS) >= 30


def test_the_installed_alias_is_the_same_as_the_folder_that_the_command_uses() -> None:
    ours = TREE / "python" / "hoplo" / "ray" / "_as_ray" / "ray" / "__init__.py"
    assert (TREE / "alias" / "ray" / "__init__.py").read_text() == ours.read_text()


def test_with_the_alias_every_program_of_that_python_is_one_of_ours(tmp_path: Path) -> None:
    program = PROGRAMS[0].parent / "a_queue.py"
    done = run(str(program), folder=tmp_path, PYTHONPATH=str(TREE / "alias"))
    assert done.returncode == 0, done.stderr
    assert done.stdout == said_by(program)


def test_a_program_may_say_import_hoplo_ray(tmp_path: Path) -> None:
    source = (PROGRAMS[0].parent / "named_actors.py").read_text()
    for theirs, ours in (
        ("import ray\n", "import hoplo.ray as ray\n"),
        ("from ray.", "from hoplo.ray."),
    ):
        assert theirs in source
        source = source.replace(theirs, ours)
    (tmp_path / "program.py").write_text(source)
    done = run("program.py", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == said_by(tmp_path / "program.py")


def test_workers_import_ray_as_the_program_does(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import ray\nfrom ray.util.queue import Queue\nfrom ray.exceptions import RayError\n"
        "@ray.remote\ndef f():\n    import ray.util.multiprocessing\n    return Queue, RayError\n"
    )
    (tmp_path / "program.py").write_text(
        "import mine, ray, hoplo\n"
        "queue, error = ray.get(mine.f.remote())\n"
        "print(queue is mine.Queue is hoplo.util.Queue, error is hoplo.exceptions.HoploError)\n"
    )
    done = run("-m", "hoplo.ray", "program.py", folder=tmp_path)
    assert (done.stdout, done.returncode) == ("True True\n", 0), done.stderr


def test_workers_whose_hoplo_lies_elsewhere_import_ray_from_there(tmp_path: Path) -> None:
    code = (
        "import sys; sys.path.insert(1, '/another/node/hoplo/ray/_as_ray')\n"
        "import hoplo\n"
        "@hoplo.remote\n"
        "def f():\n    import ray\n    return ray.__name__\n"
        "print(hoplo.get(f.remote()))"
    )
    done = run("-c", code, folder=tmp_path)
    assert done.stdout == "hoplo.ray\n", done.stderr


def test_arguments_and_the_main_module_are_the_programs_own(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import sys, ray, __main__\nX = 5\n@ray.remote\ndef f():\n    return X\n"
        "if __name__ == '__main__':\n"
        "    print(sys.argv, __main__.X, __file__, ray.get(f.remote()))\n"
        "    sys.exit(7)\n"
    )
    done = run("-m", "hoplo.ray", "program.py", "--ask", "3", folder=tmp_path)
    assert done.stdout == "['program.py', '--ask', '3'] 5 program.py 5\n", done.stderr
    assert done.returncode == 7


def test_a_module_and_a_line_of_code_run_as_well(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import ray, sys\nprint(ray.__name__, sys.argv[1:])\n")
    done = run("-m", "hoplo.ray", "-m", "mine", "a", folder=tmp_path)
    assert done.stdout == "hoplo.ray ['a']\n", done.stderr
    done = run(
        "-m",
        "hoplo.ray",
        "-c",
        "import ray, sys; print(ray.__name__, sys.argv)",
        "b",
        folder=tmp_path,
    )
    assert done.stdout == "hoplo.ray ['-c', 'b']\n", done.stderr


@pytest.mark.parametrize("arguments", [[], ["-m"], ["-c"], ["missing.py"]])
def test_what_cannot_be_run_is_said_in_one_line(arguments: list[str], tmp_path: Path) -> None:
    done = run("-m", "hoplo.ray", *arguments, folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("hoplo.ray: ")
    assert done.stderr.count("\n") == 1


def test_options_and_variables_without_meaning_are_said_once_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import ray\n"
        "for _ in range(2):\n"
        "    ray.init(num_cpus=1, local_mode=True, dashboard_port=8265, include_dashboard=False,\n"
        "             configure_logging=True, logging_level='info')\n"
        "    ray.shutdown()\n"
    )
    done = run("-m", "hoplo.ray", "program.py", folder=tmp_path, RAY_LOG_TO_STDERR="1")
    assert done.returncode == 0, done.stderr
    assert done.stderr == "hoplo: no effect here: dashboard_port=, local_mode=, RAY_LOG_TO_STDERR\n"


def test_nothing_is_said_where_everything_has_an_effect(tmp_path: Path) -> None:
    done = run("-m", "hoplo.ray", "-c", "import ray; ray.init(num_cpus=1)", folder=tmp_path)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def test_ray_address_is_where_to_join(tmp_path: Path) -> None:
    done = run(
        "-m", "hoplo.ray", "-c", "import ray; ray.get(ray.put(1))",
        folder=tmp_path, RAY_ADDRESS=str(tmp_path / "nowhere"),
    )  # fmt: skip
    assert done.returncode == 1
    assert "ConnectionFailedError" in done.stderr
    assert "nowhere" in done.stderr


def test_an_address_of_rays_client_says_how_to_join(tmp_path: Path) -> None:
    code = "import ray; ray.init('ray://head:10001')"
    done = run("-m", "hoplo.ray", "-c", code, folder=tmp_path)
    assert done.returncode == 1
    assert "hoplo has no client of ray://; init(address='HOST:PORT') joins" in done.stderr


def test_records_of_logging_say_which_task_they_are_of_in_all_processes(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import logging, ray\n"
        "config = ray.LoggingConfig(encoding='JSON', log_level='INFO',\n"
        "                           additional_log_standard_attrs=['name'])\n"
        "ray.init(num_cpus=1, logging_config=config, runtime_env={'env_vars': {'A': 'b'}})\n"
        "@ray.remote\n"
        "def f():\n"
        "    logging.getLogger('mine').info('in a %s', 'task')\n"
        "    logging.debug('not shown')\n"
        "ref = f.remote()\n"
        "ray.get(ref)\n"
        "logging.getLogger('mine').warning('in the driver')\n"
        "print(ref.task_id().hex(), ray.get_runtime_context().get_job_id())\n"
    )
    done = run("-m", "hoplo.ray", "program.py", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    task, job = done.stdout.splitlines()[-1].split()
    both = done.stdout + done.stderr
    # Bare lines: whoever parses what the driver prints reads those of workers, too.
    records = [json.loads(line) for line in both.splitlines() if '"levelname"' in line]
    by_text = {record["message"]: record for record in records}
    assert set(by_text) == {"in a task", "in the driver"}
    inside, outside = by_text["in a task"], by_text["in the driver"]
    assert (inside["task_id"], inside["task_name"], inside["job_id"]) == (task, "f", job)
    assert (inside["levelname"], inside["name"], inside["lineno"]) == ("INFO", "mine", 7)
    assert (inside["task_func_name"], "task_func_name" in outside) == ("f", False)
    assert inside["process"] != outside["process"]
    assert (outside["job_id"], outside.get("task_id"), outside["levelname"]) == (
        job,
        None,
        "WARNING",
    )


def test_records_of_several_actors_that_say_the_same_are_all_there(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import logging, ray\n"
        "ray.init(num_cpus=2, logging_config=ray.LoggingConfig(encoding='JSON'))\n"
        "@ray.remote\n"
        "class A:\n"
        "    def m(self):\n"
        "        logging.info('the same')\n"
        "actors = [A.remote() for _ in range(3)]\n"
        "ray.get([actor.m.remote() for actor in actors])\n"
    )
    done = run("-m", "hoplo.ray", "program.py", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in done.stderr.splitlines() if "the same" in line]
    assert len({record["actor_id"] for record in records}) == 3


def test_a_bar_in_a_task_prints_whole_lines(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import ray\n"
        "from ray.experimental import tqdm_ray\n"
        "@ray.remote\n"
        "def f():\n"
        "    return sum(tqdm_ray.tqdm(range(4), desc='adding'))\n"
        "print(ray.get(f.remote()))\n"
        "bar = tqdm_ray.tqdm(desc='later', total=2, flush_interval_s=0)\n"
        "bar.update()\n"
        "bar.set_description('sooner')\n"
        "bar.update()\n"
        "bar.close()\n"
        "bar.close()\n"
    )
    done = run("-m", "hoplo.ray", "program.py", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = (done.stdout + done.stderr).splitlines()
    assert "6" in lines
    assert [line for line in lines if "adding  [####" in line and " 4/4 " in line]
    assert [line for line in lines if line.startswith("sooner  [####") and " 2/2 " in line]
    assert "later" not in done.stderr
    assert "hoplo-bar" not in done.stderr
