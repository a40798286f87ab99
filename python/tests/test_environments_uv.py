"""Environments whose packages `uv` installs. Wheels are made here; `make dev` installs uv."""

import os
import shutil
import sys

import pytest
from conftest import run_driver
from wheels import wheel

import hoplo
from hoplo.exceptions import RuntimeEnvSetupError

NODE = {"num_cpus": 2}


@hoplo.remote
def look(name):
    import importlib

    return importlib.import_module(name).VERSION, os.path.basename(sys.prefix)


@hoplo.remote
class Actor:
    async def look(self, name):
        import importlib

        return importlib.import_module(name).VERSION


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheels")
    wheel(folder, "lonely")
    wheel(folder, "needy", needs="lonely==1.0")
    wheel(folder, "hungry", needs="absentee")
    return folder


def uv(folder, *packages, more=(), **fields):
    options = ["--no-index", "--no-cache", "--find-links", str(folder), *more]
    return {"uv": {"packages": list(packages), "uv_pip_install_options": options, **fields}}


def test_a_package_that_is_nowhere(wheels):
    env = uv(wheels, "absentee==3")
    with pytest.raises(RuntimeEnvSetupError) as caught:
        hoplo.get(look.options(runtime_env=env).remote("absentee"), timeout=50)
    text = str(caught.value)
    assert "uv pip install absentee==3 failed at node" in text, text
    assert "absentee was not found in the provided package locations" in " ".join(text.split()), (
        text
    )


def test_requirements_that_do_not_fit_each_other(wheels):
    env = uv(wheels, "hungry", more=["--no-deps"], uv_check=True)
    with pytest.raises(RuntimeEnvSetupError, match="requires `absentee`, but it's not installed"):
        hoplo.get(look.options(runtime_env=env).remote("hungry"), timeout=50)


@pytest.mark.near
def test_a_version_of_uv_that_cannot_be_had(wheels, monkeypatch):
    env = uv(wheels, "lonely", uv_version="==0.0.0.1")
    code = f"""
import hoplo
@hoplo.remote(runtime_env={env!r})
def f(): pass
try:
    hoplo.get(f.remote(), timeout=50)
except hoplo.exceptions.RuntimeEnvSetupError as error:
    print(error)
"""
    said = run_driver(code, env={**os.environ, "PIP_NO_INDEX": "1"}).stdout
    assert "No matching distribution found for uv==0.0.0.1" in said, said


@pytest.mark.near
def test_a_node_without_uv_says_how_to_get_it(wheels, tmp_path):
    # Its Python finds no uv, and no folder of PATH has one.
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as util, os\n"
        "find = util.find_spec\n"
        "util.find_spec = lambda name, *more: None if name == 'uv' else find(name, *more)\n"
    )
    code = f"""
import os, hoplo
os.environ["PATH"] = "/nowhere"
hoplo.init(num_cpus=1)
@hoplo.remote(runtime_env={uv(wheels, "lonely")!r})
def f(): pass
try:
    hoplo.get(f.remote(), timeout=50)
except hoplo.exceptions.RuntimeEnvSetupError as error:
    print(error)
"""
    said = run_driver(code, env={**os.environ, "PYTHONPATH": str(tmp_path)}).stdout
    assert "uv is not on node" in said, said
    assert "-m pip install uv`, or give 'uv_version'" in said, said


def test_tasks_and_actors_with_packages_that_uv_installed(wheels):
    env = uv(wheels, "needy", uv_check=True)
    task = look.options(runtime_env=env)
    assert hoplo.get(task.remote("lonely"), timeout=50) == ("1.0", "venv")
    actor = Actor.options(runtime_env=env).remote()
    assert hoplo.get(actor.look.remote("needy"), timeout=20) == "1.0"


@pytest.mark.near
def test_the_uv_of_the_path_will_do(wheels, tmp_path):
    from importlib.metadata import files

    (own,) = (it.locate() for it in files("uv") if it.name == "uv")
    os.symlink(own, tmp_path / "uv")
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as util\n"
        "find = util.find_spec\n"
        "util.find_spec = lambda name, *more: None if name == 'uv' else find(name, *more)\n"
    )
    code = f"""
import hoplo
@hoplo.remote(runtime_env={uv(wheels, "lonely", more=["--offline"])!r})
def f():
    import lonely
    return lonely.VERSION
print(hoplo.get(f.remote(), timeout=50))
"""
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "PATH": path}
    assert shutil.which("uv", path=path) == str(tmp_path / "uv")
    assert run_driver(code, env=env).stdout == "1.0\n"
