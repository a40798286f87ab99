"""What workers start ends with them, and its memory counts as theirs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from conftest import eventually, run_driver
from processes import Notes, alive, daemon_pid, zygote_pid

import hoplo
from hoplo.exceptions import ActorDiedError, OutOfMemoryError, WorkerCrashedError

MIB = 1 << 20
NODE = None


def start(how: str, notes: Notes) -> None:
    """Starts a process that stays for ever, and returns when it has noted its pid."""
    before = len(notes.lines())
    stay = f"open({notes.path!r}, 'a').write(f'{{__import__(\"os\").getpid()}}\\n')"
    stay += "; __import__('signal').pause()"
    if how == "Popen":
        subprocess.Popen([sys.executable, "-c", stay])
    elif how == "Popen in a session":
        subprocess.Popen([sys.executable, "-c", stay], start_new_session=True)
    elif os.fork() == 0:
        if how == "daemonic":
            os.setsid()
            if os.fork() > 0:
                os._exit(0)
        notes.add(os.getpid())
        while True:
            signal.pause()
    eventually(lambda: len(notes.lines()) > before)


HOW = ["Popen", "Popen in a session", "fork", "daemonic"]


@hoplo.remote
class Parent:
    def start(self, how, notes):
        start(how, notes)
        return os.getpid()

    def big(self):
        self.array = hoplo.get(hoplo.put(bytes(20 * MIB)))


@hoplo.remote(max_retries=0)
def start_and_stay(how, notes):
    start(how, notes)
    signal.pause()


def gone(notes: Notes) -> bool:
    return bool(notes.pids()) and not any(alive(pid) for pid in notes.pids())


@pytest.mark.parametrize("how", HOW)
def test_children_of_a_killed_actor_survived_it(fresh_node, tmp_path, how):
    fresh_node(num_cpus=1)
    notes = Notes(tmp_path / "pids")
    actor = Parent.remote()
    hoplo.get(actor.start.remote(how, notes))
    assert not gone(notes)
    hoplo.kill(actor)
    eventually(lambda: gone(notes), what="its child is gone")


@pytest.mark.parametrize("how", HOW)
def test_children_of_a_task_cancelled_by_force_survived_it(fresh_node, tmp_path, how):
    fresh_node(num_cpus=1)
    notes = Notes(tmp_path / "pids")
    ref = start_and_stay.remote(how, notes)
    eventually(notes.lines)
    hoplo.cancel(ref, force=True)
    eventually(lambda: gone(notes), what="its child is gone")


def test_children_of_an_actor_whose_handle_was_dropped_survived_it(fresh_node, tmp_path):
    fresh_node(num_cpus=1)
    notes = Notes(tmp_path / "pids")
    actor = Parent.remote()
    for how in HOW:
        hoplo.get(actor.start.remote(how, notes))
    del actor
    eventually(lambda: gone(notes), what="its children are gone")


def test_children_survived_shutdown(fresh_node, tmp_path):
    fresh_node(num_cpus=2)
    notes = Notes(tmp_path / "pids")
    actor = Parent.remote()
    for how in HOW:
        hoplo.get(actor.start.remote(how, notes))
    ref = start_and_stay.remote("daemonic", notes)
    eventually(lambda: len(notes.lines()) == len(HOW) + 1)
    hoplo.shutdown()
    eventually(lambda: gone(notes), timeout=2, what="they are gone")
    del ref


def test_children_survived_the_death_of_the_daemon(fresh_node, tmp_path):
    fresh_node(num_cpus=2)
    notes = Notes(tmp_path / "pids")
    actor = Parent.remote()
    for how in HOW:
        hoplo.get(actor.start.remote(how, notes))
    os.kill(daemon_pid(), signal.SIGKILL)
    eventually(lambda: gone(notes), what="they are gone")
    hoplo.shutdown()
    fresh_node(num_cpus=1)  # removes the files that the dead daemon left


def test_children_of_workers_whose_zygote_is_dead_survived_them(fresh_node, tmp_path):
    fresh_node(num_cpus=1)
    notes = Notes(tmp_path / "pids")
    actor = Parent.remote()
    worker = 0
    for how in HOW:
        worker = hoplo.get(actor.start.remote(how, notes))
    zygote = zygote_pid()
    os.kill(zygote, signal.SIGKILL)
    eventually(lambda: not alive(zygote))
    os.kill(worker, signal.SIGKILL)
    eventually(lambda: gone(notes), what="its children are gone")
    with pytest.raises(ActorDiedError, match="SIGKILL"):
        hoplo.get(actor.start.remote("fork", notes))
    assert hoplo.get(hoplo.remote(os.getpid).remote()) != worker


def test_children_of_a_task_that_ended_go_on_while_its_worker_lives(fresh_node, tmp_path):
    fresh_node(num_cpus=1)
    notes = Notes(tmp_path / "pids")

    @hoplo.remote
    def begin():
        start("daemonic", notes)
        return os.getpid()

    worker = hoplo.get(begin.remote())
    assert hoplo.get(hoplo.remote(os.getpid).remote()) == worker
    assert not gone(notes)
    os.kill(worker, signal.SIGKILL)
    eventually(lambda: gone(notes), what="its child is gone")


def test_a_forked_child_of_a_worker_kept_the_stores_memory(fresh_node, tmp_path):
    fresh_node(num_cpus=1, object_store_memory=64 * MIB)
    notes = Notes(tmp_path / "pids")
    actor = Parent.remote()
    hoplo.get(actor.big.remote())
    hoplo.get(actor.start.remote("daemonic", notes))
    hoplo.kill(actor)
    eventually(lambda: gone(notes), what="its child is gone")
    # All of the store is free again.
    refs = [hoplo.put(bytes(20 * MIB)) for _ in range(3)]
    assert [len(hoplo.get(ref)) for ref in refs] == [20 * MIB] * 3


EAT = "kept = b'\\1' * ({mebibytes} << 20); __import__('signal').pause()"


def test_memory_of_children_was_not_counted(fresh_node, tmp_path):
    fresh_node(num_cpus=1, memory=2048 * MIB)

    @hoplo.remote(memory=300 * MIB, max_retries=0)
    def feed():
        subprocess.Popen([sys.executable, "-c", EAT.format(mebibytes=600)])
        signal.pause()

    with pytest.raises(OutOfMemoryError, match="processes that it started"):
        hoplo.get(feed.remote(), timeout=60)


def test_memory_that_forked_children_share_is_counted_once(fresh_node, tmp_path):
    fresh_node(num_cpus=1, memory=2048 * MIB)

    @hoplo.remote(memory=600 * MIB, max_retries=0)
    def share():
        kept = b"\1" * (200 * MIB)
        children = []
        for _ in range(4):
            children.append(os.fork())
            if children[-1] == 0:
                signal.pause()
        deadline = time.monotonic() + 3  # the daemon looks ten times a second
        while time.monotonic() < deadline:
            if os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG) is not None:
                return "a child ended"
            time.sleep(0.01)
        return len(kept)

    assert hoplo.get(share.remote(), timeout=60) == 200 * MIB


def test_a_worker_that_dies_at_once_leaves_no_orphan(fresh_node, tmp_path):
    fresh_node(num_cpus=1)
    notes = Notes(tmp_path / "pids")

    @hoplo.remote(max_retries=0)
    def fall():
        start("daemonic", notes)
        os._exit(3)

    with pytest.raises(WorkerCrashedError):
        hoplo.get(fall.remote())
    eventually(lambda: gone(notes), what="its child is gone")


def test_a_driver_that_is_killed_left_its_workers_children(tmp_path):
    notes = Notes(tmp_path / "pids")
    run_driver(
        f"""
import os, signal, sys
sys.path[:0] = {sys.path!r}
import hoplo
from test_children import HOW, Notes, Parent
hoplo.init(num_cpus=1)
actor = Parent.remote()
for how in HOW:
    hoplo.get(actor.start.remote(how, Notes({notes.path!r})))
os.kill(os.getpid(), signal.SIGKILL)
""",
        check=False,
    )
    assert len(notes.lines()) == len(HOW)
    eventually(lambda: gone(notes), what="they are gone")
