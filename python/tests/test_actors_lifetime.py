"""Actors: names, namespaces, scopes and ends. Detached ones: test_failures_driver."""

from __future__ import annotations

import gc
import os
import signal

import pytest
from conftest import eventually
from processes import Notes, alive

import hoplo
from hoplo.exceptions import ActorDiedError


@hoplo.remote
class Counter:
    def __init__(self, notes=None):
        self.value = 0
        if notes is not None:
            notes.add(os.getpid())

    def add(self):
        self.value += 1
        return self.value

    def pid(self):
        return os.getpid()

    def leave(self, manner="exit_actor"):
        if manner == "exit_actor":
            hoplo.exit_actor()
        if manner == "SystemExit":
            raise SystemExit(0)
        os._exit(7)

    def wait(self, gate):
        gate.wait()
        return "waited"


# ------------------------------------------------------------------------------- names


def test_a_named_actor_is_found_from_anywhere():
    counter = Counter.options(name="found").remote()
    assert hoplo.get_actor("found") == counter
    assert hoplo.get(hoplo.get_actor("found").add.remote()) == 1

    @hoplo.remote
    def elsewhere():
        return hoplo.get(hoplo.get_actor("found").add.remote())

    assert hoplo.get(elsewhere.remote()) == 2


def test_a_name_is_taken_once():
    first = Counter.options(name="once").remote()
    with pytest.raises(ValueError, match=r"'?\"?once.*get_if_exists=True"):
        Counter.options(name="once").remote()
    hoplo.kill(first)
    eventually(lambda: Counter.options(name="once").remote(), what="the name is free again")


def test_get_if_exists_finds_or_makes():
    first = Counter.options(name="shared", get_if_exists=True).remote()
    hoplo.get(first.add.remote())
    second = Counter.options(name="shared", get_if_exists=True).remote()
    assert second == first
    assert hoplo.get(second.add.remote()) == 2
    with pytest.raises(ValueError, match="get_if_exists=True needs a name"):
        Counter.options(get_if_exists=True).remote()


def test_get_if_exists_from_many_tasks_makes_one(tmp_path):
    notes = Notes(tmp_path / "made")

    @hoplo.remote
    def join():
        counter = Counter.options(name="one of us", get_if_exists=True).remote(notes)
        return hoplo.get(counter.add.remote()), counter

    answers = hoplo.get([join.remote() for _ in range(8)])
    assert sorted(value for value, _ in answers) == list(range(1, 9))
    assert len(notes.lines()) == 1


def test_to_name_an_actor_whose_argument_failed_waited_for_ever():
    @hoplo.remote
    def fails():
        raise ValueError("no model")

    actor = Counter.options(name="of nothing").remote(fails.remote())
    with pytest.raises(ValueError, match="no model"):
        hoplo.get(actor.add.remote(), timeout=20)


def test_an_unknown_name_is_a_value_error_that_names_the_nearest():
    keep = Counter.options(name="parameter-server").remote()
    with pytest.raises(ValueError, match="parameter-server"):
        hoplo.get_actor("parameter_server")
    with pytest.raises(ValueError, match="nobody"):
        hoplo.get_actor("nobody")
    with pytest.raises(TypeError, match="name must be a str"):
        hoplo.get_actor(3)
    del keep


def test_namespaces_keep_names_apart():
    here = Counter.options(name="same").remote()
    there = Counter.options(name="same", namespace="there").remote()
    assert here != there
    assert hoplo.get_actor("same") == here
    assert hoplo.get_actor("same", namespace="there") == there
    with pytest.raises(ValueError, match="same"):
        hoplo.get_actor("same", namespace="nowhere")


# ------------------------------------------------------------------------------- scope


def test_out_of_scope_it_finishes_its_calls_and_ends(tmp_path):
    notes = Notes(tmp_path / "calls")

    @hoplo.remote
    class Worker:
        def work(self, i):
            notes.add(i)

        def pid(self):
            return os.getpid()

    worker = Worker.remote()
    pid = hoplo.get(worker.pid.remote())
    for i in range(50):
        worker.work.remote(i)
    del worker
    eventually(lambda: not alive(pid), what="the process ends")
    assert notes.lines() == [str(i) for i in range(50)]


def test_it_lives_while_any_handle_does():
    @hoplo.remote
    class Keeper:
        def keep(self, handles):
            self.handles = handles

        def ask(self):
            return hoplo.get(self.handles[0].add.remote())

        def drop(self):
            self.handles = None

    counter, keeper = Counter.remote(), Keeper.remote()
    pid = hoplo.get(counter.pid.remote())
    hoplo.get(keeper.keep.remote([counter]))
    del counter
    gc.collect()
    assert hoplo.get(keeper.ask.remote()) == 1
    assert alive(pid)
    hoplo.get(keeper.drop.remote())
    eventually(lambda: not alive(pid), what="it ends with its last handle")


def test_a_handle_inside_an_object_keeps_it():
    counter = Counter.remote()
    pid = hoplo.get(counter.pid.remote())
    box = hoplo.put({"counter": counter})
    del counter
    assert hoplo.get(hoplo.get(box)["counter"].add.remote()) == 1
    assert alive(pid)
    del box
    gc.collect()
    eventually(lambda: not alive(pid), what="it ends with the object that held it")


def test_terminate_runs_what_was_called_before():
    counter = Counter.remote()
    before = counter.add.remote()
    pid = hoplo.get(counter.pid.remote())
    counter.__hoplo_terminate__.remote()
    assert hoplo.get(before) == 1
    eventually(lambda: not alive(pid))
    with pytest.raises(ActorDiedError):
        hoplo.get(counter.add.remote())


