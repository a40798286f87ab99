"""runtime_env: variables, folder and modules of workers."""

import os
import subprocess
import zipfile

import pytest
from conftest import run_driver

import hoplo
from hoplo.exceptions import HoploError, RuntimeEnvSetupError
from hoplo.runtime_env import RuntimeEnv, merged

NODE = {"num_cpus": 2, "runtime_env": {"env_vars": {"JOB": "job", "LEVEL": "job"}}}


@hoplo.remote
def variables(*names):
    return [os.environ.get(name) for name in names]


@hoplo.remote
def imported(name):
    import importlib

    return importlib.import_module(name).VALUE


@hoplo.remote
class Actor:
    def variables(self, *names):
        return [os.environ.get(name) for name in names]


@pytest.fixture
def package(tmp_path):
    folder = tmp_path / "src" / "mypackage"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("VALUE = 'package'\n")
    (folder / "inner.py").write_text("VALUE = 'inner'\n")
    (tmp_path / "src" / "mymodule.py").write_text("VALUE = 'module'\n")
    return folder


# ------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("env", "error", "text"),
    [
        ("env", TypeError, "must be a dict such as"),
        ({1: 2}, TypeError, "names as its keys"),
        ({"env_var": {}}, TypeError, "no field 'env_var'; did you mean 'env_vars'"),
        ({"zzz": 1}, TypeError, "it knows env_vars, working_dir, py_modules"),
        ({"container": {}}, ValueError, r"\['container'\] comes later; env_vars"),
        ({"env_vars": ["A"]}, TypeError, r"\['env_vars'\] must be a dict"),
        ({"env_vars": {"A": 1}}, TypeError, r"write str\(1\)"),
        ({"env_vars": {"A=B": "1"}}, ValueError, "A=B"),
        ({"env_vars": {"": "1"}}, ValueError, "no process can"),
        ({"env_vars": {"A": "x\ud800"}}, ValueError, r"\['A'\] must be text .* at place 1"),
        ({"env_vars": {"\ud800": "x"}}, ValueError, r"must be text that stands for bytes"),
        ({"working_dir": "/\ud800"}, ValueError, r"\['working_dir'\] must be text"),
        ({"working_dir": "/a\0b"}, ValueError, r"\['working_dir'\]: no path has a zero byte"),
        ({"working_dir": "/nowhere"}, ValueError, "existing folder: /nowhere is not"),
        ({"working_dir": 3}, TypeError, "must hold paths"),
        ({"working_dir": "s3://bucket"}, ValueError, "other URIs come later"),
        ({"py_modules": "mymodule"}, TypeError, "must be a list"),
        ({"py_modules": ["/nowhere"]}, ValueError, "/nowhere does not exist"),
        ({"py_modules": [3]}, TypeError, "must hold paths"),
        ({"worker_process_setup_hook": 3}, TypeError, "must be a function or the name"),
        ({"worker_process_setup_hook": "f"}, ValueError, "a name such as 'module.function'"),
        ({"config": 3}, TypeError, r"\['config'\] must be a dict"),
    ],
)
def test_a_wrong_environment(env, error, text):
    with pytest.raises(error, match=text):
        variables.options(runtime_env=env)
    with pytest.raises(error, match=text):
        Actor.options(runtime_env=env)


def test_a_folder_that_is_gone_when_the_worker_starts(tmp_path):
    folder = tmp_path / "gone"
    folder.mkdir()
    there = variables.options(runtime_env={"working_dir": str(folder)})
    actor_there = Actor.options(runtime_env={"working_dir": str(folder)})
    folder.rmdir()
    with pytest.raises(RuntimeEnvSetupError, match="gone"):
        hoplo.get(there.remote("A"), timeout=20)
    with pytest.raises(HoploError, match="gone"):
        hoplo.get(actor_there.remote().variables.remote("A"), timeout=20)
    assert hoplo.get(variables.remote("JOB")) == ["job"]


# ------------------------------------------------------------------------------------ variables


def test_variables_of_the_job():
    assert hoplo.get(variables.remote("JOB", "LEVEL")) == ["job", "job"]
    assert hoplo.get(Actor.remote().variables.remote("JOB")) == ["job"]
    assert "JOB" not in os.environ


