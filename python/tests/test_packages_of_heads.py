"""What a node of a cluster does with environments, shown on a head: it packs without being told."""

import os

import pytest
from conftest import run_driver

NODE = None

USES_A_FOLDER = """
import os, sys
import hoplo

hoplo.init(address="auto", runtime_env={"working_dir": sys.argv[1]})


@hoplo.remote
def look():
    import mine

    return os.getcwd(), mine.VALUE


folder, value = hoplo.get(look.remote(), timeout=20)
print("/packages/" in folder, value)
"""

LOSES_ITS_FOLDER = """
import os, sys
import hoplo

os.chdir(sys.argv[1])
hoplo.init(address="auto")
os.rmdir(sys.argv[1])


@hoplo.remote(num_cpus=1)
def works(_):
    return os.getpid()


for level in "123":
    env = {"env_vars": {"LEVEL": level}}
    hoplo.get(works.options(runtime_env=env).remote(0), timeout=20)
hoplo.shutdown()
"""

OF_ANOTHER_PYTHON = """
import hoplo._texts
hoplo._texts.PYTHON = "3.1"
import hoplo

hoplo.init(address="auto")
try:
    hoplo.get(hoplo.remote(lambda: 1).remote(), timeout=20)
except hoplo.exceptions.RuntimeEnvSetupError as error:
    print(error)
"""


@pytest.fixture
def project(tmp_path):
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "mine.py").write_text("VALUE = 'packed'\n")
    return tmp_path / "project"


def test_a_head_packs(head, project):
    head("--num-cpus", "2")
    assert run_driver(USES_A_FOLDER, str(project)).stdout == "True packed\n"
    # The next program finds it unpacked.
    assert run_driver(USES_A_FOLDER, str(project)).stdout == "True packed\n"


def test_a_worker_that_misses_the_programs_folder_works_and_one_says_so(head, tmp_path):
    folder = tmp_path / "gone"
    folder.mkdir()
    head("--num-cpus", "4")
    told = run_driver(LOSES_ITS_FOLDER, str(folder)).stderr
    assert told.count(f"the program's folder {folder} is not on this machine") == 1
    assert "runtime_env={'working_dir': '.'}" in told


def test_a_program_of_another_python_is_refused(head):
    import sys

    head("--num-cpus", "1")
    text = run_driver(OF_ANOTHER_PYTHON).stdout
    assert "the program runs on Python 3.1, and workers of this node" in text
    assert f"on Python {sys.version_info.major}.{sys.version_info.minor}" in text
    assert os.uname().nodename in text
