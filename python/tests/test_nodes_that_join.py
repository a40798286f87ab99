"""Nodes that join a head: `hoplo start --address`, tokens, and what goes wrong."""

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import alive, command, eventually
from processes import with_environment

NODE = None

JOIN = re.compile(r"hoplo start --address (\S+) --token-file (\S+)")


@dataclass
class Machine:
    """As a machine of its own: a folder for sessions, and a home."""

    folder: Path
    home: Path
    # What it leaves then is for the next daemon to sweep.
    daemon_was_killed: bool = False

    def environment(self, **more: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name != "HOPLO_TOKEN"}
        return {**kept, "HOPLO_TMPDIR": str(self.folder), "HOME": str(self.home), **more}

    def hoplo(self, *arguments: str, check: bool = True, **more: str) -> Any:
        return command(*arguments, check=check, env=self.environment(**more))

    def status(self) -> dict[str, Any]:
        return json.loads(self.hoplo("status", "--json").stdout)

    def nodes(self) -> dict[str, str]:
        """What is known here of each node."""
        return {node["NodeID"]: node["State"] for node in self.status()["nodes"]}


@pytest.fixture
def machines(tmp_path):
    made = []

    def make(home=None):
        folder = tmp_path / f"machine{len(made)}"
        folder.mkdir(mode=0o700)
        machine = Machine(folder, home or folder)
        made.append(machine)
        return machine

    yield make
    # The head, which is first, last: a node whose head was stopped takes seconds to end.
    for machine in reversed(made):
        machine.hoplo("stop", "--all", check=False)
    for machine in made:
        folder = machine.folder
        eventually(lambda: not with_environment("HOPLO_TMPDIR", str(folder)))
        left = {path.name for session in folder.glob("session-*") for path in session.iterdir()}
        assert machine.daemon_was_killed or left <= {"logs", "daemon.log"}


def started(machine, *arguments):
    """A head: where one joins it, and the file with its token."""
    out = machine.hoplo("start", "--head", "--port", "0", "--num-cpus", "1", *arguments).stdout
    address, token = JOIN.search(out).groups()
    return address, Path(token)


def joined(machine, address, token, *arguments):
    told = ["--token-file", str(token)] if token else []
    return machine.hoplo("start", "--address", address, *told, "--num-cpus", "2", *arguments)


# ------------------------------------------------------------------------------------ it works


def test_a_second_node_on_one_machine_is_noted(machines):
    first, second = machines(), machines()
    address, token = started(first)
    assert "Note:" not in joined(second, address, token).stdout
    out = joined(second, address, token).stdout
    assert "another node of yours runs on this machine" in out
    other = second.folder / out.split(f"({second.folder}/")[1].split(")")[0]
    second.hoplo("stop", "--session", str(other))
    assert eventually(lambda: sorted(first.nodes().values()) == ["ALIVE", "ALIVE", "DEAD"])


def test_a_node_joins_and_both_know_each_other(machines):
    first, second = machines(), machines()
    address, token = started(first)
    assert token == first.home / ".hoplo" / "token"
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    began = time.monotonic()
    out = joined(second, address, token, "--labels", '{"zone": "b"}').stdout
    print(f"joined in {time.monotonic() - began:.3f} s")
    assert "runs in the background" in out
    assert len(first.nodes()) == 2
    assert eventually(lambda: second.nodes() == first.nodes())
    rows = {node["Resources"]["CPU"]: node for node in first.status()["nodes"]}
    assert rows[1]["Head"]
    assert not rows[2]["Head"]
    assert rows[2]["Labels"] == {"zone": "b"}
    text = second.hoplo("status").stdout
    assert len(re.findall(r"^node +[0-9a-f]{6}.* alive, ", text, re.M)) == 2
    assert "(here)" in text


