"""The `hoplo` command, and nodes that stay."""

import json
import os
import re
import subprocess
import sys
import time

import pytest
from conftest import alive, command, eventually, processes, run_driver

import hoplo
from hoplo.exceptions import ConnectionFailedError

NODE = None


@hoplo.remote
def pid():
    return os.getpid()


@hoplo.remote
class Counter:
    def __init__(self):
        self.value = 0

    def add(self):
        self.value += 1
        return self.value


# ------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    "arguments",
    [["status"], ["why", "task:1-1"], ["list", "tasks"], ["list", "actors"]],
)
def test_nothing_runs(arguments):
    done = command(*arguments, check=False)
    assert done.returncode != 0
    assert done.stdout == ""
    assert "hoplo start --head" in done.stderr
    assert len(done.stderr.splitlines()) <= 3


def test_stop_when_nothing_runs():
    done = command("stop", check=False)
    assert done.returncode in (0, 1)
    assert "no" in (done.stdout + done.stderr).lower()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["strat"], "start"),
        (["list", "taks"], "tasks"),
        (["start", "--head", "--num-cpu", "2"], "num-cpus"),
        (["start", "--head", "--num-cpus", "two"], "two"),
        (["start", "--head", "--num-cpus", "-1"], "num-cpus|-1"),
        (["start", "--head", "--num-gpus", "1.5"], "num-gpus.*whole number of GPUs"),
        (["start", "--head", "--memory", "1000T"], r"memory is 1099511627776000: give .* to 1e14"),
        (["start", "--head", "--resources", '{"CPU": 3}'], r"option of its own: --num-cpus"),
        (["start", "--head", "--resources", '{"tpu": 1e30}'], '"tpu" is 10{30}: give 0 to 1e14'),
        (["start", "--head", "--python", "/nonexistent"], "--python /nonexistent does not exist"),
        (["start", "--head", "--python", "/tmp"], "--python /tmp is no program: give the path"),
        (["start", "--head", "--python", "nonexistent"], "no folder of PATH has it"),
        (["start"], "--head"),
        (["why"], "ID|id|ref"),
    ],
)
def test_a_wrong_command(arguments, text):
    done = command(*arguments, check=False)
    assert done.returncode != 0
    assert re.search(text, done.stderr)
    assert "panicked" not in done.stderr
    assert processes() == {}


def test_a_second_head_is_refused(head):
    head("--num-cpus", "1")
    done = command("start", "--head", check=False)
    assert done.returncode != 0
    assert "hoplo stop" in done.stderr
    hoplo.init(address="auto")
    assert hoplo.cluster_resources()["CPU"] == 1


def test_a_python_without_hoplo_is_refused_when_the_node_starts(tmp_path):
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    done = command("start", "--head", "--port", "0", "--python", str(bare), check=False)
    assert done.returncode == 1
    assert done.stderr == (
        f"hoplo: {bare} has no hoplo: install it there, or name a Python that has it "
        "with --python PATH\n"
    )
    assert processes() == {}


def test_why_of_nothing_and_of_nonsense(head):
    head("--num-cpus", "1")
    done = command("why", "task:77-77", check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "hoplo: nobody here knows task:77-77: it finished long ago, or was never here\n"
    )
    done = command("why", "nonsense", check=False)
    assert done.returncode != 0
    assert "nonsense" in done.stderr
    done = command("why", "x" * 100_000, check=False)
    assert done.returncode != 0
    assert re.search("100003 bytes, and may have 32768: give an id", done.stderr)


# ------------------------------------------------------------------------------------ alone


def test_completions_of_each_shell_know_the_commands():
    for shell in ("bash", "zsh", "fish"):
        script = command("completion", shell).stdout
        assert "summary" in script
        assert "token-file" in script
        assert command("completion", env={**os.environ, "SHELL": f"/bin/{shell}"}).stdout == script
    done = command("completion", check=False, env={**os.environ, "SHELL": "/bin/sh"})
    assert done.returncode == 1
    assert "say for which shell: `hoplo completion bash`" in done.stderr
    script = command("completion", "bash").stdout
    typed = "COMP_WORDS=(hoplo sta) COMP_CWORD=1; _hoplo hoplo sta hoplo; echo ${COMPREPLY[@]}"
    shown = subprocess.run(
        ["bash", "-c", f"{script}\n{typed}"], capture_output=True, text=True, check=True
    )
    assert shown.stdout.split() == ["start", "status"]


def test_version():
    assert hoplo.__version__ in command("version").stdout
    assert hoplo.__version__ in command("--version").stdout


@pytest.mark.parametrize("arguments", [[], *([c] for c in ("start", "stop", "status", "why"))])
def test_help(arguments):
    told = command(*arguments, "--help").stdout
    assert "hoplo" in told
    assert len(told.splitlines()) > 3


