"""A head is killed. The next one goes on with its tables: at the same place, or nodes follow it."""

from __future__ import annotations

import os
import signal
import socket
from typing import Any

from machines import JOIN, Joining, Machine, alive, until

ACTOR = """
hoplo.init(address="auto")

@hoplo.remote(num_cpus=0)
class Counter:
    def __init__(self):
        self.count = 0
    def add(self):
        self.count += 1
        return self.count

counter = Counter.options(name="kept").remote()
say(hoplo.get(counter.add.remote()))
heard()
# The name of a new one is written where the head is now.
another = Counter.options(name="new").remote()
say(hoplo.get([counter.add.remote(), another.add.remote()]))
heard()
"""


def kill_head(far: Any) -> None:
    pid = far.machines[0].pid
    os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(pid))


def all_live(machines: list[Machine]) -> bool:
    """As each of them sees it."""
    return all(machine.states().count("ALIVE") == len(machines) for machine in machines)


def start_again(machine: Machine, *flags: str) -> tuple[Joining, str]:
    out = machine._start("--head", *flags).stdout
    found = JOIN.search(out)
    assert found, out
    return Joining(found[1], found[2]), out  # type: ignore[arg-type]


def test_a_head_at_another_port_stranded_its_nodes_without_a_word(make_far: Any) -> None:
    far = make_far(3)
    before = far.joining.address
    program = far.machines[1].program(ACTOR)
    assert program.heard() == 1
    kill_head(far)
    joining, out = start_again(far.machines[0], "--port", "0")
    assert joining.address != before
    assert f"That head listened at {before}. It tells 2 nodes to come to {joining.address}." in out
    until(lambda: all_live(far.machines), what="the nodes follow")
    assert [far.machines[n].node_id for n in (1, 2)] == far.ids[1:], "as who they were"
    program.tell()
    assert program.heard() == [2, 1]
    program.tell()
    program.end()
    # Who names the head's address finds the node that followed, and others join there.
    connected = far.machines[2].run(
        "hoplo.init(address=sys.argv[1]); say(hoplo.get_runtime_context().get_node_id())",
        joining.address,
    )
    assert connected == far.ids[2]
    far.joining = joining
    far.add()
    until(lambda: all_live(far.machines))


def test_a_head_goes_on_where_the_one_before_it_was(make_far: Any) -> None:
    far = make_far(2)
    kill_head(far)
    joining, out = start_again(far.machines[0])
    assert joining.address == far.joining.address
    assert "That head listened" not in out
    until(lambda: all_live(far.machines))
    # That port is somebody else's by now, and nobody asked for just that one.
    kill_head(far)
    # The threads of a daemon that was killed may hold it for a moment.
    with until(lambda: socket.create_server(("127.0.0.1", joining.port))):
        elsewhere, out = start_again(far.machines[0])
        assert elsewhere.address != joining.address
        assert f"It tells 1 node to come to {elsewhere.address}." in out
        until(lambda: all_live(far.machines))
