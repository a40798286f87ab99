"""`hoplo start --head`: drivers come and go, detached actors and the daemon stay."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from conftest import command, eventually
from processes import alive, objects_left, program

import hoplo
from hoplo.exceptions import ActorDiedError, ConnectionFailedError, NodeDiedError

NODE = None
WITHIN = 2.0


def here():
    """For programs that join the test's own head."""
    return {"HOPLO_TMPDIR": os.environ["HOPLO_TMPDIR"]}


SHOP = """
import numpy as np
hoplo.init(address="auto", namespace="shop")

@hoplo.remote
class Till:
    def __init__(self):
        self.total = 0

    def sell(self, price):
        self.total += price
        return self.total

    def pid(self):
        return os.getpid()

    def keep(self, boxed):
        self.kept = boxed

    def kept_sum(self):
        return int(hoplo.get(self.kept[0]).sum())

@hoplo.remote
def block():
    forever()

detached = Till.options(name="till", lifetime="detached").remote()
plain = Till.options(name="plain").remote()
hoplo.get(detached.sell.remote(5))
kept = hoplo.put(np.ones(300_000, "uint8"))
lost = [hoplo.put(np.ones(300_000, "uint8")) for _ in range(5)]
hoplo.get(detached.keep.remote([kept]))
blocked = block.remote()
pids = hoplo.get([detached.pid.remote(), plain.pid.remote()])
print("pids", *pids, flush=True)
forever()
"""


def test_detached_actors_stay_and_everything_else_of_a_killed_driver_goes(head, tmp_path):
    head("--num-cpus", "4")
    with program(tmp_path, SHOP, environment=here()) as driver:
        detached, plain = map(int, driver.said("pids"))
        driver.kill()
        driver.end()
        eventually(lambda: not alive(plain), timeout=WITHIN, what="the plain actor is gone")
    hoplo.init(address="auto", namespace="shop")
    assert alive(detached)
    till = hoplo.get_actor("till")
    assert hoplo.get(till.sell.remote(2)) == 7
    assert hoplo.get(till.kept_sum.remote()) == 300_000  # it holds the ref: the object stays
    with pytest.raises(ValueError, match="plain"):
        hoplo.get_actor("plain")
    eventually(lambda: len(objects_left()) == 1, timeout=WITHIN, what="the other objects are gone")
    eventually(
        lambda: hoplo.available_resources()["CPU"] == 4, timeout=WITHIN, what="its CPUs are free"
    )
    hoplo.kill(till)
    eventually(lambda: not alive(detached))
    with pytest.raises(ActorDiedError, match="killed"):
        hoplo.get(till.sell.remote(1))


def test_another_namespace_does_not_see_it(head):
    head("--num-cpus", "2")
    hoplo.init(address="auto", namespace="one")

    @hoplo.remote
    class Here:
        def ping(self):
            return "pong"

    here = Here.options(name="here", lifetime="detached").remote()
    assert hoplo.get(here.ping.remote()) == "pong"
    hoplo.shutdown()
    hoplo.init(address="auto", namespace="two")
    with pytest.raises(ValueError, match="here"):
        hoplo.get_actor("here")
    again = hoplo.get_actor("here", namespace="one")
    assert hoplo.get(again.ping.remote()) == "pong"
    hoplo.kill(again)


def test_two_drivers_at_once_share_the_node_not_the_names(head, tmp_path):
    head("--num-cpus", "2")
    source = """
    hoplo.init(address="auto")

    @hoplo.remote
    def pid():
        return os.getpid()

    class Named:
        def ping(self):
            return "pong"

    named = hoplo.remote(Named).options(name="mine").remote()
    hoplo.get(named.ping.remote())
    print("node", hoplo.get_runtime_context().get_node_id(), flush=True)
    sys.stdin.readline()
    print("pids", *set(hoplo.get([pid.remote() for _ in range(100)])), flush=True)
    """
    with (
        program(tmp_path, source, environment=here()) as one,
        program(tmp_path, source, environment=here()) as two,
    ):
        assert one.said("node") == two.said("node")
        one.tell()
        two.tell()
        # Workers belong to one job: nothing of one program is left in the other's processes.
        assert not set(one.said("pids")) & set(two.said("pids"))
        assert (one.end(), two.end()) == (0, 0)


def test_the_functions_of_one_driver_kept_others_from_exporting_theirs(head, tmp_path):
    head("--num-cpus", "2")
    hoplo.init(address="auto")

    def make(captured):
        return hoplo.remote(lambda: len(captured))

    def fill():
        for _ in range(2000):
            make(os.urandom(80_000)).remote()

    large = [make(os.urandom(56 << 20)).remote() for _ in range(2)]
    with pytest.raises(RuntimeError, match="a job may have 67108864"):
        fill()
    source = """
    hoplo.init(address="auto")
    print("own", hoplo.get(hoplo.remote(lambda: os.getppid() > 0).remote()), flush=True)
    """
    with program(tmp_path, source, environment=here()) as other:
        assert other.said("own") == ["True"]
        assert other.end() == 0
    assert hoplo.get(large) == [56 << 20] * 2


