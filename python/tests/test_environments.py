"""Environments whose packages `pip` installs. Wheels are made here: nothing is downloaded."""

import os
import shutil
import signal
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import command, eventually, run_driver
from wheels import wheel

import hoplo
from hoplo.exceptions import RuntimeEnvSetupError
from hoplo.runtime_env import RuntimeEnv, merged, normalized

NODE = {"num_cpus": 2}


@hoplo.remote
def version(name):
    import importlib

    return importlib.import_module(name).VERSION


@hoplo.remote
def python():
    return sys.executable, sys.prefix, os.getpid()


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


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheels")
    for number in ("1.0", "2.0"):
        wheel(folder, "lonely", number)
    wheel(folder, "needy", needs="lonely==1.0")
    wheel(folder, "hungry", needs="absentee")
    return folder


@pytest.fixture
def base():
    """A folder for sessions with a short name, as sockets need one."""
    with tempfile.TemporaryDirectory(prefix="hoplo-base-") as folder:
        yield Path(folder)


def pip(folder, *packages, **more):
    options = ["--no-index", "--no-cache-dir", "--find-links", str(folder)]
    return {"pip": {"packages": list(packages), "pip_install_options": options, **more}}


def home():
    return Path(os.environ["HOPLO_TMPDIR"]) / "environments"


def built():
    return {path.parent for path in home().glob("*/built.json")}


def error_of(function, *args, **options):
    with pytest.raises(RuntimeEnvSetupError) as caught:
        hoplo.get(function.options(**options).remote(*args), timeout=50)
    return str(caught.value)


# ------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("env", "error", "text"),
    [
        ({"pip": 3}, TypeError, r"\['pip'\] must be a list of requirements, the path"),
        ({"pip": [3]}, TypeError, r"\['packages'\] must hold text, not 3"),
        ({"pip": ["a\nb"]}, ValueError, "must be one line"),
        ({"pip": [" "]}, ValueError, "has an empty entry"),
        ({"pip": "/nowhere.txt"}, ValueError, r"requirements file /nowhere.txt cannot be read: No"),
        ({"pip": {}}, ValueError, "lacks 'packages'"),
        ({"pip": {"packages": 3}}, TypeError, r"\['packages'\] must be a list"),
        ({"pip": {"packages": [], "uv_check": True}}, ValueError, "no field 'uv_check'; it knows"),
        ({"pip": {"packages": ["a"], "pip_check": 1}}, TypeError, "must be True or False, not 1"),
        ({"pip": {"packages": ["a"], "pip_version": "22"}}, ValueError, "such as '==1.2', not"),
        ({"pip": {"packages": ["a"], "pip_install_options": "-q"}}, TypeError, "such as .'--no-in"),
        ({"uv": ["a"], "pip": ["b"]}, ValueError, "has pip and uv, each of which .* keep one"),
        ({"uv": {"packages": ["a"], "pip_check": True}}, ValueError, "no field 'pip_check'"),
        ({"py_executable": 3}, TypeError, "must be the path of a Python, or a command"),
        ({"py_executable": " "}, ValueError, "has an empty entry"),
        ({"py_executable": "python 'x"}, ValueError, "is no command: No closing quotation"),
        ({"py_executable": "p", "pip": ["a"]}, ValueError, "has pip and py_executable"),
        ({"conda": "env"}, ValueError, "no conda environments: name the packages with 'pip' or"),
        ({"config": {"setup_timeout_seconds": 0}}, ValueError, "must be above 0, or -1"),
        ({"config": {"setup_timeout_seconds": "1"}}, TypeError, "a whole number of seconds"),
    ],
)
def test_a_wrong_environment(env, error, text):
    with pytest.raises(error, match=text):
        python.options(runtime_env=env)
    with pytest.raises(error, match=text):
        Actor.options(runtime_env=env)


