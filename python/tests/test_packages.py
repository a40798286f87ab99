"""Runtime environments whose folders are packed: in a cluster, and with a variable on any node."""

import gc
import json
import os
import shutil
import sys
import zipfile

import pytest
from conftest import assert_nothing_left, eventually, run_driver

import hoplo
import hoplo._packages as packages
from hoplo._packing import PackingError
from hoplo.exceptions import DeserializationError, RuntimeEnvSetupError
from hoplo.runtime_env import RuntimeEnv


@pytest.fixture(scope="module", autouse=True)
def node():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOPLO_PACK", "1")
        context = hoplo.init(num_cpus=4)
        yield context
        hoplo.shutdown()
    gc.collect()
    assert_nothing_left()


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "projekt-ü"
    (folder / "inner").mkdir(parents=True)
    (folder / "mine.py").write_text(f"VALUE = 'first'  # {tmp_path}\n")
    (folder / "inner" / "__init__.py").write_text("VALUE = 'inner'\n")
    (folder / "daten-ß.txt").write_text("text")
    return folder


@hoplo.remote
def look(name="mine"):
    import importlib

    module = importlib.import_module(name)
    return module.VALUE, module.__file__, os.getcwd(), os.stat(os.getcwd()).st_ino


@hoplo.remote
def files():
    found = []
    for at, _, names in os.walk("."):
        found += [os.path.relpath(os.path.join(at, name)) for name in names]
    return sorted(name for name in found if "__pycache__" not in name)


@hoplo.remote
class Looker:
    def look(self, name):
        with open(name) as file:
            return file.read(), os.getcwd()


def there(folder, **more):
    return {"working_dir": str(folder), **more}


def package_of(folder):
    env = RuntimeEnv(working_dir=str(folder)).to_json()
    return packages.Package.of(json.loads(packages.packed(env, True))["working_dir"])


def on_node(node):
    return os.path.join(os.path.dirname(node["address"]), "packages")


# ------------------------------------------------------------------------------------ errors


def test_uris_that_do_not_work_yet(project):
    for field in ("working_dir", "py_modules"):
        uri = "s3://bucket/a.zip"
        with pytest.raises(ValueError, match=r"of URIs only file:// works.*Download it"):
            look.options(runtime_env={field: uri if field == "working_dir" else [uri]})
    with pytest.raises(ValueError, match="names another machine: write file:///path"):
        look.options(runtime_env={"working_dir": "file://host/a"})
    with pytest.raises(ValueError, match=r"is not, and is no \.zip file"):
        look.options(runtime_env={"working_dir": str(project / "mine.py")})
    with pytest.raises(TypeError, match="must be a list of patterns"):
        look.options(runtime_env=there(project, excludes="*.py"))


def test_a_folder_that_is_too_large_and_how_to_make_it_smaller(project, monkeypatch, capfd):
    (project / "data").mkdir()
    (project / "data" / "big").write_bytes(b"x" * 5000)
    monkeypatch.setattr(packages, "BYTES_MAX", 1000)
    with pytest.raises(ValueError, match=r"may take 1\.0 KB.*data/ \(5\.0 KB\).*excludes"):
        look.options(runtime_env=there(project)).remote()
    with pytest.raises(PackingError, match="py_modules"):
        look.options(runtime_env={"py_modules": [project]}).remote()
    with pytest.raises(PackingError, match=r"may take 1\.0 KB"):
        Looker.options(runtime_env=there(project)).remote()
    smaller = look.options(runtime_env=there(project, excludes=["/data/"]))
    assert hoplo.get(smaller.remote(), timeout=20)[0] == "first"
    monkeypatch.undo()
    monkeypatch.setattr(packages, "BYTES_WARNED", 1000)
    assert hoplo.get(look.options(runtime_env=there(project)).remote(), timeout=20)[0] == "first"
    assert " KB, which go to each node that runs a task with it" in capfd.readouterr().err


def test_a_link_to_the_outside(project):
    os.symlink("/etc/hostname", project / "host")
    with pytest.raises(PackingError, match="host is a link to /etc/hostname, outside"):
        look.options(runtime_env=there(project)).remote()