def test_shutdown_of_a_driver_leaves_the_head(head):
    head("--num-cpus", "2")
    first = hoplo.init(address="auto")["node_id"]
    hoplo.shutdown()
    assert hoplo.init(address="auto")["node_id"] == first


def test_auto_without_a_head_says_what_to_start():
    with pytest.raises(ConnectionFailedError, match="hoplo start --head"):
        hoplo.init(address="auto")
    assert not hoplo.is_initialized()


def test_a_detached_actor_restarts_without_its_driver(head):
    head("--num-cpus", "2")
    hoplo.init(address="auto", namespace="shop")

    @hoplo.remote(max_restarts=1)
    class Server:
        def __init__(self, word):
            self.word = word

        def pid(self):
            return os.getpid()

        def say(self):
            return self.word

    server = Server.options(name="server", lifetime="detached").remote("still here")
    pid = hoplo.get(server.pid.remote())
    hoplo.shutdown()
    del server
    os.kill(pid, signal.SIGKILL)
    hoplo.init(address="auto", namespace="shop")
    server = hoplo.get_actor("server")
    assert hoplo.get(server.say.remote(), timeout=20) == "still here"
    assert hoplo.get(server.pid.remote()) != pid
    hoplo.kill(server)


def test_what_a_detached_actor_made_lives_as_long_as_it(head):
    head("--num-cpus", "4")
    hoplo.init(address="auto", namespace="shop")

    @hoplo.remote
    class Child:
        def pid(self):
            return os.getpid()

    @hoplo.remote
    class Parent:
        def __init__(self):
            self.child = Child.remote()
            self.object = hoplo.put(b"x" * 300_000)

        def child_pid(self):
            return hoplo.get(self.child.pid.remote())

        def length(self):
            return len(hoplo.get(self.object))

    parent = Parent.options(name="parent", lifetime="detached").remote()
    child = hoplo.get(parent.child_pid.remote())
    hoplo.shutdown()
    del parent
    hoplo.init(address="auto", namespace="shop")
    parent = hoplo.get_actor("parent")
    assert hoplo.get(parent.child_pid.remote()) == child
    assert hoplo.get(parent.length.remote()) == 300_000
    hoplo.kill(parent)
    eventually(lambda: not alive(child), what="the child ends with it")
    eventually(lambda: not objects_left(), what="and its objects")


def test_what_a_head_found_lost_at_its_start_was_not_in_its_log(head):
    head("--num-cpus", "1")
    status = json.loads(command("status", "--json").stdout)
    session, daemon = Path(status["session_dir"]), status["pid"]
    os.kill(daemon, signal.SIGKILL)
    eventually(lambda: not alive(daemon))
    (log,) = session.glob("control/log-*")
    with log.open("r+b") as file:
        file.seek(64)
        byte = file.read(1)
        file.seek(64)
        file.write(bytes([byte[0] ^ 1]))
    refused = command("start", "--head", "--num-cpus", "1", check=False)
    assert (refused.returncode, log.name in refused.stderr) == (1, True), refused
    head("--num-cpus", "1", "--accept-loss")
    told = (session / "daemon.log").read_text()
    assert "the control store begins with nothing" in told
    assert "what was there lies in" in told


def test_a_head_that_got_a_signal_and_still_ended_its_workers_was_said_to_run(head):
    head("--num-cpus", "1")
    status = json.loads(command("status", "--json").stdout)
    hoplo.init(address="auto")

    @hoplo.remote
    class Slow:
        def pid(self):
            return os.getpid()

    slow = Slow.options(name="slow", lifetime="detached").remote()
    worker = hoplo.get(slow.pid.remote())
    hoplo.shutdown()
    os.kill(worker, signal.SIGSTOP)  # so it does not leave, and is killed when its time is over
    os.kill(status["pid"], signal.SIGTERM)
    assert "goes on with the tables" in head("--num-cpus", "1")
    again = json.loads(command("status", "--json").stdout)
    assert again["pid"] != status["pid"]
    assert again["session_dir"] == status["session_dir"]


def test_stop_tells_the_drivers_that_are_there(head, gate):
    head("--num-cpus", "2")
    hoplo.init(address="auto")

    @hoplo.remote
    def wait():
        return gate.wait()

    ref = wait.remote()
    eventually(gate.arrived)
    command("stop")
    with pytest.raises(NodeDiedError, match="stopped"):
        hoplo.get(ref, timeout=20)