def test_what_users_may_write(tmp_path):
    file = tmp_path / "requirements.txt"
    file.write_text("# mine\n\na==1\nb \\\n  >=2\na==1\n--index-url x\n")
    lines = ["a==1", "b    >=2", "--index-url x"]
    for given in (str(file), file, {"packages": str(file)}, lines, {"packages": tuple(lines)}):
        assert RuntimeEnv(pip=given)["pip"] == {"packages": lines, "pip_check": False}
        assert RuntimeEnv(uv=given)["uv"] == {"packages": lines, "uv_check": False}
    assert RuntimeEnv(pip=[]) == {} == RuntimeEnv(uv={"packages": []})
    assert normalized({"pip": ["a"]}) == normalized({"pip": {"packages": ["a", "a"]}})
    assert "config" not in RuntimeEnv(pip=["a"], config={"setup_timeout_seconds": 600})
    outer = normalized(
        {"pip": ["a"], "env_vars": {"A": "1"}, "config": {"setup_timeout_seconds": 9}}
    )
    inner = merged(outer, normalized({"uv": ["b"]}))
    assert inner == normalized({"uv": ["b"], "env_vars": {"A": "1"}})
    with_folder = RuntimeEnv(py_executable="bin/python -X dev", working_dir=tmp_path)
    assert with_folder["py_executable"] == f"{tmp_path}/bin/python -X dev"
    assert RuntimeEnv(py_executable="python3 -X dev")["py_executable"] == "python3 -X dev"


@pytest.mark.near
def test_a_package_that_is_nowhere_fails_its_tasks_and_no_others(wheels):
    env = pip(wheels, "absentee==3")
    text = error_of(version, "absentee", runtime_env=env)
    assert "pip install absentee==3 failed at node" in text, text
    assert "No matching distribution found for absentee==3" in text, text
    assert "ended with status 1 on node" in text, text
    with pytest.raises(hoplo.exceptions.HoploError, match="No matching distribution"):
        hoplo.get(Actor.options(runtime_env=env).remote().version.remote("x"), timeout=50)
    assert hoplo.get(python.remote(), timeout=20)[0] == sys.executable
    # What failed leaves nothing.
    assert not [it for it in home().iterdir() if it.is_dir() and it not in built()]


def test_a_broken_wheel(wheels, tmp_path):
    broken = tmp_path / "kaputt-1.0-py3-none-any.whl"
    broken.write_bytes(b"no zip at all")
    text = error_of(version, "kaputt", runtime_env=pip(wheels, f"kaputt @ file://{broken}"))
    assert "kaputt" in text, text
    assert "ended with status" in text, text


def test_a_later_call_tries_again(tmp_path):
    env = pip(tmp_path, "spaeter")
    assert "No matching distribution" in error_of(version, "spaeter", runtime_env=env)
    wheel(tmp_path, "spaeter")
    later = version.options(runtime_env=env)
    assert hoplo.get(later.remote("spaeter"), timeout=50) == "1.0"


def test_requirements_that_do_not_fit_each_other(wheels):
    bad = pip(wheels, "hungry", pip_check=True)
    bad["pip"]["pip_install_options"].append("--no-deps")
    text = error_of(version, "hungry", runtime_env=bad)
    assert "hungry 1.0 requires absentee, which is not installed" in text, text


def test_one_that_takes_too_long_is_stopped(tmp_path):
    (tmp_path / "setup.py").write_text("import time\ntime.sleep(1000)\n")
    (tmp_path / "pyproject.toml").write_text(
        "[build-system]\nrequires = []\nbuild-backend = 'slow'\nbackend-path = ['.']\n"
    )
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(1000)\n")
    env = pip(tmp_path, f"slow @ file://{tmp_path}") | {"config": {"setup_timeout_seconds": 2}}
    text = error_of(version, "slow", runtime_env=env)
    assert "it took longer than 2 s" in text, text
    assert "'setup_timeout_seconds': 4" in text, text
    eventually(lambda: not processes_with(str(tmp_path)), what="what it started has ended")


