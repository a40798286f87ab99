"""Environments whose workers run with a Python that the program names."""

import os
import re
import subprocess
import sys

import pytest

import hoplo
from hoplo.exceptions import RuntimeEnvSetupError

NODE = {"num_cpus": 2}


@hoplo.remote
def version(name):
    import importlib

    return importlib.import_module(name).VERSION


@hoplo.remote
def python():
    return sys.executable, sys.prefix


@hoplo.remote
class Actor:
    def version(self, name):
        import importlib

        return importlib.import_module(name).VERSION


@hoplo.remote
class AsyncActor:
    async def version(self, name):
        import importlib

        return importlib.import_module(name).VERSION


def error_of(command):
    task = python.options(runtime_env={"py_executable": command})
    with pytest.raises(RuntimeEnvSetupError) as caught:
        hoplo.get(task.remote(), timeout=50)
    return str(caught.value)


# ------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("/nowhere/python", "/nowhere/python cannot be started on node .*: No such file"),
        ("/etc/passwd", "/etc/passwd cannot be started on node .*: Permission denied"),
        ("true", "true is no Python that runs a program .*: it ended with status 0"),
        ("false", "it ended with status 1"),
    ],
)
def test_a_program_that_is_no_python(command, text):
    said = error_of(command)
    assert re.search(text, said), said


def test_a_python_of_another_minor_version(tmp_path):
    # It says of itself what one would; nobody has several on each machine.
    (tmp_path / "sitecustomize.py").write_text(
        "import platform\nplatform.python_version_tuple = lambda: ('3', '7', '1')\n"
    )
    old = f"env PYTHONPATH={tmp_path} {sys.executable}"
    said = error_of(old)
    version = ".".join(map(str, sys.version_info[:2]))
    assert f"runs CPython 3.7, and workers of this node need CPython {version}" in said, said


def test_a_python_that_breaks_hoplo(tmp_path):
    (tmp_path / "contextvars.py").write_text("raise RuntimeError('mine')\n")
    bad = f"env PYTHONPATH={tmp_path} {sys.executable}"
    said = error_of(bad)
    assert "cannot import hoplo (RuntimeError: mine)" in said, said


# ------------------------------------------------------------------------------------ py_executable


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """A virtual environment without hoplo, with one package of its own."""
    folder = tmp_path_factory.mktemp("bare") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = folder.glob("lib/*/site-packages")
    (site / "nurhier.py").write_text("VERSION = 'bare'\n")
    return folder


def test_workers_run_with_the_program_that_is_named(bare):
    env = {"py_executable": f"{bare}/bin/python"}
    executable, prefix = hoplo.get(python.options(runtime_env=env).remote(), timeout=20)
    assert (executable, prefix) == (f"{bare}/bin/python", str(bare))
    assert hoplo.get(version.options(runtime_env=env).remote("nurhier")) == "bare"
    actor = Actor.options(runtime_env=env).remote()
    assert hoplo.get(actor.version.remote("nurhier"), timeout=20) == "bare"
    loop = AsyncActor.options(runtime_env=env).remote()
    assert hoplo.get(loop.version.remote("nurhier"), timeout=20) == "bare"
    with pytest.raises(ModuleNotFoundError):
        hoplo.get(version.remote("nurhier"))


def test_a_command_with_arguments_that_does_not_become_the_python(bare, tmp_path):
    wrapper = tmp_path / "wrap"
    wrapper.write_text(f'#!/bin/sh\nexport WRAPPED=1\n{bare}/bin/python "$@"\nexit $?\n')
    wrapper.chmod(0o755)
    env = {"py_executable": f"{wrapper} -X dev"}

    @hoplo.remote(runtime_env=env, max_retries=0)
    def look(ends=False):
        if ends:
            os._exit(7)
        return os.environ["WRAPPED"], sys.flags.dev_mode, hoplo.get_runtime_context().runtime_env

    assert hoplo.get(look.remote(), timeout=20) == ("1", True, env)
    with pytest.raises(hoplo.exceptions.WorkerCrashedError, match="7"):
        hoplo.get(look.remote(True), timeout=20)


def test_what_a_task_in_another_python_finds_around_it(bare, tmp_path):
    env = {
        "py_executable": f"{bare}/bin/python",
        "env_vars": {"LEVEL": "own"},
        "working_dir": str(tmp_path),
    }
    (tmp_path / "neben.py").write_text("VERSION = 'beside'\n")

    @hoplo.remote
    def inner():
        return sys.prefix, os.environ["LEVEL"], os.path.exists("neben.py")

    @hoplo.remote(runtime_env=env)
    def outer():
        print("a line")
        return inner.remote(), version.remote("neben"), hoplo.put([1])

    refs = hoplo.get(outer.remote(), timeout=20)
    assert hoplo.get(list(refs), timeout=20) == [(str(bare), "own", True), "beside", [1]]
