"""The node's daemon dies: one clear error, nothing hangs, nothing stays, the next init works."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from pathlib import Path

import pytest
from conftest import eventually
from processes import alive, daemon_pid, descendants, program

import hoplo
from hoplo.exceptions import HoploError, NodeDiedError

NODE = None


@pytest.fixture
def doomed_node(fresh_node):
    """`init` of a node whose daemon dies; the next one removes what it left."""
    yield fresh_node
    hoplo.shutdown()
    hoplo.init(num_cpus=1)


@hoplo.remote
def wait(gate):
    return gate.wait("through")


@hoplo.remote
class Actor:
    def pid(self):
        return os.getpid()


def kill_daemon(number=signal.SIGKILL):
    pid = daemon_pid()
    workers = descendants() - {pid}
    os.kill(pid, number)
    return pid, workers


def test_everything_that_waits_is_told(doomed_node, gate):
    doomed_node(num_cpus=2)
    actor = Actor.remote()
    hoplo.get(actor.pid.remote())
    running = wait.remote(gate)
    queued = [wait.remote(gate) for _ in range(10)]
    future = running.future()
    errors = []

    def getter():
        try:
            hoplo.get(queued)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=getter)
    thread.start()
    eventually(gate.arrived)
    _, workers = kill_daemon()
    with pytest.raises(NodeDiedError) as caught:
        hoplo.get(running)
    assert "shutdown" in str(caught.value)
    assert "init" in str(caught.value)
    thread.join(20)
    assert [type(error) for error in errors] == [NodeDiedError]
    assert isinstance(future.exception(timeout=20), NodeDiedError)
    eventually(lambda: not any(map(alive, workers)), what="workers and the zygote exit")


def test_awaited_refs_are_told(doomed_node, gate):
    doomed_node(num_cpus=1)

    async def main():
        ref = wait.remote(gate)
        while not gate.arrived():
            await asyncio.sleep(0.001)
        kill_daemon()
        with pytest.raises(NodeDiedError):
            await ref

    asyncio.run(main())


def test_calls_made_afterwards_are_told(doomed_node, gate):
    doomed_node(num_cpus=1)
    actor = Actor.remote()
    hoplo.get(actor.pid.remote())
    small = hoplo.put("small")
    kill_daemon()
    with pytest.raises(NodeDiedError):
        hoplo.get(wait.remote(gate), timeout=20)
    for call in (
        lambda: hoplo.get(wait.remote(gate), timeout=20),
        lambda: hoplo.get(actor.pid.remote(), timeout=20),
        lambda: hoplo.get(hoplo.put(b"x" * 1_000_000), timeout=20),
        lambda: hoplo.get_actor("nobody"),
        lambda: Actor.options(name="somebody").remote(),
        lambda: hoplo.nodes(),
        lambda: hoplo.cluster_resources(),
    ):
        with pytest.raises(HoploError) as caught:
            call()
        assert isinstance(caught.value, NodeDiedError)
    assert hoplo.get(small) == "small"  # it lies in this process
    assert hoplo.wait([wait.remote(gate)], timeout=20)[1] == []  # ready: it failed


def test_the_next_init_works_and_removes_what_was_left(doomed_node):
    context = doomed_node(num_cpus=1, object_store_memory=64 << 20)
    folder = Path(context["session_dir"])
    objects = [hoplo.put(bytes(8 << 20)) for _ in range(12)]
    hoplo.get(Actor.remote().pid.remote())
    assert any((folder / "spill").iterdir())
    kill_daemon()
    with pytest.raises(NodeDiedError):
        hoplo.get(Actor.remote().pid.remote(), timeout=20)
    del objects
    hoplo.shutdown()
    hoplo.init(num_cpus=1)
    assert hoplo.get(Actor.remote().pid.remote(), timeout=20)
    assert not (folder / "spill").exists()
    assert not (folder / "sock").exists()
    assert not (folder / "lock").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGABRT])
def test_whatever_the_signal(doomed_node, number):
    doomed_node(num_cpus=1)
    hoplo.get(Actor.remote().pid.remote())
    kill_daemon(number)
    with pytest.raises(NodeDiedError):
        hoplo.get(Actor.remote().pid.remote(), timeout=20)
    hoplo.shutdown()
    hoplo.init(num_cpus=1)
    assert hoplo.get(Actor.remote().pid.remote(), timeout=20)


def test_twenty_times_in_a_row(doomed_node):
    for _ in range(20):
        doomed_node(num_cpus=1)
        kill_daemon()
        hoplo.shutdown()
    doomed_node(num_cpus=1)
    assert hoplo.get(Actor.remote().pid.remote(), timeout=20)


def test_workers_inside_a_task_or_in_c_exit_too(doomed_node, gate):
    doomed_node(num_cpus=3)

    @hoplo.remote
    def spin(gate):
        gate.wait()

    @hoplo.remote
    def stubborn(gate):
        while True:
            try:
                gate.wait()
            except BaseException:
                continue

    @hoplo.remote
    def parent(gate):
        return hoplo.get(wait.remote(gate))

    refs = [spin.remote(gate), stubborn.remote(gate), parent.remote(gate)]
    eventually(lambda: gate.arrived() == 3)
    _, workers = kill_daemon()
    assert len(workers) >= 4
    eventually(lambda: not any(map(alive, workers)), what="workers exit")
    for ref in refs:
        with pytest.raises(NodeDiedError):
            hoplo.get(ref, timeout=20)


def test_a_program_that_does_not_catch_it_ends_with_one_traceback(tmp_path):
    source = """
    hoplo.init(num_cpus=1)

    @hoplo.remote
    def block():
        print("up", flush=True)
        forever()

    ref = block.remote()
    print("daemon", daemon_pid(), flush=True)
    hoplo.get(ref)
    """
    with program(tmp_path, source) as driver:
        (daemon,) = driver.said("daemon")
        driver.said("(block")
        os.kill(int(daemon), signal.SIGKILL)
        assert driver.end() == 1
        text = driver.error_text()
        assert text.count("Traceback") == 1, text
        assert "NodeDiedError" in text.splitlines()[-1]
        eventually(lambda: not driver.processes())


def test_the_zygote_dies_and_tasks_go_on(doomed_node):
    doomed_node(num_cpus=2)
    first = hoplo.get(Actor.remote().pid.remote())
    parent = int(Path(f"/proc/{first}/stat").read_text().rpartition(")")[2].split()[1])
    assert parent in descendants() - {daemon_pid()}
    os.kill(parent, signal.SIGKILL)
    eventually(lambda: not alive(parent))
    actors = [Actor.remote() for _ in range(3)]
    assert len(set(hoplo.get([actor.pid.remote() for actor in actors], timeout=30))) == 3