def test_it_starts_in_milliseconds():
    def quickest():
        began = time.monotonic()
        command("version")
        return time.monotonic() - began

    assert min(quickest() for _ in range(5)) < 0.1


# ------------------------------------------------------------------------------------ a head


def test_start_join_stop(head):
    told = head("--num-cpus", "2", "--num-gpus", "1", "--resources", '{"disk": 3}')
    assert "auto" in told
    assert "hoplo stop" in told
    hoplo.init(address="auto")
    resources = hoplo.cluster_resources()
    assert (resources["CPU"], resources["GPU"], resources["disk"]) == (2, 1, 3)
    assert hoplo.get(pid.remote()) != os.getpid()
    hoplo.shutdown()
    assert len(processes()) >= 1
    command("stop")
    eventually(lambda: processes() == {})
    with pytest.raises(ConnectionFailedError, match="hoplo start --head"):
        hoplo.init(address="auto")


def test_two_drivers_share_a_node(head):
    head("--num-cpus", "2")
    hoplo.init(address="auto", namespace="shared")
    counter = Counter.options(name="counter").remote()
    assert hoplo.get(counter.add.remote()) == 1
    other = """
import hoplo
hoplo.init(address="auto", namespace="shared")
counter = hoplo.get_actor("counter")
print(hoplo.get(counter.add.remote()), hoplo.get_runtime_context().get_job_id())
"""
    value, job = run_driver(other).stdout.split()
    assert value == "2"
    assert job != hoplo.get_runtime_context().get_job_id()
    assert hoplo.get(counter.add.remote()) == 3


def test_auto_did_not_find_the_node_of_another_program():
    with hoplo.init(num_cpus=2, namespace="shared"):
        counter = Counter.options(name="counter").remote()
        assert hoplo.get(counter.add.remote()) == 1
        other = """
import hoplo
hoplo.init(address="auto", namespace="shared")
print(hoplo.get(hoplo.get_actor("counter").add.remote()))
"""
        assert run_driver(other).stdout == "2\n"
        assert hoplo.get(counter.add.remote()) == 3
    with pytest.raises(ConnectionFailedError, match="no node runs on this machine"):
        hoplo.init(address="auto")


def test_the_address_in_the_environment(head):
    told = head("--num-cpus", "1")
    by_name = run_driver(
        "import hoplo\nhoplo.init()\nprint(hoplo.cluster_resources()['CPU'])\n",
        env={**os.environ, "HOPLO_ADDRESS": "auto"},
    )
    assert float(by_name.stdout) == 1
    hoplo.init(address=re.search(r"\S*/session-\S+", told).group())
    assert hoplo.cluster_resources()["CPU"] == 1
    address = hoplo.get_runtime_context().gcs_address
    hoplo.shutdown()
    hoplo.init(address=address)
    assert hoplo.cluster_resources()["CPU"] == 1


def test_a_job_ends_with_its_driver_but_for_detached_actors(head):
    head("--num-cpus", "2")
    out = run_driver(
        """
import hoplo, os
hoplo.init(address="auto", namespace="ours")

@hoplo.remote
class Named:
    def pid(self):
        return os.getpid()

stays = Named.options(name="stays", lifetime="detached").remote()
goes = Named.options(name="goes").remote()
print(*hoplo.get([stays.pid.remote(), goes.pid.remote()]))
"""
    ).stdout
    stays, goes = map(int, out.split())
    eventually(lambda: not alive(goes), timeout=3)
    assert alive(stays)
    hoplo.init(address="auto", namespace="ours")
    assert hoplo.get(hoplo.get_actor("stays").pid.remote()) == stays
    with pytest.raises(ValueError, match="goes"):
        hoplo.get_actor("goes")
    hoplo.kill(hoplo.get_actor("stays"))
    eventually(lambda: not alive(stays))


def test_status(head):
    head("--num-cpus", "3")
    hoplo.init(address="auto")
    hoplo.get(pid.remote())
    told = command("status").stdout
    assert "CPU" in told
    assert "3" in told
    parsed = json.loads(command("status", "--json").stdout)
    assert parsed["resources"]["CPU"] == 3


# ------------------------------------------------------------------------------------ looking


def test_a_list_of_tasks_that_was_cut_did_not_say_so(fresh_node, gate):
    session = fresh_node(num_cpus=1)["session_dir"]

    @hoplo.remote
    def hold():
        gate.wait()

    held = hold.remote()
    eventually(lambda: gate.arrived() == 1)
    waiting = [pid.remote() for _ in range(10_500)]
    listed = json.loads(command("list", "tasks", "--session", session, "--json").stdout)
    assert (len(listed["tasks"]), listed["more"]) == (10_000, 501)
    last = command("list", "tasks", "--session", session).stdout.splitlines()[-1]
    assert last.startswith("and 501 more: of each process the first 10000 tasks are listed"), last
    gate.open()
    hoplo.get([held, *waiting])