# ------------------------------------------------------------------------------- kill, exit


def test_kill_ends_it_in_the_middle_of_a_call(gate):
    counter = Counter.remote()
    pid = hoplo.get(counter.pid.remote())
    running, waiting = counter.wait.remote(gate), counter.add.remote()
    eventually(gate.arrived)
    hoplo.kill(counter)
    for ref in (running, waiting, counter.add.remote()):
        with pytest.raises(ActorDiedError, match=r"Counter .*was killed by hoplo.kill\(\)"):
            hoplo.get(ref)
    eventually(lambda: not alive(pid))


def test_kill_before_it_has_started():
    counter = Counter.remote()
    hoplo.kill(counter)
    with pytest.raises(ActorDiedError, match="killed"):
        hoplo.get(counter.add.remote())


def test_a_kill_before_its_argument_was_there_waited_for_the_argument(gate, tmp_path):
    @hoplo.remote
    def later(gate, notes):
        gate.wait()
        return notes

    notes = Notes(tmp_path / "notes")
    pending = later.remote(gate, notes)
    counter = Counter.remote(pending)
    early = counter.add.remote()
    hoplo.kill(counter)
    for ref in (early, counter.add.remote()):
        with pytest.raises(ActorDiedError, match=r"Counter .*was killed by hoplo.kill\(\)"):
            hoplo.get(ref, timeout=20)
    gate.open()
    hoplo.get(pending)
    assert hoplo.get(Counter.remote().add.remote()) == 1
    assert not notes.lines(), "its constructor never ran"


def test_kill_takes_handles_only():
    with pytest.raises(TypeError, match=r"kill takes an actor's handle.*use hoplo.cancel"):
        hoplo.kill(hoplo.put(1))
    with pytest.raises(TypeError, match="kill takes an actor's handle, not 3"):
        hoplo.kill(3)


def test_exit_actor_is_for_good_whatever_max_restarts_says():
    counter = Counter.options(max_restarts=-1).remote()
    pid = hoplo.get(counter.pid.remote())
    left, after = counter.leave.remote(), counter.add.remote()
    for ref in (left, after, counter.add.remote()):
        with pytest.raises(ActorDiedError, match="exit_actor"):
            hoplo.get(ref)
    eventually(lambda: not alive(pid))
    with pytest.raises(RuntimeError, match="does not run in one"):
        hoplo.exit_actor()


def test_system_exit_ends_it_too():
    counter = Counter.remote()
    pid = hoplo.get(counter.pid.remote())
    with pytest.raises(ActorDiedError):
        hoplo.get(counter.leave.remote("SystemExit"))
    eventually(lambda: not alive(pid))


def test_a_signal_that_another_thread_took_waited_for_the_next_call(gate):
    """An async actor sleeps in its event loop; Python handles signals in that thread only."""

    @hoplo.remote
    class Async:
        async def pid(self):
            return os.getpid()

        async def work(self):
            import asyncio
            import threading

            def run():
                asleep = 0
                while asleep < 100:  # looks in a row: the main thread waits for more than the GIL
                    with open(f"/proc/self/task/{os.getpid()}/stat") as file:
                        asleep = (
                            asleep + 1 if file.read().rpartition(")")[2].split()[0] == "S" else 0
                        )
                signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
                return gate.wait("done")

            return await asyncio.to_thread(run)

    actor = Async.remote()
    pid = hoplo.get(actor.pid.remote())
    running = actor.work.remote()
    eventually(lambda: gate.arrived() == 1)
    eventually(lambda: not catches(pid, signal.SIGTERM))
    gate.open()
    assert hoplo.get(running, timeout=20) == "done"


@pytest.mark.parametrize("kind", ["threads", "async"])
def test_sigterm_killed_an_actor_under_the_calls_that_ran(gate, kind):
    @hoplo.remote(max_concurrency=2)
    class Threads:
        def pid(self):
            return os.getpid()

        def work(self, number):
            return gate.wait(number)

    @hoplo.remote
    class Async:
        async def pid(self):
            return os.getpid()

        async def work(self, number):
            import asyncio

            return await asyncio.to_thread(gate.wait, number)

    actor = (Threads if kind == "threads" else Async).remote()
    pid = hoplo.get(actor.pid.remote())
    running = [actor.work.remote(number) for number in range(2)]
    eventually(lambda: gate.arrived() == 2)
    os.kill(pid, signal.SIGTERM)
    eventually(lambda: not catches(pid, signal.SIGTERM))
    late = actor.pid.remote()
    gate.open()
    assert hoplo.get(running, timeout=30) == [0, 1]
    with pytest.raises(ActorDiedError, match=r"(?s)exited with code 143.*SIGTERM"):
        hoplo.get(late, timeout=30)


def test_a_second_sigterm_does_not_wait(gate):
    @hoplo.remote(max_concurrency=2)
    class Threads:
        def pid(self):
            return os.getpid()

        def work(self):
            return gate.wait(1)

    actor = Threads.remote()
    pid = hoplo.get(actor.pid.remote())
    running = actor.work.remote()
    eventually(lambda: gate.arrived() == 1)
    os.kill(pid, signal.SIGTERM)
    eventually(lambda: not catches(pid, signal.SIGTERM))
    os.kill(pid, signal.SIGTERM)
    with pytest.raises(ActorDiedError, match="SIGTERM"):
        hoplo.get(running, timeout=30)


def catches(pid, number):
    """Whether that process has a handler for the signal."""
    with open(f"/proc/{pid}/status") as file:
        (mask,) = (line.split()[1] for line in file if line.startswith("SigCgt:"))
    return bool(int(mask, 16) >> (number - 1) & 1)
