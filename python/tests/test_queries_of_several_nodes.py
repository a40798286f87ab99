"""What the commands and functions that look say of several nodes, and what a stuck one hides."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from conftest import HOPLO, assert_nothing_left, command, eventually

NODE = None

# A task that waits for ever for what a task of the other node makes, and an actor over there.
PROGRAM = """
import os, sys, time
import hoplo

hoplo.init(address="auto", log_to_driver=False)


@hoplo.remote(resources={"there": 1})
def slow():
    time.sleep(3600)


@hoplo.remote
def reads(value):
    return value


@hoplo.remote(resources={"there": 1})
class Far:
    def ready(self):
        print("it is ready", flush=True)
        return True

    def says(self, line):
        print(line, flush=True)


far = Far.options(name="speaker").remote()
hoplo.get(far.ready.remote())
made = slow.remote()
read = reads.remote(made)
if "wants more" in sys.argv:
    more = slow.remote()
print(read.hex(), flush=True)
if "late" in sys.argv:
    try:
        hoplo.get(read, timeout=2)
    except hoplo.exceptions.GetTimeoutError as error:
        print(str(error).replace("\\n", "|"), flush=True)
for line in sys.stdin:
    hoplo.get(far.says.remote(line.strip()))
"""

JOIN = re.compile(r"hoplo start --address (\S+) --token-file (\S+)")


class Cluster:
    """A head and a node that joined it, with folders as if each had a machine of its own."""

    def __init__(self, folder):
        self.folders = [folder / "first", folder / "second"]
        for one in self.folders:
            one.mkdir(mode=0o700)
        self.programs = []
        out = self.hoplo(0, "start", "--head", "--port", "0", "--num-cpus", "1").stdout
        address, token = JOIN.search(out).groups()
        self.hoplo(
            1,
            "start",
            "--address",
            address,
            "--token-file",
            token,
            "--num-cpus",
            "2",
            "--resources",
            '{"there": 2}',
        )
        eventually(lambda: [len(self.json(at, "status")["nodes"]) for at in (0, 1)] == [2, 2])

    def environment(self, at):
        kept = {name: value for name, value in os.environ.items() if name != "HOPLO_TOKEN"}
        folder = str(self.folders[at])
        return {**kept, "HOPLO_TMPDIR": folder, "HOME": folder}

    def hoplo(self, at, *arguments, check=True):
        return command(*arguments, check=check, env=self.environment(at))

    def json(self, at, *arguments):
        return json.loads(self.hoplo(at, *arguments, "--json").stdout)

    def runs(self, at, *arguments):
        program = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *arguments],
            env=self.environment(at),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.programs.append(program)
        return program

    def daemon(self, at):
        return self.json(at, "status")["pid"]

    def alive(self, at):
        return sum(row["Alive"] for row in self.json(at, "status")["nodes"])

    def ends(self):
        for program in self.programs:
            program.stdin.close()
            program.wait(20)
            program.stdout.close()
        for at in (1, 0):
            self.hoplo(at, "stop", "--all", check=False)
        assert_nothing_left()


@pytest.fixture
def cluster(tmp_path):
    made = Cluster(tmp_path)
    yield made
    made.ends()


def nodes_of(rows):
    return {row["node"] for row in rows}


def test_a_stuck_node_is_named_after_a_second_and_the_rest_is_shown(cluster):
    daemon = cluster.daemon(1)
    os.kill(daemon, signal.SIGSTOP)
    try:
        began = time.monotonic()
        done = cluster.hoplo(0, "list", "workers")
        took = time.monotonic() - began
    finally:
        os.kill(daemon, signal.SIGCONT)
    # It may be told dead by then: either way it is named, or it is no node any more.
    assert took < 3, took
    assert "did not answer within 1 s" in done.stderr or "died" in done.stderr or not done.stderr
    assert done.stdout.startswith("ID")
    # While it joins again under another number, it has no session that could be stopped.
    eventually(lambda: cluster.alive(0) == 2 and cluster.alive(1) == 2, timeout=30)


def test_lists_show_rows_of_both_nodes_and_which_node_each_is_of(cluster):
    program = cluster.runs(0)
    assert program.stdout.readline()
    for at in (0, 1):
        workers = eventually(lambda at=at: cluster.json(at, "list", "workers"))
        assert len(nodes_of(workers)) == 2, workers
        [actor] = cluster.json(at, "list", "actors")
        assert actor["class_name"] == "Far"
        there = [row for row in workers if row["pid"] == actor["pid"]]
        assert [row["node"] for row in there] == [actor["node"]]
        tasks = cluster.json(at, "list", "tasks")["tasks"]
        assert {"slow", "reads"} <= {row["name"] for row in tasks}
    text = cluster.hoplo(0, "list", "workers").stdout
    assert text.splitlines()[0].split()[:2] == ["ID", "NODE"]


PAST = """
import time
import hoplo
from hoplo.util import state

hoplo.init(address="auto", log_to_driver=False)


@hoplo.remote(resources={"there": 1})
def inner():
    return 1


