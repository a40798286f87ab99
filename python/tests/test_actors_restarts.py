"""Actors that crash: what is told, what restarts, what runs again."""

from __future__ import annotations

import gc
import os
import signal

import pytest
from conftest import eventually
from processes import Notes, alive

import hoplo
from hoplo.exceptions import ActorDiedError, ActorUnavailableError, GetTimeoutError


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

    def leave(self):
        os._exit(7)

    def wait(self, gate):
        gate.wait()
        return "waited"

    def restarted(self):
        return hoplo.get_runtime_context().was_current_actor_reconstructed


def test_a_crash_is_told_with_its_cause_and_last_lines():
    @hoplo.remote
    class Loud:
        def die(self):
            print("last words of Loud", flush=True)
            signal.raise_signal(signal.SIGSEGV)

    loud = Loud.remote()
    with pytest.raises(ActorDiedError) as caught:
        hoplo.get(loud.die.remote())
    text = str(caught.value)
    assert "SIGSEGV (11)" in text
    assert "last words of Loud" in text
    assert "Loud" in text
    counter = Counter.remote()
    with pytest.raises(ActorDiedError, match="exited with code 7"):
        hoplo.get(counter.leave.remote())


def test_max_restarts_makes_it_anew(tmp_path):
    notes = Notes(tmp_path / "started")
    counter = Counter.options(max_restarts=1).remote(notes)
    hoplo.get(counter.add.remote())
    first = hoplo.get(counter.pid.remote())
    assert not hoplo.get(counter.restarted.remote())
    os.kill(first, signal.SIGKILL)

    second = eventually(lambda: hoplo.get(counter.pid.remote()), what="it is back")
    assert second != first
    assert hoplo.get(counter.add.remote()) == 1  # its state was lost, its arguments were not
    assert hoplo.get(counter.restarted.remote())
    assert notes.pids() == [first, second]

    os.kill(second, signal.SIGKILL)
    eventually(lambda: not alive(second))
    with pytest.raises(ActorDiedError, match=r"SIGKILL \(9\)"):
        hoplo.get(counter.add.remote())


def test_a_call_that_ran_when_it_crashed_is_unavailable_not_repeated(tmp_path):
    notes = Notes(tmp_path / "runs")

    @hoplo.remote(max_restarts=1)
    class Crasher:
        def crash_once(self):
            if notes.add() == 1:
                os._exit(3)
            return "second time"

        def work(self):
            return "works"

    crasher = Crasher.remote()
    crashed, after = crasher.crash_once.remote(), crasher.work.remote()
    with pytest.raises(ActorUnavailableError, match="max_task_retries"):
        hoplo.get(crashed)
    assert hoplo.get(after) == "works"  # it had not started: no harm in running it
    assert len(notes.lines()) == 1


def test_max_task_retries_runs_it_again(tmp_path):
    notes = Notes(tmp_path / "runs")

    @hoplo.remote(max_restarts=2, max_task_retries=2)
    class Crasher:
        def __init__(self):
            self.calls = 0

        def crash_twice(self):
            if notes.add() <= 2:
                os._exit(3)
            return "third time"

        def count(self):
            self.calls += 1
            return self.calls

    crasher = Crasher.remote()
    crashed = crasher.crash_twice.remote()
    counts = [crasher.count.remote() for _ in range(3)]
    assert hoplo.get(crashed) == "third time"
    assert hoplo.get(counts) == [1, 2, 3]  # after it, in order


def test_a_method_may_retry_what_it_raises(tmp_path):
    notes = Notes(tmp_path / "runs")

    @hoplo.remote
    class Flaky:
        @hoplo.method(max_task_retries=3, retry_exceptions=[ConnectionError])
        def fetch(self, notes, kind):
            if notes.add() < 3:
                raise kind("try again")
            return "fetched"

    assert hoplo.get(Flaky.remote().fetch.remote(notes, ConnectionError)) == "fetched"
    assert len(notes.lines()) == 3
    with pytest.raises(KeyError):
        hoplo.get(Flaky.remote().fetch.remote(Notes(tmp_path / "others"), KeyError))


def test_kill_without_no_restart_restarts(tmp_path):
    notes = Notes(tmp_path / "started")
    counter = Counter.options(max_restarts=1).remote(notes)
    first = hoplo.get(counter.pid.remote())
    hoplo.kill(counter, no_restart=False)
    eventually(lambda: not alive(first))
    assert hoplo.get(counter.add.remote()) == 1
    assert len(notes.lines()) == 2


def test_a_constructor_argument_is_there_again_for_a_restart():
    numpy = pytest.importorskip("numpy")

    @hoplo.remote(max_restarts=1)
    class Model:
        def __init__(self, boxed):
            self.weights = hoplo.get(boxed[0])

        def total(self):
            return float(self.weights.sum())

        def pid(self):
            return os.getpid()

    weights = hoplo.put(numpy.ones(300_000))
    model = Model.remote([weights])
    pid = hoplo.get(model.pid.remote())
    del weights
    gc.collect()
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not alive(pid))
    assert hoplo.get(model.total.remote()) == 300_000


def test_why_a_call_waits_for_its_actor(gate):
    counter = Counter.remote()
    busy = counter.wait.remote(gate)
    eventually(gate.arrived)
    with pytest.raises(GetTimeoutError, match=r"actor:\w+"):
        hoplo.get(counter.add.remote(), timeout=0.2)
    gate.open()
    assert hoplo.get(busy) == "waited"


