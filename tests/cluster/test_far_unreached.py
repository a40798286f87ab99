"""Two nodes that do not reach each other, while the head reaches both: nobody is dead."""

from __future__ import annotations

import subprocess
from typing import Any

from machines import Machine, until

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
say(hoplo.get(ref, timeout=60))
"""


def log(machine: Machine) -> str:
    return "".join(path.read_text() for path in machine.folder.rglob("daemon.log"))


def test_a_call_waited_for_a_node_that_was_not_reached_and_nothing_said_why(make_lab: Any) -> None:
    lab = make_lab(nodes=3)
    head, here, _ = lab.cluster()
    until(lambda: head.states() == ["ALIVE"] * 3)
    program = here.program(SOURCE)
    assert program.heard() == 1

    def route(what: str) -> None:
        line = ["ip", "-n", lab.namespace(2), "route", what, "blackhole", f"{lab.address(3)}/32"]
        subprocess.run(line, check=True, capture_output=True)

    route("add")
    program.tell()
    assert program.heard() == "called"
    why = program.heard()
    assert "(so much is known here: whoever may know more did not answer within 0.2 s)" in why
    until(lambda: f"(node3) was not reached at {lab.address(3)}:" in log(here), 30)
    assert head.states() == ["ALIVE"] * 3, "the head reaches all of them"
    route("del")
    assert program.heard() == 2
    program.end()
    until(lambda: "is reached again" in log(here))