def processes_with(text):
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                line = Path(f"/proc/{entry}/cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if text in line:
                found.append(int(entry))
    return found


def test_a_builder_that_is_killed_leaves_nothing_that_counts(wheels, tmp_path):
    package = tmp_path / "halb"
    package.mkdir()
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    (package / "pyproject.toml").write_text(
        "[build-system]\nrequires = []\nbuild-backend = 'halb_build'\nbackend-path = ['.']\n"
    )
    # It waits until somebody writes; the next one finds no gate.
    (package / "halb_build.py").write_text(
        f"import os\n"
        f"if os.path.exists({str(gate)!r}):\n"
        f"    open({str(gate)!r}).read()\n"
        f"def build_wheel(folder, *_, **__):\n"
        f"    import shutil\n"
        f"    return os.path.basename(shutil.copy({wheel(tmp_path, 'halb')!r}, folder))\n"
    )
    env = pip(wheels, f"halb @ file://{package}")
    ref = version.options(runtime_env=env).remote("halb")
    writer = eventually(lambda: os.open(gate, os.O_WRONLY | os.O_NONBLOCK), 30, "pip builds")
    gate.unlink()
    (builder,) = processes_with("_build_environment")
    os.kill(builder, signal.SIGKILL)
    with pytest.raises(RuntimeEnvSetupError, match=r"SIGKILL|signal: 9"):
        hoplo.get(ref, timeout=20)
    again = version.options(runtime_env=env).remote("halb")
    assert hoplo.get(again, timeout=50) == "1.0"
    os.close(writer)


@pytest.mark.near
def test_a_builder_ends_when_its_daemon_is_killed(tmp_path, base):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    (tmp_path / "pyproject.toml").write_text(
        "[build-system]\nrequires = []\nbuild-backend = 'waits'\nbackend-path = ['.']\n"
    )
    # It waits as long as this process has the gate, and prints nothing that nobody would read.
    held = os.open(gate, os.O_RDWR)
    mark = tmp_path / "mark"
    (tmp_path / "waits.py").write_text(f"open({str(mark)!r}, 'w')\nopen({str(gate)!r}).read()\n")
    code = f"""
import os, signal, sys
sys.path.append({str(Path(__file__).parent)!r})
from conftest import eventually
from processes import daemon_pid
import hoplo
hoplo.init(num_cpus=1)
@hoplo.remote(runtime_env={pip(tmp_path, f"waits @ file://{tmp_path}")!r})
def f(): pass
ref = f.remote()
eventually(lambda: os.path.exists({str(mark)!r}), 30)
os.kill(daemon_pid(), signal.SIGKILL)
try:
    hoplo.get(ref, timeout=20)
except hoplo.exceptions.NodeDiedError:
    print("told")
"""
    assert run_driver(code, env={**os.environ, "HOPLO_TMPDIR": str(base)}).stdout == "told\n"
    eventually(lambda: not processes_with(str(base)), what="pip has ended")
    eventually(lambda: not processes_with("_build_environment"), what="its builder has ended")
    os.close(held)


@pytest.mark.near
def test_a_cache_that_cannot_be_written_is_named(base):
    code = """
import os, sys
import hoplo
folder = os.path.join(os.environ["HOPLO_TMPDIR"], "environments")
hoplo.init(num_cpus=1)
open(folder, "w").close()
@hoplo.remote(runtime_env={"pip": ["x"]})
def f(): pass
try:
    hoplo.get(f.remote(), timeout=20)
except hoplo.exceptions.RuntimeEnvSetupError as error:
    print(error)
"""
    out = run_driver(code, env={**os.environ, "HOPLO_TMPDIR": str(base)}).stdout
    assert f"{base}/environments cannot be written" in out, out
    assert "Set HOPLO_TMPDIR" in out, out


@pytest.mark.near
def test_a_limit_that_is_no_number():
    code = """
import hoplo
@hoplo.remote(runtime_env={"pip": ["x"]})
def f(): pass
try:
    hoplo.get(f.remote(), timeout=20)
except hoplo.exceptions.RuntimeEnvSetupError as error:
    print(error)
"""
    out = run_driver(code, env={**os.environ, "HOPLO_ENVIRONMENTS_GB": "viel"}).stdout
    assert "HOPLO_ENVIRONMENTS_GB must be a number of gigabytes such as 2.5, not 'viel'" in out


# ------------------------------------------------------------------------------------ pip


@pytest.mark.near
def test_packages_are_installed_once_for_tasks_and_actors(wheels):
    env = pip(wheels, "needy")
    before = built()
    task = version.options(runtime_env=env)
    assert hoplo.get([task.remote("needy"), task.remote("lonely")], timeout=50) == ["1.0"] * 2
    (place,) = built() - before
    mark = (place / "built.json").stat().st_ino
    actor = Actor.options(runtime_env=env).remote()
    loop = AsyncActor.options(runtime_env=env).remote()
    refs = [actor.version.remote("lonely"), loop.version.remote("lonely")]
    assert hoplo.get(refs, timeout=20) == ["1.0", "1.0"]
    assert (place / "built.json").stat().st_ino == mark
    prefix = hoplo.get(python.options(runtime_env=env).remote())[1]
    assert prefix == f"{place}/venv"
    with pytest.raises(ModuleNotFoundError):
        hoplo.get(version.remote("lonely"))


def test_different_environments_share_no_process(wheels):
    envs = [pip(wheels, f"lonely=={number}") for number in ("1.0", "2.0")]
    tasks = [version.options(runtime_env=env) for env in envs]
    assert hoplo.get([it.remote("lonely") for it in tasks], timeout=50) == ["1.0", "2.0"]
    refs = [python.options(runtime_env=env).remote() for env in envs]
    assert len({pid for _, _, pid in hoplo.get(refs, timeout=20)}) == 2


def test_own_packages_come_first_and_those_of_the_node_are_seen(tmp_path):
    for name in ("cloudpickle", "packaging"):
        wheel(tmp_path, name, "99.0")

    @hoplo.remote(runtime_env=pip(tmp_path, "packaging==99.0", "cloudpickle==99.0", "pluggy"))
    def look():
        import cloudpickle
        import packaging
        import pluggy

        versions = packaging.VERSION, pluggy.__version__, cloudpickle.__version__
        return versions, os.environ["VIRTUAL_ENV"], sys.prefix, shutil.which("python")

    import cloudpickle
    import pluggy

    versions, folder, prefix, which = hoplo.get(look.remote(), timeout=50)
    # What hoplo speaks with is the node's.
    assert versions == ("99.0", pluggy.__version__, cloudpickle.__version__)
    assert folder == prefix
    assert which == f"{prefix}/bin/python"


@pytest.mark.near
def test_others_run_and_why_says_so_while_it_is_built(wheels, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    package = tmp_path / "langsam"
    package.mkdir()
    (package / "pyproject.toml").write_text(
        "[build-system]\nrequires = []\nbuild-backend = 'langsam_build'\nbackend-path = ['.']\n"
    )
    (package / "langsam_build.py").write_text(
        f"import os, shutil\n"
        f"open({str(gate)!r}).read()\n"
        f"def build_wheel(folder, *_, **__):\n"
        f"    return os.path.basename(shutil.copy({wheel(tmp_path, 'langsam')!r}, folder))\n"
    )
    env = pip(wheels, f"langsam @ file://{package}")
    refs = [version.options(runtime_env=env).remote("langsam") for _ in range(8)]
    # All CPUs are for others meanwhile.
    assert len(hoplo.get([python.remote() for _ in range(20)], timeout=20)) == 20
    said = eventually(
        lambda: "is being built" in (text := command("why", refs[0].hex()).stdout) and text
    )
    assert f"its environment is being built (pip install langsam @ file://{package})" in said, said
    # The backend is loaded for each question of pip's.
    deadline = time.monotonic() + 40
    while hoplo.wait(refs, num_returns=8, timeout=0.05)[1]:
        assert time.monotonic() < deadline
        try:
            os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            continue  # nobody waits there now
    assert hoplo.get(refs) == ["1.0"] * 8


@pytest.mark.near
def test_two_nodes_of_one_user_build_it_once(wheels):
    env = pip(wheels, "lonely==2.0", "needy")
    env["pip"]["pip_install_options"].append("--no-deps")
    code = f"""
import hoplo, sys
hoplo.init(num_cpus=1, runtime_env={env!r})
@hoplo.remote
def look():
    import lonely
    return sys.prefix, lonely.VERSION
print(*hoplo.get(look.remote(), timeout=50))
"""
    before = built()
    with ThreadPoolExecutor(2) as pool:
        said = list(pool.map(lambda _: run_driver(code).stdout.split(), range(2)))
    (place,) = built() - before
    assert said == [[f"{place}/venv", "2.0"]] * 2


@pytest.mark.near
def test_the_environment_of_a_job_is_built_before_a_task_needs_it(wheels, base):
    env = pip(wheels, "lonely==1.0")
    code = f"""
import glob, hoplo, time
hoplo.init(num_cpus=1, runtime_env={env!r})
home = {str(base / "environments")!r}
until = time.monotonic() + 50
while time.monotonic() < until:
    if glob.glob(home + "/*/built.json"):
        break
    time.sleep(0.1)
else:
    raise SystemExit("nothing was built")
print("built")
"""
    said = run_driver(code, env={**os.environ, "HOPLO_TMPDIR": str(base)}).stdout
    assert said.split() == ["built"]


def test_installers_hear_their_variables_and_are_another_environment_with_others(wheels):
    index = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels), "LEVEL": "debug"}
    bare = {"packages": ["lonely==1.0"], "pip_install_options": []}
    found = hoplo.get(
        python.options(runtime_env={"pip": bare, "env_vars": index}).remote(), timeout=50
    )
    index["LEVEL"] = "info"
    again = hoplo.get(
        python.options(runtime_env={"pip": bare, "env_vars": index}).remote(), timeout=50
    )
    assert found[1] == again[1], "what installers do not read makes no other environment"
    index["PIP_FIND_LINKS"] = "/nowhere"
    text = error_of(version, "lonely", runtime_env={"pip": bare, "env_vars": index})
    assert "No matching distribution found for lonely==1.0" in text, text