def test_what_has_run_is_listed_chosen_and_counted(fresh_node, gate):
    session = ["--session", fresh_node(num_cpus=1)["session_dir"]]

    @hoplo.remote
    def ends(x):
        return 1 // x

    @hoplo.remote
    def hold():
        gate.wait()

    hoplo.wait([ends.remote(x) for x in range(3)], num_returns=3)
    held = hold.remote()
    eventually(lambda: gate.arrived() == 1)
    rows = json.loads(command("list", "tasks", *session, "--ended", "--json").stdout)["tasks"]
    assert [(row["name"], row["state"]) for row in rows[:1]] == [("hold", "running")]
    assert {row["state"] for row in rows if row["name"] == "ends"} == {"finished", "failed"}
    assert all(row["ran_s"] is not None for row in rows)
    assert "ends" not in command("list", "tasks", *session).stdout
    chosen = ["--ended", "--filter", "name=ends", "--filter", "state!=finished"]
    (failed,) = json.loads(command("list", "tasks", *session, *chosen, "--json").stdout)["tasks"]
    assert failed["reason"].startswith("ZeroDivisionError: ")
    detail = command("list", "tasks", *session, *chosen, "--detail").stdout
    assert re.search(r"^failure +TaskError$", detail, re.M), detail
    assert command("get", "tasks", failed["task_id"], *session).stdout == detail
    cut = command("list", "tasks", *session, "--ended", "--limit", "1").stdout
    assert cut.splitlines()[-1] == "and 3 more: --limit shows 1"
    summary = command("summary", "tasks", *session).stdout
    assert re.search(r"^ends +3 +1 failed, 2 finished$", summary, re.M), summary
    jobs = json.loads(command("list", "jobs", *session, "--json").stdout)
    assert [job["state"] for job in jobs] == ["running"]
    assert "ALIVE" in command("list", "nodes", *session).stdout
    wrong = command("list", "tasks", *session, "--filter", "stat=x", check=False).stderr
    assert "there are id, name, state" in wrong
    nothing = command("get", "tasks", "task:1-ffff", *session, check=False).stderr
    assert "nobody here knows task:1-ffff" in nothing
    gate.open()
    hoplo.get(held)


def test_labels_of_a_head(head):
    head("--num-cpus", "1", "--labels", '{"zone": "b"}')
    hoplo.init(address="auto")
    assert hoplo.nodes()[0]["Labels"] == {"zone": "b"}


def test_status_and_list_told_different_numbers_of_waiting_tasks(fresh_node, gate):
    session = fresh_node(num_cpus=1)["session_dir"]

    @hoplo.remote
    def hold():
        gate.wait()

    held = hold.remote()
    eventually(lambda: gate.arrived() == 1)
    waiting = [pid.remote() for _ in range(3000)]
    status = json.loads(command("status", "--session", session, "--json").stdout)
    listed = json.loads(command("list", "tasks", "--session", session, "--json").stdout)
    assert listed["more"] == 0
    states = [row["state"] for row in listed["tasks"]]
    assert status["tasks"] == {state: states.count(state) for state in set(states)}
    assert sum(status["tasks"].values()) == 3001
    # And what is called by another name is another number.
    told = command("status", "--session", session).stdout
    assert re.search(r"^tasks    .*\b\d+ queued", told, re.M), told
    assert re.search(
        r"^wanted   tasks of process:1.*: \d+ more workers with \(CPU 1\)", told, re.M
    ), told
    gate.open()
    hoplo.get([held, *waiting])


def test_memory_in_use_was_what_is_reserved(fresh_node):
    session = fresh_node(num_cpus=1)["session_dir"]
    hoplo.get(pid.remote())
    told = command("status", "--session", session).stdout
    line = re.search(
        r"^memory   (.*) of .* reserved by `memory=`; (.*) in use by drivers and workers$",
        told,
        re.M,
    )
    assert line is not None, told
    assert line[1] == "0 B"
    assert line[2] != "0 B"