def test_a_package_that_cannot_be_unpacked_and_then_can(project, node):
    key = package_of(project).hash
    os.makedirs(on_node(node), exist_ok=True)
    in_its_place = os.path.join(on_node(node), key)
    with open(in_its_place, "w"):
        pass
    task = look.options(runtime_env=there(project))
    with pytest.raises(
        RuntimeEnvSetupError, match=f"{project.name}.*cannot be unpacked.*Not a dir"
    ):
        hoplo.get(task.remote(), timeout=20)
    actor = Looker.options(runtime_env=there(project)).remote()
    with pytest.raises(RuntimeEnvSetupError, match="cannot be unpacked"):
        hoplo.get(actor.look.remote("mine.py"), timeout=20)
    os.unlink(in_its_place)
    assert hoplo.get(task.remote(), timeout=20)[0] == "first"


def test_a_package_that_nobody_sent(project):
    env = {"working_dir": f"pkg:{'ab' * 16}:thing"}
    with pytest.raises(RuntimeEnvSetupError, match=r"package of thing .*nobody of this job"):
        hoplo.get(look.options(runtime_env=env).remote(), timeout=20)


def test_a_folder_that_is_gone_when_it_is_packed(project):
    task = look.options(runtime_env=there(project))
    shutil.rmtree(project)
    with pytest.raises(RuntimeEnvSetupError, match="is not there any more"):
        task.remote()


def test_an_environment_of_the_job_that_cannot_be_packed_begins_no_session(tmp_path):
    os.symlink("/etc", tmp_path / "out")
    code = """
import os, sys
os.environ["HOPLO_PACK"] = "1"
import hoplo
try:
    hoplo.init(num_cpus=1, runtime_env={"working_dir": sys.argv[1]})
except ValueError as error:
    print(error)
print(hoplo.is_initialized())
hoplo.init(num_cpus=1)
print(hoplo.get(hoplo.remote(lambda: "works").remote()))
"""
    out = run_driver(code, str(tmp_path)).stdout.splitlines()
    assert "out is a link to /etc" in out[0]
    assert out[1:] == ["False", "works"]


# ------------------------------------------------------------------------------------ what arrives


def test_the_package_is_used_not_the_folder(project, node):
    task = look.options(runtime_env=there(project))
    first = task.remote()
    value, file, cwd, _ = hoplo.get(first, timeout=20)
    assert value == "first"
    assert cwd.startswith(on_node(node))
    assert file.startswith(cwd)
    shutil.rmtree(project)
    assert hoplo.get(task.remote(), timeout=20)[0] == "first"


def test_workers_that_start_at_once_unpack_once(project, gate):
    @hoplo.remote(runtime_env=there(project))
    def started():
        import mine

        return gate.wait((os.stat(".").st_ino, mine.VALUE))

    refs = [started.remote() for _ in range(3)]
    eventually(lambda: len(set(gate.pids_arrived())) == 3, 20)
    gate.open()
    # Who unpacked it twice would have failed: no folder takes the place of one that is not empty.
    assert len(set(hoplo.get(refs, timeout=20))) == 1


def test_changed_content_is_another_package_and_the_same_content_the_same(project, tmp_path):
    first = package_of(project)
    assert package_of(project) == first
    copy = tmp_path / "copy" / project.name
    shutil.copytree(project, copy)
    assert package_of(copy) == first
    before = hoplo.get(look.options(runtime_env=there(project)).remote(), timeout=20)
    text = (project / "mine.py").read_text()
    (project / "mine.py").write_text(text.replace("first", "other"))  # of the same size
    assert package_of(project) != first
    after = hoplo.get(look.options(runtime_env=there(project)).remote(), timeout=20)
    assert (before[0], after[0]) == ("first", "other")
    assert before[3] != after[3]


def test_files_are_read_only_when_one_has_changed(project, monkeypatch):
    eventually(lambda: package_of(project) and _is_known(project), what="its files are old enough")
    monkeypatch.setattr(packages, "_export", lambda _: pytest.fail("it was packed again"))
    assert package_of(project)


def _is_known(project):
    return any(str(project) in str(key) for key in packages._known)


def test_what_is_excluded_does_not_arrive(project):
    (project / ".gitignore").write_text("*.log\n")
    for name in ("x.log", "y.bin", ".git/HEAD"):
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text(name)
    task = files.options(runtime_env=there(project, excludes=["*.bin"]))
    known = [".gitignore", "daten-ß.txt", "inner/__init__.py", "mine.py"]
    assert hoplo.get(task.remote(), timeout=20) == known