@hoplo.remote(resources={"there": 1})
def outer():
    return hoplo.get(inner.remote())


before = time.time()
assert hoplo.get(outer.remote()) == 1
rows = {task.name: task for task in state.list_tasks()}
here = hoplo.get_runtime_context().get_node_id()
both = [rows["outer"], rows["inner"]]
assert {task.state for task in both} == {"FINISHED"}
assert {task.node_id for task in both} == {node.node_id for node in state.list_nodes()} - {here}
assert all(task.worker_pid for task in both), both
assert rows["inner"].parent_task_id == rows["outer"].task_id
assert all(before - 1 <= task.start_time_ms / 1000 <= time.time() for task in both), both
assert len({worker.node_id for worker in state.list_workers()}) == 2
print("done")
"""


def test_what_has_run_is_known_wherever_its_caller_was(cluster):
    done = subprocess.run(
        [sys.executable, "-c", PAST],
        env=cluster.environment(0),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "done\n", done.stderr
    for at in (0, 1):
        # The driver's node remembers `outer`, and the worker's what that called.
        rows = cluster.json(at, "list", "tasks", "--ended")["tasks"]
        assert {row["name"] for row in rows if row["state"] == "finished"} == {"inner", "outer"}
        (job,) = cluster.json(at, "list", "jobs")
        assert job["state"] == "ended"


def test_status_has_a_block_of_each_node(cluster):
    text = cluster.hoplo(0, "status").stdout
    heads = re.findall(r"^[0-9a-f]{6}(?: \(here\))?, \S+, daemon pid \d+$", text, re.M)
    assert len(heads) == 2, text
    assert re.search(r"^  CPU      0 of 1 reserved", text, re.M)
    assert re.search(r"^  CPU      0 of 2 reserved", text, re.M)
    assert re.search(r"^  there    0 of 2 reserved", text, re.M)
    status = cluster.json(1, "status")
    [other] = status["others"]
    assert (status["resources"]["CPU"], other["resources"]["CPU"]) == (2, 1)


WHERE_THEY_RUN = """
import dataclasses, time
import hoplo

hoplo.init(address="auto")


@hoplo.remote(resources={"there": 1})
@dataclasses.dataclass
class Far:
    number: int

    def says(self):
        print("said")


@hoplo.remote(resources={"there": 1})
def fails():
    raise ValueError("no")


@hoplo.remote(resources={"nowhere": 1})
class Waits:
    pass


far = Far.remote(7)
hoplo.get(far.says.remote())
waits = Waits.remote()
try:
    hoplo.get(fails.remote())
except ValueError as error:
    print(str(error).splitlines()[0], flush=True)