@pytest.mark.near
def test_values_and_folders_that_are_no_utf8_were_refused(tmp_path):
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/odd-\xff")
    os.mkdir(folder)
    given = {"ODD": "a\udcff", "ODD\udcfe": "é", "PLAIN": "é"}

    @hoplo.remote(runtime_env={"env_vars": given, "working_dir": folder})
    def look():
        context = hoplo.get_runtime_context()
        got = {name: os.environ.get(name) for name in given}
        return got, os.getcwd(), context.runtime_env, hoplo.get(inner.remote())

    @hoplo.remote
    def inner():
        return os.environb[b"ODD"]

    env = {"env_vars": {"JOB": "job", "LEVEL": "job", **given}, "working_dir": folder}
    assert hoplo.get(look.remote()) == (given, folder, env, b"a\xff")


@pytest.mark.near
def test_a_name_in_braces_stands_for_what_the_node_has():
    given = {
        "LONGER": "/opt/bin:${PATH}:end",
        "NOTHING": "a${NO_SUCH_NAME}b",
        "PLAIN": "$PATH {PATH} ${} $",
    }
    own = variables.options(runtime_env={"env_vars": given})
    path = os.environ["PATH"]
    expected = [f"/opt/bin:{path}:end", "ab", "$PATH {PATH} ${} $"]
    assert hoplo.get(own.remote(*given)) == expected


def test_a_variable_with_which_linux_starts_no_program_is_refused():
    most = "x" * (128 * 1024 - len("BIG=") - 1)

    @hoplo.remote(runtime_env={"env_vars": {"BIG": most}})
    def starts():
        return subprocess.run(["true"], check=False).returncode

    assert hoplo.get(starts.remote()) == 0
    with pytest.raises(ValueError, match=r"\['BIG'\] takes 131072 bytes .* may take 131071"):
        starts.options(runtime_env={"env_vars": {"BIG": most + "x"}})


def test_variables_of_a_task_on_top_of_the_jobs():
    own = variables.options(runtime_env={"env_vars": {"LEVEL": "task", "OWN": "1"}})
    assert hoplo.get(own.remote("JOB", "LEVEL", "OWN")) == ["job", "task", "1"]
    assert hoplo.get(variables.remote("LEVEL", "OWN")) == ["job", None]


def test_variables_of_an_actor():
    actor = Actor.options(runtime_env={"env_vars": {"LEVEL": "actor"}}).remote()
    assert hoplo.get(actor.variables.remote("JOB", "LEVEL")) == ["job", "actor"]


def test_a_task_called_by_a_task_inherits():
    @hoplo.remote(runtime_env={"env_vars": {"LEVEL": "outer", "OUTER": "1"}})
    def outer():
        own = variables.options(runtime_env={"env_vars": {"LEVEL": "inner"}})
        return hoplo.get([variables.remote("LEVEL", "OUTER"), own.remote("LEVEL", "OUTER")])

    assert hoplo.get(outer.remote()) == [["outer", "1"], ["inner", "1"]]


def test_workers_are_kept_apart_by_environment():
    @hoplo.remote
    def pid():
        return os.getpid(), os.environ.get("LEVEL")

    pids = {}
    for level in ("a", "b", "a", "b"):
        one = pid.options(runtime_env={"env_vars": {"LEVEL": level}})
        pids.setdefault(level, set()).update(hoplo.get([one.remote() for _ in range(10)]))
    assert not {p for p, _ in pids["a"]} & {p for p, _ in pids["b"]}
    assert {seen for _, seen in pids["a"]} == {"a"}


def test_the_context_tells_the_environment():
    @hoplo.remote(runtime_env={"env_vars": {"LEVEL": "task"}})
    def asked():
        return hoplo.get_runtime_context().runtime_env

    assert hoplo.get(asked.remote())["env_vars"] == {"JOB": "job", "LEVEL": "task"}


def test_how_environments_merge():
    outer = RuntimeEnv(env_vars={"A": "1", "B": "1"}).to_json()
    inner = RuntimeEnv(env_vars={"B": "2"}).to_json()
    assert merged(outer, inner) == RuntimeEnv(env_vars={"A": "1", "B": "2"}).to_json()
    assert merged(None, inner) == inner
    assert merged(outer, None) == outer
    assert merged(None, None) is None


def test_an_environment_made_of_another_one_is_the_same(package):
    env = RuntimeEnv(py_modules=[package, package.parent / "mymodule.py"], excludes=["*.bin"])
    again = RuntimeEnv(**env)
    assert again == env
    assert again.to_json() == env.to_json()
    assert f'"py_modules":["{package.parent}"]' in env.to_json()


# ------------------------------------------------------------------------------------ files