def test_files_that_somebody_removed_are_made_again(wheels):
    env = pip(wheels, "lonely==1.0") | {"env_vars": {"AGAIN": "1"}}
    task = python.options(runtime_env=env)
    _, prefix, pid = hoplo.get(task.remote(), timeout=50)
    shutil.rmtree(Path(prefix).parent)
    os.kill(pid, signal.SIGKILL)

    def again():
        try:
            return hoplo.get(task.remote(), timeout=50)[1] == prefix and os.path.isdir(prefix)
        except (RuntimeEnvSetupError, hoplo.exceptions.WorkerStartError):
            return False

    eventually(again, timeout=30)


# ------------------------------------------------------------------------------------ the limit


@pytest.mark.near
def test_above_the_limit_what_nobody_uses_goes_first(wheels, base):
    code = f"""
import os, sys
import hoplo
hoplo.init(num_cpus=2)
@hoplo.remote
def prefix():
    return sys.prefix
made = []
for requirement in sys.argv[1:]:
    env = {pip(wheels)!r}
    env["pip"]["packages"] = [requirement]
    made.append(hoplo.get(prefix.options(runtime_env=env).remote(), timeout=50))
print(*map(os.path.isdir, made))
"""
    env = {**os.environ, "HOPLO_TMPDIR": str(base), "HOPLO_ENVIRONMENTS_GB": "0"}

    def places():
        return {it for it in (base / "environments").iterdir() if it.is_dir()}

    # As long as its node lives it is used, whatever the limit is.
    assert run_driver(code, "lonely==1.0", "lonely==2.0", env=env).stdout.split() == ["True"] * 2
    first = places()
    assert len(first) == 2
    # Now nobody uses the two: the next one that is built makes room.
    run_driver(code, "lonely", env=env)
    left = places()
    assert len(left) == 1
    assert not left & first