@hoplo.remote(max_restarts=2)
class Several:
    """Runs several calls at once, and dies of any of them."""

    def pid(self):
        return os.getpid()

    def wait(self, gate):
        return gate.wait("waited")

    def crash(self):
        os._exit(8)


@hoplo.remote(max_restarts=2)
class SeveralCoroutines:
    async def pid(self):
        return os.getpid()

    async def wait(self, gate):
        import asyncio

        return await asyncio.to_thread(gate.wait, "waited")

    async def crash(self):
        os._exit(8)


@pytest.mark.parametrize("kind", ["threads", "coroutines"])
def test_all_calls_that_run_at_once_fall_together(gate, kind):
    actor = (
        Several.options(max_concurrency=8).remote()
        if kind == "threads"
        else SeveralCoroutines.remote()
    )
    first = hoplo.get(actor.pid.remote())
    waiting = [actor.wait.remote(gate) for _ in range(3)]
    eventually(lambda: gate.arrived() == 3)
    crashed = actor.crash.remote()
    for ref in (*waiting, crashed):
        with pytest.raises(ActorUnavailableError, match="exited with code 8"):
            hoplo.get(ref)
    assert hoplo.get(actor.pid.remote()) != first


def test_running_calls_of_several_threads_are_repeated_when_asked(gate):
    actor = Several.options(max_concurrency=4, max_task_retries=1).remote()
    pid = hoplo.get(actor.pid.remote())
    waiting = [actor.wait.remote(gate) for _ in range(3)]
    eventually(lambda: gate.arrived() == 3)
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: gate.arrived() == 6, what="they run again")
    gate.open()
    assert hoplo.get(waiting) == ["waited"] * 3


def test_a_stream_of_an_actor_starts_again_when_asked(tmp_path):
    notes = Notes(tmp_path / "runs")

    @hoplo.remote(max_restarts=1, max_task_retries=1)
    class Source:
        def numbers(self):
            first = notes.add() == 1
            for i in range(6):
                if first and i == 3:
                    os._exit(1)
                yield i

    assert [hoplo.get(ref) for ref in Source.remote().numbers.remote()] == list(range(6))


def test_a_named_actor_keeps_its_name_through_a_restart():
    actor = Counter.options(name="phoenix", max_restarts=1).remote()
    pid = hoplo.get(actor.pid.remote())
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not alive(pid))
    assert hoplo.get(hoplo.get_actor("phoenix").add.remote()) == 1
    hoplo.kill(actor)
    eventually(lambda: Counter.options(name="phoenix").remote(), what="the name is free")


def test_a_constructor_that_crashes_uses_up_the_restarts(tmp_path):
    notes = Notes(tmp_path / "starts")

    @hoplo.remote(max_restarts=2)
    class Unlucky:
        def __init__(self):
            notes.add()
            os._exit(11)

        def work(self):
            pass

    with pytest.raises(ActorDiedError, match="exited with code 11"):
        hoplo.get(Unlucky.remote().work.remote(), timeout=30)
    assert len(notes.lines()) == 3


def test_callers_in_other_processes_see_a_restart_too():
    actor = Counter.options(max_restarts=1, max_task_retries=-1).remote()

    @hoplo.remote
    def call(actor, times):
        return [hoplo.get(actor.add.remote()) for _ in range(times)]

    pid = hoplo.get(actor.pid.remote())
    calling = call.remote(actor, 3000)
    eventually(lambda: hoplo.get(actor.add.remote()) > 20)
    os.kill(pid, signal.SIGKILL)
    counts = hoplo.get(calling, timeout=60)
    assert len(counts) == 3000
    assert counts[-1] < 3000 + 200  # it began anew in between


@pytest.mark.parametrize("asynchronous", [False, True])
def test_calls_of_an_actor_that_restarts_for_ever_waited_for_ever(tmp_path, asynchronous):
    notes = Notes(tmp_path / "starts")

    class Loops:
        def __init__(self):
            if notes.add() > 1:
                os._exit(1)

        def crash(self):
            os._exit(1)

        if asynchronous:

            async def ping(self):
                return 1
        else:

            def ping(self):
                return 1

    actor = hoplo.remote(max_restarts=-1)(Loops).remote()
    assert hoplo.get(actor.ping.remote()) == 1
    with pytest.raises(ActorUnavailableError):
        hoplo.get(actor.crash.remote(), timeout=30)
    for _ in range(3):
        with pytest.raises(ActorUnavailableError, match=r"down again.*did not run.*max_task_retr"):
            hoplo.get(actor.ping.remote(), timeout=30)
    before = len(notes.lines())
    with pytest.raises(ActorUnavailableError):
        hoplo.get(actor.ping.options(max_task_retries=3).remote(), timeout=30)
    assert len(notes.lines()) >= before + 3
    hoplo.kill(actor)


def test_a_call_waits_for_a_slow_restart(gate, tmp_path):
    notes = Notes(tmp_path / "starts")

    @hoplo.remote(max_restarts=1)
    class Slow:
        def __init__(self):
            if notes.add() > 1:
                gate.wait()

        def crash(self):
            os._exit(1)

        def ping(self):
            return "back"

    slow = Slow.remote()
    assert hoplo.get(slow.ping.remote()) == "back"
    with pytest.raises(ActorUnavailableError):
        hoplo.get(slow.crash.remote(), timeout=30)
    waiting = slow.ping.remote()
    eventually(gate.arrived)
    assert hoplo.wait([waiting], timeout=0.1)[0] == []
    gate.open()
    assert hoplo.get(waiting, timeout=30) == "back"