input()
"""


def test_nobody_said_on_which_node_actors_run_and_workers_print(cluster):
    program = subprocess.Popen(
        [sys.executable, "-c", WHERE_THEY_RUN],
        env=cluster.environment(0),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    cluster.programs.append(program)
    lines = [program.stdout.readline(), program.stdout.readline()]
    [raised] = [line for line in lines if line.startswith("fails raised")]
    [said] = [line for line in lines if line.endswith("said\n")]
    here = cluster.json(0, "status")["node"]
    [there] = {row["NodeID"] for row in cluster.json(0, "list", "nodes")} - {here}
    assert re.fullmatch(
        rf"fails raised ValueError in worker process \d+ on node {there}:\n", raised
    )
    assert re.fullmatch(r"\(\S*Far\(number=7\) pid=\d+, ip=127\.0\.0\.1\) said\n", said)
    status = cluster.json(0, "status")
    counts = [(one["actors"], one["actors_waiting"]) for one in (status, *status["others"])]
    assert counts == [(0, 1), (1, 0)]
    text = cluster.hoplo(0, "status").stdout
    assert re.search(r"^  workers  \d+, actors 0, 1 waiting for a place$", text, re.M)
    assert re.search(r"^  workers  \d+, actors 1$", text, re.M)


def test_status_is_shown_again_until_it_is_interrupted(cluster):
    watch = subprocess.Popen(
        [HOPLO, "status", "--watch"],
        env=cluster.environment(0),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        times = 0
        for line in watch.stdout:
            assert "\x1b" not in line, "no terminal is cleared that is none"
            times += line.startswith("hoplo ")
            if times == 2:
                break
    finally:
        watch.send_signal(signal.SIGINT)
        watch.stdout.close()
        watch.wait(10)
    assert times == 2


def test_resources_are_those_of_all_nodes(cluster):
    program = (
        "import hoplo; hoplo.init(address='auto')\n"
        "print(hoplo.cluster_resources()['CPU'], hoplo.available_resources()['CPU'],"
        " hoplo.available_resources()['there'])\n"
    )
    for at in (0, 1):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=cluster.environment(at),
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert done.stdout.split() == ["3.0", "3.0", "2.0"]


def test_why_follows_a_chain_to_the_line_of_code_on_the_other_node(cluster):
    program = cluster.runs(0)
    read = program.stdout.readline().strip()
    for at in (0, 1):
        lines = eventually(
            lambda at=at: (
                found
                if "in slow at <string>" in (found := cluster.hoplo(at, "why", read).stdout)
                else ""
            )
        ).splitlines()
        assert re.match(r"obj:\S+ is made by task:\S+ of reads", lines[0])
        runs = [line for line in lines if "of slow has run for" in line]
        host = r"\(worker, pid \d+, \S+\)" if at == 0 else r"\(worker, pid \d+\)"
        assert re.search(host, runs[0]), runs


def test_a_get_that_is_late_says_what_it_waits_for_on_the_other_node(cluster):
    program = cluster.runs(0, "late")
    program.stdout.readline()
    text = program.stdout.readline()
    assert "of slow has run for" in text


def test_logs_of_another_node_are_read_from_any_node(cluster):
    program = cluster.runs(0)
    assert program.stdout.readline()
    [actor] = cluster.json(0, "list", "actors")
    for at in (0, 1):
        # By its name, its id, its worker's pid, and its file.
        file = f"worker-{actor['pid']}.out"
        for of in ("speaker", actor["id"], str(actor["pid"]), file):
            told = eventually(
                lambda at=at, of=of: cluster.hoplo(at, "logs", of, check=False).stdout
            )
            assert told == "it is ready\n", (at, of, told)
        told = cluster.hoplo(at, "logs").stdout
        assert f"==> {actor['node']} {file} <==\nit is ready\n" in told
        # Of one node only.
        alone = cluster.hoplo(at, "logs", "--node", actor["node"]).stdout
        assert f"==> {file} <==\nit is ready\n" in alone
        listed = cluster.hoplo(at, "logs", "--list").stdout
        assert listed.splitlines()[0].split() == ["NODE", "FILE", "SIZE"]
        assert re.search(rf"^{actor['node']} +{re.escape(file)} +12 ", listed, re.M), listed
    done = cluster.hoplo(0, "logs", "--node", "nowhere", check=False)
    assert done.returncode == 1
    assert "there is no node" in done.stderr


def test_logs_of_another_node_are_followed_line_by_line_and_their_ends_are_shown(cluster):
    program = cluster.runs(0)
    assert program.stdout.readline()
    # More than one answer takes, with characters of several bytes on the way.
    lines = [f"{number} {'grün' * 100}" for number in range(800)]
    for line in lines:
        program.stdin.write(line + "\n")
    program.stdin.write("the end\n")
    program.stdin.flush()
    eventually(
        lambda: cluster.hoplo(0, "logs", "speaker", "--tail", "1").stdout == "the end\n", timeout=30
    )
    told = cluster.hoplo(0, "logs", "speaker").stdout.splitlines()
    assert told == ["it is ready", *lines, "the end"]
    follow = subprocess.Popen(
        [HOPLO, "logs", "speaker", "--follow", "--tail", "2"],
        env=cluster.environment(0),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert follow.stdout.readline() == lines[-1] + "\n"
        assert follow.stdout.readline() == "the end\n"
        for word in ("one more", "and another"):
            program.stdin.write(word + "\n")
            program.stdin.flush()
            assert follow.stdout.readline() == word + "\n"
    finally:
        follow.send_signal(signal.SIGINT)
        follow.stdout.close()
        follow.wait(10)


def test_logs_are_shown_without_a_stuck_node_which_is_named(cluster):
    daemon = cluster.daemon(1)
    os.kill(daemon, signal.SIGSTOP)
    try:
        began = time.monotonic()
        done = cluster.hoplo(0, "logs")
        took = time.monotonic() - began
    finally:
        os.kill(daemon, signal.SIGCONT)
    assert took < 3, took
    assert "did not answer within 1 s" in done.stderr or "died" in done.stderr
    assert done.returncode == 0
    eventually(lambda: cluster.alive(0) == 2 and cluster.alive(1) == 2, timeout=30)


def test_status_is_watched_over_several_nodes(cluster):
    """Each look shows what each node has and uses, and what waits there and why."""
    watch = subprocess.Popen(
        [HOPLO, "status", "--watch"],
        env=cluster.environment(0),
        stdout=subprocess.PIPE,
        text=True,
    )
    seen = {"blocks": 0, "idle": False, "used": False, "waits": False}
    try:
        program = None
        for line in watch.stdout:
            seen["blocks"] += bool(re.match(r"[0-9a-f]{6}(?: \(here\))?, \S+, daemon pid", line))
            seen["idle"] |= line.startswith("  there    0 of 2 reserved")
            seen["used"] |= line.startswith("  there    2 of 2 reserved")
            seen["waits"] |= bool(re.match(r" *wanted .* more workers with .*: \S", line))
            if seen["idle"] and program is None:
                program = cluster.runs(0, "wants more")
            if all(seen.values()) and seen["blocks"] >= 4:
                break
    finally:
        watch.send_signal(signal.SIGINT)
        watch.stdout.close()
        watch.wait(10)
    assert seen["blocks"] >= 4
    assert all(seen.values()), seen