def test_why_and_list(fresh_node, gate):
    fresh_node(num_cpus=1)

    @hoplo.remote
    def hold():
        gate.wait()

    @hoplo.remote
    def after(x):
        return x

    running = hold.remote()
    eventually(gate.arrived)
    queued = after.remote(running)
    stuck = hold.options(num_gpus=1).remote()
    big = hoplo.put(b"x" * 1_000_000)
    counter = Counter.options(name="counter", num_cpus=0).remote()
    hoplo.get(counter.add.remote())

    why = command("why", queued.hex()).stdout
    assert "after" in why
    assert "hold" in why
    assert "running" in why
    assert "GPU 1" in command("why", stuck.hex()).stdout
    task = re.search(r"task:\S+?(?= |,|;|$)", why).group()
    assert task in command("why", task).stdout
    assert "alive" in command("why", counter._actor_id).stdout
    assert "1" in command("why", big.hex()).stdout

    tasks = command("list", "tasks").stdout
    assert "hold" in tasks
    assert "after" in tasks
    assert "running" in tasks
    actors = command("list", "actors").stdout
    assert "Counter" in actors
    assert "counter" in actors
    assert (
        big.hex()[:8] in command("list", "objects").stdout
        or "obj:" in command("list", "objects").stdout
    )
    workers = command("list", "workers").stdout
    (held,) = gate.pids_arrived()
    assert str(held) in workers
    rows = json.loads(command("list", "actors", "--json").stdout)
    assert [row["name"] for row in rows] == ["counter"]
    gate.open()


def test_a_name_made_lines_of_its_own_and_cleared_the_screen(fresh_node, gate):
    fresh_node(num_cpus=1)
    name, shown = "t\nEVIL task:9-9 \x1b[2Jz", r"t\nEVIL task:9-9 \u{1b}[2Jz"

    @hoplo.remote(name=name)
    def named():
        gate.wait()
        return hoplo.get_runtime_context().get_task_name()

    @hoplo.remote
    class Named:
        pass

    actor = Named.options(name="a\nb\x1b[31m", num_cpus=0).remote()
    running = named.remote()
    eventually(gate.arrived)
    waiting = named.options(num_cpus=1).remote()
    odd = named.options(resources={"r\nEVIL": 1}).remote()
    for ref in (running, waiting):
        told = command("why", ref.hex()).stdout
        assert shown in told
        assert not re.search("^ *EVIL|\x1b", told, re.MULTILINE)
    assert r"needs r\nEVIL 1" in command("why", odd.hex()).stdout
    for what, cell in (("tasks", shown), ("actors", r"a\nb\u{1b}[31m")):
        listed = command("list", what).stdout
        assert cell in listed
        assert not re.search("^EVIL|^b|\x1b", listed, re.MULTILINE)
    with pytest.raises(hoplo.exceptions.GetTimeoutError) as late:
        hoplo.get(running, timeout=0.5)
    assert shown in str(late.value)
    assert "\x1b" not in str(late.value)
    hoplo.cancel(waiting)
    with pytest.raises(hoplo.exceptions.TaskCancelledError) as cancelled:
        hoplo.get(waiting)
    assert shown in str(cancelled.value)
    gate.open()
    assert hoplo.get(running) == name
    rows = json.loads(command("list", "actors", "--json").stdout)
    assert [row["name"] for row in rows] == ["a\nb\x1b[31m"]
    assert hoplo.get_actor("a\nb\x1b[31m") == actor


def test_logs(fresh_node):
    fresh_node(num_cpus=1)

    @hoplo.remote
    def speak():
        print("what the worker said")
        return os.getpid()

    worker = hoplo.get(speak.remote())
    eventually(lambda: "what the worker said" in command("logs").stdout)
    told = command("logs").stdout
    assert str(worker) in told


def test_one_driver_that_used_up_its_room_for_functions_left_none_for_others(head, start_driver):
    """C2: what a job may export is bounded for each job, and nobody else's."""
    head("--num-cpus", "2")
    exporter = start_driver(
        """
import os, sys, hoplo
hoplo.init(address="auto")
for number in range(2000):
    try:
        hoplo.remote(lambda large=os.urandom(80_000): len(large)).remote()
    except RuntimeError as error:
        print("may have 67108864" in str(error), flush=True)
        break
sys.stdin.readline()
"""
    )
    assert exporter.stdout.readline() == "True\n"
    for number in range(2):
        other = f"""
import hoplo
hoplo.init(address="auto")
@hoplo.remote
class Actor:
    def method(self):
        return {number}
print(hoplo.get([hoplo.remote(lambda: {number}).remote(), Actor.remote().method.remote()]))
"""
        assert run_driver(other).stdout == f"[{number}, {number}]\n"


def test_the_doctor_says_what_of_a_program_for_ray_is_not_there(tmp_path):
    good, bad = tmp_path / "good.py", tmp_path / "bad.py"
    good.write_text("import ray\nray.get(ray.put(1))\n")
    bad.write_text("import ray\nfrom ray.util.state import list_cluster_events\n")
    assert command("doctor", str(good)).returncode == 0
    done = command("doctor", str(good), str(bad), check=False)
    assert done.returncode == 1
    assert "ray.util.state.list_cluster_events" in done.stdout
    missing = command("doctor", str(tmp_path / "none.py"), check=False)
    assert missing.returncode == 2
    assert "none.py" in missing.stderr
    assert command("doctor", check=False).returncode == 2