@pytest.mark.near
def test_working_dir(tmp_path, package):
    folder = package.parent

    @hoplo.remote(runtime_env={"working_dir": str(folder)})
    def here():
        import mymodule

        return os.getcwd(), mymodule.VALUE

    assert hoplo.get(here.remote()) == (str(folder), "module")

    @hoplo.remote
    def elsewhere():
        return os.getcwd()

    assert hoplo.get(elsewhere.remote()) == os.getcwd()


def test_py_modules(package):
    env = {"py_modules": [str(package), package.parent / "mymodule.py"]}
    there = imported.options(runtime_env=env)
    assert hoplo.get([there.remote("mypackage"), there.remote("mypackage.inner")]) == [
        "package",
        "inner",
    ]
    assert hoplo.get(there.remote("mymodule")) == "module"
    with pytest.raises(ModuleNotFoundError, match="mypackage"):
        hoplo.get(imported.remote("mypackage"))


def test_py_modules_of_a_module_object(package, monkeypatch):
    monkeypatch.syspath_prepend(str(package.parent))
    import mypackage.inner

    there = imported.options(runtime_env={"py_modules": [mypackage.inner]})
    assert hoplo.get(there.remote("mypackage.inner")) == "inner"


def test_py_modules_of_a_zip(tmp_path):
    path = tmp_path / "packed.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("packed.py", "VALUE = 'zip'\n")
    there = imported.options(runtime_env={"py_modules": [path]})
    assert hoplo.get(there.remote("packed")) == "zip"


# ------------------------------------------------------------------------------------ too large


def test_an_environment_that_killed_the_zygote_is_refused_where_it_is_asked_for():
    huge = {"env_vars": {f"A{i}": "x" * 100_000 for i in range(20)}}
    with pytest.raises(ValueError, match=r"runtime_env takes 20\d+ bytes.*'env_vars'.*262144"):
        variables.options(runtime_env=huge)
    with pytest.raises(ValueError, match="put large values into a file"):
        Actor.options(runtime_env=huge)
    assert hoplo.get(variables.remote("JOB")) == ["job"]


def test_environments_that_are_too_large_together_are_refused_and_bystanders_are_not():
    def large(name):
        return {"env_vars": {name + half: "x" * (100 << 10) for half in "12"}}

    @hoplo.remote(runtime_env=large("A"))
    def outer():
        assert len(os.environ["A1"]) == len(os.environ["A2"]) == 100 << 10
        return hoplo.get(variables.options(runtime_env=large("B")).remote("B"))

    with pytest.raises(ValueError, match="merged with that of the job and of the caller"):
        hoplo.get(outer.remote())
    bystanders = [variables.remote("JOB") for _ in range(10)]
    assert hoplo.get(bystanders) == [["job"]] * 10


# ------------------------------------------------------------------------------------ set up


def test_each_worker_calls_the_hook_before_anything_else():
    program = """
import os
import hoplo

def set_up():
    os.environ["SET_UP_BY"] = "a function"

hoplo.init(num_cpus=1, runtime_env={"worker_process_setup_hook": set_up})

@hoplo.remote
def told():
    return os.environ["SET_UP_BY"]

@hoplo.remote
class Actor:
    def told(self):
        return os.environ["SET_UP_BY"]

print(hoplo.get([told.remote(), Actor.remote().told.remote()]))
"""
    assert run_driver(program).stdout == "['a function', 'a function']\n"


def test_a_hook_may_be_named_and_one_that_fails_says_so(fresh_modules):
    (fresh_modules / "hooks.py").write_text(
        "import os\ndef by_name(): os.environ['SET_UP_BY'] = 'a name'\n"
        "def fails(): raise ValueError('no such license')\n"
    )
    program = """
import os
import sys
import hoplo

env = {"py_modules": [os.path.join(sys.argv[1], "hooks.py")], "config": {"eager_install": True}}
hoplo.init(num_cpus=1, runtime_env=env)

@hoplo.remote(max_retries=0)
def told():
    return os.environ["SET_UP_BY"]

by_name = {"worker_process_setup_hook": "hooks.by_name"}
print(hoplo.get(told.options(runtime_env=by_name).remote()))
fails = {"worker_process_setup_hook": "hooks.fails"}
try:
    hoplo.get(told.options(runtime_env=fails).remote(), timeout=40)
except hoplo.exceptions.HoploError as error:
    print(type(error).__name__, "no such license" in str(error) or error)
"""
    out = run_driver(program, str(fresh_modules)).stdout.splitlines()
    assert out[0] == "a name"
    assert out[1] == "WorkerCrashedError True"


@pytest.fixture
def fresh_modules(tmp_path):
    folder = tmp_path / "modules"
    folder.mkdir()
    return folder
