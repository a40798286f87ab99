"""Two nodes that do not reach each other, while the head reaches both: nobody is dead.

And nodes that do not reach the head. Half a minute passes until somebody acts on that: it begins
before the first test, and passes for all at once.
"""

from __future__ import annotations

import subprocess
import time
from typing import Any

import pytest
from machines import Machine, alive, until
from test_head_moves import start_again

SOURCE = """
from hoplo.util.scheduling_strategies import NodeAffinitySchedulingStrategy

hoplo.init(address="auto")
[there] = [n["NodeID"] for n in hoplo.nodes() if n["NodeManagerAddress"] == "10.199.0.3"]

@hoplo.remote(num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(there))
def quick(x):
    return x

say(hoplo.get(quick.remote(1)))
heard()
ref = quick.remote(2)
say("called")
try:
    hoplo.get(ref, timeout=2)
except hoplo.exceptions.GetTimeoutError as error:
    say(str(error))
heard()
try:
    hoplo.get(ref, timeout=2)
except hoplo.exceptions.GetTimeoutError as error:
    say(str(error))
say(ref.hex())
heard()
say(hoplo.get(ref, timeout=60))
"""


def log(machine: Machine) -> str:
    return "".join(path.read_text() for path in machine.folder.rglob("daemon.log"))


def route(lab: Any, what: str, here: int, there: int) -> None:
    """Nothing leaves the one for the other while it is there."""
    line = ["ip", "-n", lab.namespace(here), "route", what, "blackhole"]
    subprocess.run([*line, f"{lab.address(there)}/32"], check=True, capture_output=True)


@pytest.fixture(scope="module", autouse=True)
def cut_off(make_module_lab: Any) -> Any:
    """The second node does not reach the head. The third one reaches both, so it is not dead."""
    lab = make_module_lab(nodes=3)
    head, *_ = lab.cluster()
    until(lambda: head.states() == ["ALIVE"] * 3)
    route(lab, "add", 2, 1)
    route(lab, "add", 1, 2)
    return lab


@pytest.fixture(scope="module", autouse=True)
def at_loopback(make_module_lab: Any) -> Any:
    """A head was started again where its own machine alone reaches it; what that said."""
    lab = make_module_lab(nodes=2)
    head, _ = lab.cluster()
    until(lambda: head.states() == ["ALIVE"] * 2)
    pid = head.pid
    lab.kill(pid)
    until(lambda: not alive(pid))
    _, out = start_again(head, "--host", "127.0.0.1", "--port", "0")
    return lab, out


def test_a_call_waited_for_a_node_that_was_not_reached_and_nothing_said_why(make_lab: Any) -> None:
    lab = make_lab(nodes=3)
    head, here, _ = lab.cluster()
    until(lambda: head.states() == ["ALIVE"] * 3)
    program = here.program(SOURCE)
    assert program.heard() == 1

    route(lab, "add", 2, 3)
    program.tell()
    assert program.heard() == "called"
    why = program.heard()
    assert "(so much is known here: whoever may know more did not answer within 0.2 s)" in why
    until(lambda: f"(node3) was not reached at {lab.address(3)}:" in log(here), 30)
    program.tell()
    why, ref = program.heard(), program.heard()
    names = f"(node3, {lab.address(3)}:"
    assert names in why
    assert ") has not been reached from node:" in why
    assert names in here.hoplo("why", ref).stdout
    listed = here.hoplo("list", "tasks")
    assert names in listed.stdout + listed.stderr
    program.tell()
    assert head.states() == ["ALIVE"] * 3, "the head reaches all of them"
    route(lab, "del", 2, 3)
    assert program.heard() == 2
    program.end()
    until(lambda: "is reached again" in log(here))


def test_machines_with_the_same_host_name_were_no_witnesses_for_each_other(make_lab: Any) -> None:
    lab = make_lab(nodes=3, one_name=True)
    head, *_ = lab.cluster()
    before = head.nodes()
    route(lab, "add", 2, 1)
    route(lab, "add", 1, 2)
    # By now its silence would have become a verdict.
    began = time.monotonic()
    until(lambda: time.monotonic() - began > 2)
    assert head.nodes() == before
    assert head.states() == ["ALIVE"] * 3


def test_a_node_that_was_cut_off_from_the_head_spoke_of_control_nodes(cut_off: Any) -> None:
    lab = cut_off
    head, node, _ = lab.machines
    names = f"this node has not reached the head ({lab.address(1)}:"
    until(lambda: names in log(node), 60, "it ends its workers")
    assert "control node" not in log(node)
    route(lab, "del", 2, 1)
    route(lab, "del", 1, 2)
    until(lambda: head.states().count("ALIVE") == 3, 60, "it joins again")


def test_a_head_that_its_nodes_do_not_reach_says_so_and_does_not_list_them_for_ever(
    at_loopback: Any,
) -> None:
    lab, out = at_loopback
    head, node = lab.machines
    assert "Note: other machines cannot come to 127.0.0.1, so that 1 node will be lost" in out
    why = "did not come to the head for 35 s"
    until(lambda: "DEAD" in head.states(), 60)
    assert why in head.hoplo("status").stdout
    until(lambda: f"declared dead: it answered, and {why}" in log(node), 10, "it is told")
