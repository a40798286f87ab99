"""`hoplo.init(address="HOST:PORT")`: on machines of a cluster, and on those without a node."""

import subprocess
import sys

import pytest
from conftest import eventually
from processes import with_environment
from test_nodes_that_join import joined, machines, started  # noqa: F401

NODE = None

PROGRAM = """
import hoplo
try:
    hoplo.init(address={address!r}{more})
except (ValueError, hoplo.exceptions.HoploError, ConnectionError) as error:
    print("refused:", error)
    raise SystemExit(1)
"""


def program(machine, address, text="", more="", check=True, **environment):
    return subprocess.run(
        [sys.executable, "-c", PROGRAM.format(address=address, more=more) + text],
        env=machine.environment(**environment),
        capture_output=True,
        text=True,
        timeout=90,
        check=check,
    )


def refusal(done):
    assert done.returncode == 1, done.stdout + done.stderr
    line = done.stdout.strip()
    assert line.startswith("refused: ")
    assert "\n" not in line
    return line


# ------------------------------------------------------------------------------ what goes wrong


@pytest.mark.parametrize(
    "address",
    ["host:", ":6379", "host:port", "ray://host:10001", "hoplo://host", "a b:1", "a:1,", "a:1,b"],
)
def test_what_is_no_address_is_refused_at_once(machines, address):  # noqa: F811
    assert "HOST:PORT" in refusal(program(machines(), address, check=False))


def test_what_a_node_has_is_not_said_by_who_joins_a_cluster(machines):  # noqa: F811
    done = program(machines(), "127.0.0.1:1", more=", num_cpus=2", check=False)
    assert "leave out num_cpus" in refusal(done)


def test_a_token_is_for_a_cluster(machines):  # noqa: F811
    done = program(machines(), "local", more=", _token_file='x'", check=False)
    assert "_token_file is for" in refusal(done)


def test_without_a_token_it_is_said_where_one_could_be(machines):  # noqa: F811
    first, second = machines(), machines()
    address, _ = started(first)
    assert "no token is given" in refusal(program(second, address, check=False))


def test_a_token_of_another_cluster_is_refused(machines):  # noqa: F811
    first, second, third = machines(), machines(), machines()
    address, _ = started(first)
    _, token = started(second)
    done = program(third, address, more=f", _token_file={str(token)!r}", check=False)
    assert "give the token of that cluster" in refusal(done)


def test_where_nobody_listens_that_is_said(machines):  # noqa: F811
    first, second = machines(), machines()
    address, _ = started(first)
    first.hoplo("stop")
    token_text = "hoplo1." + "0" * 10
    done = program(second, address, check=False, HOPLO_TOKEN=token_text)
    assert refusal(done)


# ------------------------------------------------------------------------------------ it works

TELLS = (
    "context = hoplo.get_runtime_context()\n"
    "nodes = {row['NodeID']: row for row in hoplo.nodes() if row['Alive']}\n"
    "print(nodes[context.get_node_id()]['Resources'].get('CPU', 0), len(nodes))\n"
)


def test_a_program_without_a_node_has_one_without_cpus_that_ends_with_it(machines):  # noqa: F811
    first, second = machines(), machines()
    address, token = started(first)
    more = f", _token_file={str(token)!r}"
    done = program(second, address, TELLS, more)
    assert done.stdout.split() == ["0", "2"] or done.stdout.split() == ["0.0", "2"]
    assert eventually(lambda: sum(state == "ALIVE" for state in first.nodes().values()) == 1)
    assert eventually(lambda: not with_environment("HOPLO_TMPDIR", str(second.folder)))
    # With the scheme, and with the token in the variable.
    text = token.read_text().strip()
    done = program(second, f"hoplo://{address}", TELLS, HOPLO_TOKEN=text)
    assert done.stdout.split()[1] == "2"


def test_nobody_else_finds_the_node_of_a_program(machines):  # noqa: F811
    first, second = machines(), machines()
    address, token = started(first)
    inner = (
        "import subprocess, sys\n"
        "code = \"import hoplo; hoplo.init(address='auto')\"\n"
        "done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)\n"
        "print(done.returncode != 0 and 'no node runs on this machine' in done.stderr)\n"
    )
    done = program(second, address, inner, f", _token_file={str(token)!r}")
    assert done.stdout.split() == ["True"]


def test_where_a_node_of_the_cluster_runs_that_one_is_used(machines):  # noqa: F811
    first, second = machines(), machines()
    address, token = started(first)
    joined(second, address, token)
    # No token: nobody has to join.
    assert program(first, address, TELLS).stdout.split() == ["1.0", "2"]
    assert program(second, address, TELLS).stdout.split() == ["2.0", "2"]
    named = address.replace("127.0.0.1", "localhost")
    assert program(first, named, TELLS).stdout.split() == ["1.0", "2"]


def test_a_task_of_a_program_without_a_node_runs_on_the_cluster(machines):  # noqa: F811
    first, second = machines(), machines()
    address, token = started(first)
    text = (
        "@hoplo.remote\n"
        "def where():\n"
        "    return hoplo.get_runtime_context().get_node_id()\n"
        "print(hoplo.get(where.remote()) != hoplo.get_runtime_context().get_node_id())\n"
    )
    done = program(second, address, text, f", _token_file={str(token)!r}")
    assert done.stdout.split() == ["True"]


# ------------------------------------------------------------------------------ another Python


def test_a_node_of_another_python_is_refused_with_both_named(machines, tmp_path):  # noqa: F811
    first, second = machines(), machines()
    address, token = started(first)
    other = tmp_path / "python"
    other.write_text("#!/bin/sh\necho 3.1\n")
    other.chmod(0o755)
    told = ["--token-file", str(token), "--python", str(other)]
    done = second.hoplo("start", "--address", address, *told, check=False)
    assert done.returncode == 1
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert f"run Python 3.1, and those of the cluster's head Python {version}" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    states = sorted(first.nodes().values())
    assert states == ["ALIVE", "DEAD"]
    assert all("hoplo.python" not in row["Labels"] for row in first.status()["nodes"])