def test_a_program_uses_the_node_that_joined(machines):
    first, second = machines(), machines()
    joined(second, *started(first))
    program = (
        "import hoplo; hoplo.init(address='auto')\n"
        "print(hoplo.get(hoplo.remote(lambda x: x + 1).remote(41)),"
        " hoplo.cluster_resources()['CPU'], len(hoplo.nodes()))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=second.environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.split() == ["42", "3.0", "2"]


WAITS_ON_ITS_NODE = """
import hoplo, time
hoplo.init(address="auto")
print("waits", flush=True)
try:
    hoplo.get(hoplo.remote(time.sleep).remote(600))
except hoplo.exceptions.NodeDiedError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("end", "why"),
    [
        (lambda first, second, there: second.hoplo("stop"), "(asked for)"),
        (
            lambda first, second, there: first.hoplo("drain", "--deadline", "0.1", there),
            "(it was drained, and its time was over before",
        ),
    ],
)
def test_a_driver_hears_why_its_node_was_stopped(machines, end, why):
    first, second = machines(), machines()
    joined(second, *started(first))
    there = second.status()["node"]
    driver = subprocess.Popen(
        [sys.executable, "-c", WAITS_ON_ITS_NODE],
        env=second.environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert driver.stdout is not None
    assert driver.stdout.readline() == "waits\n"
    end(first, second, there)
    text, _ = driver.communicate(timeout=60)
    assert "the node daemon was stopped " + why in text


def test_machines_that_share_a_home_need_no_flag(machines):
    first = machines()
    second = machines(home=first.home)
    address, _ = started(first)
    joined(second, address, None)
    assert len(second.nodes()) >= 1
    assert len(first.nodes()) == 2


def test_a_token_from_the_variable(machines):
    first, second = machines(), machines()
    address, token = started(first)
    text = token.read_text().strip()
    second.hoplo("start", "--address", address, "--num-cpus", "1", HOPLO_TOKEN=text)
    assert len(first.nodes()) == 2
    # Whoever runs something there could have let others join.
    program = (
        "import os, hoplo; hoplo.init(address='auto')\n"
        "print(hoplo.get(hoplo.remote(lambda: os.environ.get('HOPLO_TOKEN', 'none')).remote()))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=second.environment(HOPLO_TOKEN=text),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == "none"


def test_tokens_are_made_listed_and_revoked(machines):
    first, second, third = machines(), machines(), machines()
    address, token = started(first)
    once = first.hoplo("token", "new", "--uses", "1").stdout.strip()
    second.hoplo("start", "--address", address, HOPLO_TOKEN=once)
    done = third.hoplo("start", "--address", address, check=False, HOPLO_TOKEN=once)
    assert done.returncode != 0
    assert "used" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    listed = first.hoplo("token", "list").stdout
    assert len(listed.splitlines()) == 3
    assert once.split(".")[2] not in listed
    [used] = re.findall(r"^([0-9a-f]{16}) +node +1 +1 +used up", listed, re.M)
    for line in re.findall(r"^([0-9a-f]{16}) ", listed, re.M):
        first.hoplo("token", "revoke", line)
    done = joined_in_vain(third, address, token)
    assert "revoked" in done
    assert "hoplo token list" in done
    done = first.hoplo("token", "revoke", used, check=False)
    assert "no token" in done.stderr


def test_tokens_are_asked_for_on_a_node_that_is_no_head(machines):
    """It said that a file of control nodes was missing."""
    first, second = machines(), machines()
    address, token = started(first)
    second.hoplo("start", "--address", address, "--token-file", str(token))
    for what in ("new", "list"):
        done = second.hoplo("token", what, check=False)
        assert done.returncode == 1
        [line] = done.stderr.splitlines()
        assert "head" in line
        assert "cluster.json" not in line


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_a_head_at_an_address_that_nobody_can_dial(machines, host):
    """It told others to join at 0.0.0.0."""
    machine = machines()
    done = machine.hoplo("start", "--head", "--host", host, check=False)
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert "--host" in line
    assert host in line


def test_a_head_that_starts_again_keeps_its_nodes_and_its_token(machines):
    first, second, third = machines(), machines(), machines()
    address, token = started(first)
    joined(second, address, token)
    pid = first.status()["pid"]
    os.kill(pid, 9)
    eventually(lambda: not alive(pid))
    port = address.rsplit(":", 1)[1]
    out = first.hoplo("start", "--head", "--port", port, "--num-cpus", "1").stdout
    assert JOIN.search(out).groups() == (address, str(token))
    joined(third, address, token)
    assert eventually(lambda: len(second.nodes()) == 3 and second.nodes() == first.nodes())


# --------------------------------------------------------------------------------- somebody dies


def states(machine):
    return sorted(machine.nodes().values())


def test_a_node_whose_daemon_is_killed_is_known_as_dead(machines):
    first, second = machines(), machines()
    joined(second, *started(first))
    pid = second.status()["pid"]
    second.daemon_was_killed = True
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: states(first) == ["ALIVE", "DEAD"])
    text = first.hoplo("status").stdout
    assert re.search(r"^dead     [0-9a-f]{6}: its daemon is gone", text, re.M)


def test_the_dead_stood_before_the_living_and_each_had_a_line(machines):
    first, second, third = machines(), machines(), machines()
    address, token = started(first)
    for _ in range(2):
        joined(second, address, token)
        second.hoplo("stop")
    joined(third, address, token)
    eventually(lambda: states(first) == ["ALIVE", "ALIVE", "DEAD", "DEAD"])
    rows = first.status()["nodes"]
    assert [row["Alive"] for row in rows] == [True, True, False, False]
    assert rows[2]["NodeID"] > rows[3]["NodeID"], "the last one to die is the first of them"
    text = first.hoplo("status").stdout
    assert len(re.findall(r"^node ", text, re.M)) == 2
    [dead] = re.findall(r"^dead .*", text, re.M)
    assert f"2 nodes, the last one {rows[2]['NodeID']}: " in dead
    assert "hoplo list nodes shows" in dead


def test_a_node_that_stands_still_is_declared_dead_and_joins_again(machines):
    first, second = machines(), machines()
    joined(second, *started(first))
    [before] = [node for node in first.nodes() if node != first.status()["node"]]
    pid = second.status()["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        eventually(lambda: first.nodes()[before] == "DEAD")
    finally:
        os.kill(pid, signal.SIGCONT)
    eventually(lambda: states(first) == ["ALIVE", "ALIVE", "DEAD"])
    assert first.nodes()[before] == "DEAD", "that number is never used again"
    eventually(lambda: second.nodes() == first.nodes())
    assert second.status()["pid"] == pid


def test_a_head_that_is_stopped_ends_its_cluster(machines):
    first, second = machines(), machines()
    joined(second, *started(first))
    pid = second.status()["pid"]
    first.hoplo("stop")
    eventually(lambda: not alive(pid))
    assert not (first.home / ".hoplo" / "token").exists(), "it opens nothing any more"


def test_a_head_that_is_gone_for_a_while_finds_its_nodes_again(machines):
    first, second = machines(), machines()
    address, token = started(first)
    joined(second, address, token)
    before = first.nodes()
    pid = first.status()["pid"]
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not alive(pid))
    assert len(second.nodes()) == 2, "it goes on"
    first.hoplo("start", "--head", "--port", address.rsplit(":", 1)[1], "--num-cpus", "1")
    other = [node for node in before if node != second.status()["node"]]
    eventually(lambda: len(first.nodes()) == 2 and states(first) == ["ALIVE", "ALIVE"])
    assert not set(other) & set(first.nodes()), "a head's next life is another node"
    assert second.status()["node"] in first.nodes()


# ---------------------------------------------------------------------------------- it does not


def joined_in_vain(machine, address, token, **more):
    """The one line that says why."""
    told = ["--token-file", str(token)] if token else []
    done = machine.hoplo("start", "--address", address, *told, check=False, **more)
    assert done.returncode != 0
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert not with_environment("HOPLO_TMPDIR", str(machine.folder))
    return line


def test_without_a_token(machines):
    first, second = machines(), machines()
    address, _ = started(first)
    line = joined_in_vain(second, address, None)
    assert "HOPLO_TOKEN" in line
    assert "--token-file" in line


def test_with_a_token_that_others_may_read(machines):
    first, second = machines(), machines()
    address, token = started(first)
    copy = second.folder / "token"
    copy.write_text(token.read_text())
    copy.chmod(0o644)
    line = joined_in_vain(second, address, copy)
    assert str(copy) in line
    assert "chmod 600" in line


def test_with_a_token_that_was_cut(machines):
    first, second = machines(), machines()
    address, token = started(first)
    text = token.read_text().strip()[:-3]
    line = joined_in_vain(second, address, None, HOPLO_TOKEN=text)
    assert "HOPLO_TOKEN" in line
    assert text not in line, "nobody is to read it over the user's shoulder"


def test_with_the_token_of_another_cluster(machines):
    first, second, other = machines(), machines(), machines()
    address, _ = started(first)
    _, token = started(other)
    line = joined_in_vain(second, address, token)
    assert "cluster" in line
    assert str(token) in line


def test_where_nobody_listens(machines):
    first, second = machines(), machines()
    _, token = started(first)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
        line = joined_in_vain(second, address, token)
    assert address in line


def test_at_a_port_of_another_program(machines):
    first, second = machines(), machines()
    _, token = started(first)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        head = second.hoplo("start", "--head", "--port", address.split(":")[1], check=False)
        assert head.returncode != 0
        assert "--port" in head.stderr
        assert "taken" in head.stderr
        other.settimeout(20)

        def rubbish():
            connection, _ = other.accept()
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            connection.close()

        thread = threading.Thread(target=rubbish)
        thread.start()
        line = joined_in_vain(second, address, token)
        thread.join()
    assert address in line


def test_the_usual_port_is_taken_and_nobody_asked_for_it(machines):
    first, second, third = machines(), machines(), machines()
    told = [
        machine.hoplo("start", "--head", "--num-cpus", "1").stdout for machine in (first, second)
    ]
    (a, _), (b, token) = (JOIN.search(out).groups() for out in told)
    assert a != b
    joined(third, b, token)
    assert len(second.nodes()) == 2
    assert len(first.nodes()) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["start", "--head", "--address", "a:1"], "cannot be used with"),
        (["start", "--address", "nowhere.invalid:1"], "HOPLO_TOKEN"),
        (["start", "--token-file", "/x"], "--address"),
        (["start", "--address", "a:1", "--host", "b"], "cannot be used with"),
        (["token", "list"], "hoplo start --head"),
        (["token", "new", "--days", "0"], "--days"),
        (["token", "revoke", "12"], "hexadecimal"),
    ],
)
def test_a_wrong_command(machines, arguments, words):
    done = machines().hoplo(*arguments, check=False)
    assert done.returncode != 0
    assert words in done.stderr
    assert "panicked" not in done.stderr


def test_a_node_is_stopped_in_the_moment_in_which_it_hears_that_it_was_declared_dead(machines):
    """Between its session and the joining again, nothing was found and it came back."""
    first, second = machines(), machines()
    address, token = started(first)
    for _ in range(4):
        joined(second, address, token)
        daemon = second.status()["pid"]
        dead = list(first.nodes().values()).count("DEAD")
        os.kill(daemon, signal.SIGSTOP)
        try:
            assert eventually(lambda: list(first.nodes().values()).count("DEAD") > dead)
        finally:
            os.kill(daemon, signal.SIGCONT)
        second.hoplo("stop")
        assert not alive(daemon)


def test_a_node_that_cannot_join_again_is_stopped(machines):
    """It has no session meanwhile, and was not found."""
    first, second = machines(), machines()
    address, token = started(first)
    joined(second, address, token)
    daemon = second.status()["pid"]
    for line in re.findall(r"^([0-9a-f]{16}) ", first.hoplo("token", "list").stdout, re.M):
        first.hoplo("token", "revoke", line)
    os.kill(daemon, signal.SIGSTOP)
    try:
        assert eventually(lambda: list(first.nodes().values()).count("DEAD") == 1)
    finally:
        os.kill(daemon, signal.SIGCONT)
    assert eventually(lambda: list(second.folder.glob("again-*")))
    assert second.hoplo("status", check=False).returncode == 1
    out = second.hoplo("stop").stdout
    assert out == f"stopped process {daemon}, which waited to be of its cluster\n"
    assert not alive(daemon)
    assert not list(second.folder.glob("again-*"))