def test_an_empty_folder(tmp_path):
    assert hoplo.get(files.options(runtime_env=there(tmp_path)).remote(), timeout=20) == []


def test_a_large_package_goes_as_an_object(project):
    (project / "large").write_bytes(os.urandom(3 << 20))
    task = hoplo.remote(runtime_env=there(project))(lambda: open("large", "rb").read())
    assert hoplo.get(task.remote(), timeout=20) == (project / "large").read_bytes()


def test_an_archive_as_working_dir(tmp_path, project):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("top/mine.py", "VALUE = 'zipped'\n")
        file.writestr("top/data", "x")
    plain = files.options(runtime_env=there(path))
    assert hoplo.get(plain.remote(), timeout=20) == ["top/data", "top/mine.py"]
    stripped = look.options(runtime_env={"working_dir": f"file://{path}"})
    assert hoplo.get(stripped.remote(), timeout=20)[0] == "zipped"
    folder = look.options(runtime_env={"working_dir": f"file://{project}"})
    assert hoplo.get(folder.remote(), timeout=20)[0] == "first"


def test_py_modules_of_all_kinds(project, tmp_path, monkeypatch):
    wheel = tmp_path / "wheeled-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("wheeled/__init__.py", "VALUE = 'wheel'\n")
    (tmp_path / "neighbour.py").write_text("VALUE = 'neighbour'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import neighbour

    modules = [project / "inner", str(project / "mine.py"), wheel, neighbour]
    task = look.options(runtime_env={"py_modules": modules})
    told = hoplo.get([task.remote(name) for name in ("inner", "mine", "wheeled", "neighbour")])
    assert [one[0] for one in told] == ["inner", "first", "wheel", "neighbour"]
    assert all("/packages/" in one[1] for one in told)
    only = look.options(runtime_env={"py_modules": [project / "inner"]})
    with pytest.raises(ModuleNotFoundError, match="mine"):
        hoplo.get(only.remote("mine"), timeout=20)


def test_an_actor(project):
    actor = Looker.options(runtime_env=there(project)).remote()
    text, folder = hoplo.get(actor.look.remote("daten-ß.txt"), timeout=20)
    assert text == "text"
    assert "/packages/" in folder


# ------------------------------------------------------------------------------------ nested


def test_nested_tasks_inherit_what_the_program_packed(project):
    @hoplo.remote(runtime_env=there(project))
    def outer():
        inner = look.options(runtime_env={"env_vars": {"A": "1"}})
        actor = Looker.remote()
        env = hoplo.get_runtime_context().runtime_env
        passed_on = look.options(runtime_env=env)
        told = [inner.remote(), passed_on.remote(), actor.look.remote("mine.py")]
        return env, hoplo.get(told)

    env, (inner, passed_on, method) = hoplo.get(outer.remote(), timeout=20)
    assert inner == passed_on
    assert inner[0] == "first"
    assert method[1] == inner[2]
    assert packages.Package.of(env["working_dir"]).name == project.name


def test_functions_and_classes_that_are_sent_name_packages(project):
    folder = str(project)

    @hoplo.remote
    def calls(task, actors):
        shutil.rmtree(folder)
        again = task.options(num_cpus=0.5)
        values = hoplo.get([task.remote(), again.remote()])
        text, _ = hoplo.get(actors.options(num_cpus=0.5).remote().look.remote("daten-ß.txt"))
        return [value[0] for value in values], text

    task, actors = (one.options(runtime_env=there(project)) for one in (look, Looker))
    assert hoplo.get(calls.remote(task, actors), timeout=20) == (["first", "first"], "text")


# ------------------------------------------------------------------------------------ elsewhere


def test_a_module_that_only_the_program_has(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "only_here.py").write_text("class Thing:\n    pass\n")
    import only_here

    try:
        with pytest.raises(DeserializationError, match=r"node \w{6}.*'working_dir': '\.'"):
            hoplo.get(hoplo.remote(lambda thing: thing).remote(only_here.Thing()), timeout=20)
    finally:
        del sys.modules["only_here"]
