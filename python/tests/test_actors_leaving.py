"""Actors that leave by `exit_actor`, from wherever in their process it is called."""

from __future__ import annotations

import asyncio
import threading

import pytest
from conftest import eventually
from processes import Notes, alive

import hoplo
from hoplo.exceptions import ActorDiedError, ActorError


@hoplo.remote
class Coroutines:
    def __init__(self, notes=None):
        import atexit
        import os

        self.pid = os.getpid
        if notes is not None:
            atexit.register(notes.add, "left")

    async def where(self):
        return self.pid()

    async def leave(self):
        hoplo.exit_actor()

    async def awaits_a_task_that_leaves(self):
        await asyncio.create_task(self.leave())

    async def gathers_one_that_leaves(self):
        await asyncio.gather(asyncio.sleep(3600), self.leave())

    async def starts_a_task_that_leaves(self):
        self.task = asyncio.create_task(self.leave())
        return "replied"

    async def starts_a_task_that_leaves_and_waits(self):
        self.task = asyncio.create_task(self.leave())
        await asyncio.sleep(3600)

    async def starts_a_thread_that_leaves(self):
        thread = threading.Thread(target=hoplo.exit_actor)
        thread.start()
        thread.join()
        return "replied"

    async def awaits_a_thread_that_leaves(self):
        await asyncio.to_thread(hoplo.exit_actor)

    async def swallows_it(self):
        try:
            hoplo.exit_actor()
        except BaseException:
            return "replied"

    async def forever(self):
        await asyncio.Event().wait()


@hoplo.remote(max_concurrency=4)
class Threads:
    def __init__(self):
        import os

        self.pid = os.getpid

    def where(self):
        return self.pid()

    def leave(self):
        hoplo.exit_actor()

    def starts_a_thread_that_leaves(self):
        thread = threading.Thread(target=hoplo.exit_actor)
        thread.start()
        thread.join()
        return "replied"

    def starts_a_thread_that_leaves_and_waits(self):
        threading.Thread(target=hoplo.exit_actor).start()
        self.forever()

    def forever(self):
        threading.Event().wait()


def assert_gone(actor, pid):
    with pytest.raises(ActorDiedError, match=r"left by exit_actor\(\)"):
        hoplo.get(actor.where.remote(), timeout=20)
    eventually(lambda: not alive(pid))


@pytest.mark.parametrize(
    "method",
    [
        "leave",
        "awaits_a_task_that_leaves",
        "gathers_one_that_leaves",
        "awaits_a_thread_that_leaves",
        "starts_a_task_that_leaves_and_waits",
    ],
)
def test_the_call_that_leaves_or_awaits_it_ends_with_the_actor(tmp_path, method):
    notes = Notes(tmp_path / "notes")
    actor = Coroutines.options(max_restarts=-1).remote(notes)
    pid = hoplo.get(actor.where.remote())
    with pytest.raises(ActorDiedError, match=r"left by exit_actor\(\)"):
        hoplo.get(getattr(actor, method).remote(), timeout=20)
    assert_gone(actor, pid)
    assert notes.lines() == ["left"]  # by atexit: the process ended in order


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        (Coroutines, "starts_a_task_that_leaves"),
        (Coroutines, "starts_a_thread_that_leaves"),
        (Coroutines, "swallows_it"),
        (Threads, "starts_a_thread_that_leaves"),
        (Threads.options(max_concurrency=1), "starts_a_thread_that_leaves"),
    ],
)
def test_exit_actor_beside_the_call_did_nothing(kind, method):
    actor = kind.remote()
    pid = hoplo.get(actor.where.remote())
    assert hoplo.get(getattr(actor, method).remote(), timeout=20) == "replied"
    assert_gone(actor, pid)


def test_exit_actor_in_a_thread_beside_the_only_call_waited_for_its_end_for_ever():
    actor = Threads.options(max_concurrency=1).remote()
    pid = hoplo.get(actor.where.remote())
    forever = actor.starts_a_thread_that_leaves_and_waits.remote()
    with pytest.raises(ActorDiedError, match=r"exit_actor"):
        hoplo.get(forever, timeout=20)
    assert_gone(actor, pid)


def test_an_actor_that_left_beside_a_call_that_never_ends_took_new_calls_and_never_answered():
    # One of each kind at once: both take the 5 s that their calls are given.
    actors = [Coroutines.remote(), Threads.remote()]
    pids = hoplo.get([actor.where.remote() for actor in actors])
    forever = [actor.forever.remote() for actor in actors]
    assert hoplo.get([actor.where.remote() for actor in actors]) == pids
    leave = [actor.leave.remote() for actor in actors]
    for ref in leave:
        with pytest.raises(ActorDiedError, match="exit_actor"):
            hoplo.get(ref, timeout=20)
    for actor in actors:
        with pytest.raises(ActorDiedError, match="exit_actor"):
            hoplo.get(actor.where.remote(), timeout=2)  # before those that run have had their time
    for ref in forever:
        with pytest.raises(ActorDiedError, match="exit_actor"):
            hoplo.get(ref, timeout=20)
    eventually(lambda: not any(alive(pid) for pid in pids))


@pytest.mark.parametrize("asynchronous", [False, True])
def test_exit_actor_in_a_constructor_was_told_as_an_error_of_its_code(asynchronous):
    class Leaves:
        def __init__(self):
            hoplo.exit_actor()

        if asynchronous:

            async def ping(self):
                return 1
        else:

            def ping(self):
                return 1

    actor = hoplo.remote(max_restarts=-1)(Leaves).remote()
    with pytest.raises(ActorDiedError, match=r"left by exit_actor\(\) in its constr") as raised:
        hoplo.get(actor.ping.remote(), timeout=20)
    assert "Traceback" not in str(raised.value)


def test_thousands_of_calls_behind_one_that_leaves_all_fail():
    @hoplo.remote
    class Late:
        def __init__(self):
            self.leaves = asyncio.Event()

        async def leave(self):
            await self.leaves.wait()
            hoplo.exit_actor()

        def ping(self):
            self.leaves.set()

    actor = Late.remote()
    actor.leave.remote()
    refs = [actor.ping.remote() for _ in range(5_000)]
    errors = []
    for ref in refs:
        try:
            hoplo.get(ref, timeout=20)
        except ActorError as error:
            errors.append(error)
    assert errors
    assert all("exit_actor" in str(error) for error in errors)


def test_terminate_still_waits_for_the_calls_before_it(gate):
    @hoplo.remote(max_concurrency=2)
    class Server:
        def work(self):
            return gate.wait("worked")

    server = Server.remote()
    working = server.work.remote()
    eventually(gate.arrived)
    server.__hoplo_terminate__.remote()
    with pytest.raises(ActorDiedError):
        hoplo.get(server.work.remote(), timeout=20)
    gate.open()
    assert hoplo.get(working, timeout=20) == "worked"
