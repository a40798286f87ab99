"""`hoplo why` and GetTimeoutError follow what waits over all processes, to its end."""

import gc
import re
import threading
import weakref

import pytest
from conftest import command, eventually

import hoplo
from hoplo import _introspect
from hoplo.exceptions import GetTimeoutError


def why(ref):
    return command("why", ref.hex()).stdout


def until_told(ref, *words):
    """The chain, once all of the words are in it."""
    told = ""

    def all_told():
        nonlocal told
        told = why(ref)
        return all(word in told for word in words)

    eventually(all_told, timeout=30, what=f"{words} in the chain")
    return told


def test_a_running_task_is_followed_into_the_get_where_it_stands(gate):
    @hoplo.remote
    def inner():
        gate.wait()

    @hoplo.remote
    def outer():
        return hoplo.get(inner.remote())

    ref = outer.remote()
    told = until_told(ref, "in Gate.wait at", "in get for")
    assert re.search(
        r"of outer has run for [\d.]+ s .*: return hoplo.get\(inner.remote\(\)\)", told
    )
    assert re.search(r"of inner has run for [\d.]+ s .*, in Gate.wait at ", told)
    assert told.index("outer has run") < told.index("inner has run")
    with pytest.raises(
        GetTimeoutError, match=r"(?s)outer has run .*inner has run .*in Gate.wait at"
    ):
        hoplo.get(ref, timeout=2)
    gate.open()
    hoplo.get(ref)


def test_a_task_that_waited_for_the_next_value_of_a_generator_waited_for_nothing(gate):
    @hoplo.remote
    def values():
        yield 1
        gate.wait()
        yield 2

    @hoplo.remote
    def reader():
        return [hoplo.get(ref) for ref in values.remote()]

    ref = reader.remote()
    told = until_told(ref, "in next for", "in Gate.wait at")
    assert told.index("of reader has run") < told.index("of values has run")
    gate.open()
    assert hoplo.get(ref) == [1, 2]


def test_a_coroutine_is_followed_into_its_await(gate):
    @hoplo.remote
    def inner():
        gate.wait()

    @hoplo.remote
    class Asker:
        async def ask(self):
            return await self.deeper()

        async def deeper(self):
            return await inner.remote()

    asker = Asker.remote()
    ref = asker.ask.remote()
    told = until_told(ref, "in await for", "in Gate.wait at")
    assert "return await inner.remote()" in told
    gate.open()
    hoplo.get(ref)


def test_a_call_behind_a_busy_actor_names_what_it_is_queued_behind(gate):
    @hoplo.remote
    class Busy:
        def hold(self):
            gate.wait()

        def quick(self):
            return 1

    busy = Busy.remote()
    busy.hold.remote()
    ref = busy.quick.remote()
    told = until_told(ref, "is queued behind", "in Gate.wait at")
    assert re.search(r"is queued behind task:\S+ of Busy.hold", told)
    gate.open()
    assert hoplo.get(ref) == 1


def test_actors_that_wait_for_each_other_are_called_a_deadlock_with_its_members():
    @hoplo.remote
    class Side:
        def meet(self, other):
            self.other = other

        def ping(self):
            return hoplo.get(self.other.pong.remote())

        def pong(self):
            return hoplo.get(self.other.ping.remote())

    one, two = Side.remote(), Side.remote()
    hoplo.get([one.meet.remote(two), two.meet.remote(one)])
    ref = one.ping.remote()
    told = until_told(ref, "deadlock:")
    members = re.findall(r"task:[0-9a-f]+-[0-9a-f]+", told[told.index("deadlock:") :])
    assert len(set(members)) == 3
    assert members[0] == members[-1]
    hoplo.kill(one)
    with pytest.raises(hoplo.exceptions.ActorDiedError):
        hoplo.get(ref, timeout=20)


def test_a_wait_that_can_end_is_no_deadlock():
    @hoplo.remote
    class Patient:
        def meet(self, other):
            self.other = other

        def ping(self):
            try:
                return hoplo.get(self.other.pong.remote(), timeout=30)
            except GetTimeoutError:
                return "gave up"

        def pong(self):
            return hoplo.get(self.other.ping.remote())

    one, two = Patient.remote(), Patient.remote()
    hoplo.get([one.meet.remote(two), two.meet.remote(one)])
    ref = one.ping.remote()
    told = until_told(ref, "a circle, which may still end")
    assert "deadlock:" not in told
    hoplo.kill(one)


def test_a_worker_whose_interpreter_is_busy_delays_the_answer_by_a_moment_only(gate):
    @hoplo.remote
    def stuck():
        gate.wait()
        # One instruction of the interpreter, so that no other thread gets a turn.
        return sum(range(10**10))

    ref = stuck.remote()
    eventually(gate.arrived)
    gate.open()
    told = until_told(ref, "Python code that does not answer")
    assert "of stuck has run" in told
    hoplo.cancel(ref, force=True)


def test_the_first_look_at_a_worker_took_longer_than_a_late_get_asks():
    """It imported asyncio, which a worker without coroutines does not need. So a program's first
    GetTimeoutError, and often its only one, did not follow the wait into other processes."""

    @hoplo.remote
    def imports():
        import sys

        from hoplo import _introspect

        _introspect.look([0], None)
        return "asyncio" in sys.modules

    # A worker that no other test has used.
    own = imports.options(runtime_env={"env_vars": {"TEST_OF_WHY": "first look"}})
    assert not hoplo.get(own.remote())


def test_a_timeout_of_a_program_that_polls_asks_nobody(gate):
    @hoplo.remote
    def held():
        gate.wait()

    ref = held.remote()
    with pytest.raises(GetTimeoutError, match=r"is made by task:\S+ of held; .*"):
        hoplo.get(ref, timeout=0)
    gate.open()
    hoplo.get(ref)


@pytest.mark.near
def test_a_process_is_named_twice(gate):
    """The reason that a process was told came back to the daemon with names, and got them again."""

    @hoplo.remote
    def held():
        gate.wait()

    refs = [held.remote() for _ in range(int(hoplo.cluster_resources()["CPU"]) + 1)]
    told = until_told(refs[-1], "in use by tasks of process:")
    assert re.search(r"process:\w+ \(driver, pid \d+\)", told)
    assert not re.search(r"pid \d+\) \((driver|worker)", told)
    gate.open()
    hoplo.get(refs)


def test_whoever_looks_where_threads_stand_keeps_nothing_of_theirs_alive():
    """A cycle over the frames of all threads kept what lay in them, refs too."""

    class Value:
        pass

    def has_one():
        value = Value()
        _introspect.look([threading.get_ident()], None)
        return weakref.ref(value)

    gc.disable()
    try:
        assert has_one()() is None
    finally:
        gc.enable()
