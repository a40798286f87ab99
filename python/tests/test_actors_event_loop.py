"""The event loop of an async actor: what else than calls may wake it, and how it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
import time

import pytest
from conftest import eventually

import hoplo
from hoplo.exceptions import ActorDiedError

# ------------------------------------------------------------------------------- wakes it


def test_it_runs_in_the_main_thread():
    @hoplo.remote
    class Where:
        async def here(self):
            asyncio.get_running_loop()
            return threading.current_thread() is threading.main_thread()

    assert hoplo.get(Where.remote().here.remote())


def test_timers_run_while_no_call_comes():
    @hoplo.remote
    class Clock:
        def __init__(self):
            self.ticks = 0
            self.task = asyncio.ensure_future(self.tick())

        async def tick(self):
            while True:
                await asyncio.sleep(0.005)
                self.ticks += 1

        async def so_far(self):
            return self.ticks

    clock = Clock.remote()
    eventually(lambda: hoplo.get(clock.so_far.remote()) >= 5)


def test_a_thread_wakes_it():
    @hoplo.remote
    class Threaded:
        async def in_executor(self):
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(None, lambda: threading.current_thread().name)

        async def called_back(self):
            loop = asyncio.get_running_loop()
            done = loop.create_future()
            threading.Timer(0.02, loop.call_soon_threadsafe, (done.set_result, "rang")).start()
            return await done

    actor = Threaded.remote()
    assert "MainThread" not in hoplo.get(actor.in_executor.remote(), timeout=20)
    assert hoplo.get([actor.called_back.remote() for _ in range(20)], timeout=20) == ["rang"] * 20


def test_it_serves_sockets_and_calls_at_once():
    @hoplo.remote
    class Server:
        async def start(self):
            self.server = await asyncio.start_server(self.echo, "127.0.0.1", 0)
            return self.server.sockets[0].getsockname()[1]

        async def echo(self, reader, writer):
            while data := await reader.read(1000):
                writer.write(data)
                await writer.drain()
            writer.close()

        async def one(self):
            return 1

        async def stop(self):
            self.server.close()
            await self.server.wait_closed()

    server = Server.remote()
    port = hoplo.get(server.start.remote(), timeout=20)
    for _ in range(20):
        # More than the server reads at once: the rest is no new event of the socket.
        text = os.urandom(300_000)
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            sender = threading.Thread(target=connection.sendall, args=(text,))
            sender.start()
            calls = [server.one.remote() for _ in range(10)]
            got = bytearray()
            while len(got) < len(text):
                part = connection.recv(1 << 16)
                assert part
                got += part
            sender.join()
        assert bytes(got) == text
        assert hoplo.get(calls, timeout=20) == [1] * 10
    hoplo.get(server.stop.remote(), timeout=20)


def test_it_runs_subprocesses():
    @hoplo.remote
    class Shell:
        async def say(self, text):
            child = await asyncio.create_subprocess_exec(
                sys.executable, "-c", f"print({text!r})", stdout=asyncio.subprocess.PIPE
            )
            out, _ = await child.communicate()
            return out.decode().strip(), child.returncode

    assert hoplo.get(Shell.remote().say.remote("hello"), timeout=30) == ("hello", 0)


def test_it_hears_signals():
    @hoplo.remote
    class Listener:
        async def listen(self):
            loop = asyncio.get_running_loop()
            self.heard = loop.create_future()
            loop.add_signal_handler(signal.SIGUSR1, self.heard.set_result, "usr1")
            return os.getpid()

        async def hear(self):
            return await self.heard

    listener = Listener.remote()
    pid = hoplo.get(listener.listen.remote())
    heard = listener.hear.remote()
    assert hoplo.wait([heard], timeout=0.1)[0] == []
    os.kill(pid, signal.SIGUSR1)
    assert hoplo.get(heard, timeout=20) == "usr1"


def test_awaited_refs_wake_it(gate):
    @hoplo.remote
    def value(x):
        return x

    @hoplo.remote
    class Asker:
        async def ask(self, count):
            return sum(await asyncio.gather(*[value.remote(i) for i in range(count)]))

        async def ask_late(self, gate):
            late = hoplo.remote(gate.wait).remote("late")
            return await asyncio.wait_for(late, 30)

    asker = Asker.remote()
    assert hoplo.get([asker.ask.remote(n) for n in (1, 10, 500)], timeout=30) == [0, 45, 124750]
    late = asker.ask_late.remote(gate)
    eventually(gate.arrived)
    assert hoplo.get(asker.ask.remote(3), timeout=30) == 3
    gate.open()
    assert hoplo.get(late, timeout=30) == "late"


def test_each_call_is_a_task_of_its_own():
    @hoplo.remote
    class Tasks:
        async def limits(self):
            # Both need the current task.
            async with asyncio.timeout(10):
                async with asyncio.TaskGroup() as group:
                    group.create_task(asyncio.sleep(0))
            return id(asyncio.current_task())

        async def times_out(self):
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()

    tasks = Tasks.remote()
    hoplo.get([tasks.limits.remote() for _ in range(5)])
    with pytest.raises(TimeoutError):
        hoplo.get(tasks.times_out.remote(), timeout=20)


def test_a_busy_coroutine_does_not_keep_calls_out():
    @hoplo.remote
    class Busy:
        def __init__(self):
            self.over = False

        async def spin(self):
            turns = 0
            while not self.over:
                await asyncio.sleep(0)
                turns += 1
            return turns

        async def end(self):
            self.over = True

    busy = Busy.remote()
    spinning = busy.spin.remote()
    hoplo.get(busy.end.remote(), timeout=20)
    assert hoplo.get(spinning, timeout=20) >= 0


def test_it_sleeps_when_there_is_nothing_to_do():
    @hoplo.remote
    class Idle:
        async def start(self):
            # A file and a timer: the two other reasons to wake up.
            self.pipe = os.pipe()
            asyncio.get_running_loop().add_reader(self.pipe[0], lambda: None)
            self.timer = asyncio.ensure_future(asyncio.sleep(3600))
            return time.process_time()

        async def spent(self, since):
            return time.process_time() - since

    idle = Idle.remote()
    started = hoplo.get(idle.start.remote())
    threading.Event().wait(1.0)  # nothing to wait for: that nothing happens is what is looked at
    assert hoplo.get(idle.spent.remote(started)) < 0.1


# ------------------------------------------------------------------------------- ends it


def test_sys_exit_in_a_task_of_its_own_ends_the_actor():
    @hoplo.remote
    class Quitter:
        async def quit_later(self):
            async def quit():
                sys.exit(3)

            self.task = asyncio.ensure_future(quit())
            return "soon"

        async def one(self):
            return 1

    quitter = Quitter.remote()
    assert hoplo.get(quitter.quit_later.remote()) == "soon"

    def is_dead():
        try:
            return hoplo.get(quitter.one.remote(), timeout=20) != 1
        except ActorDiedError:
            return True

    eventually(is_dead)


def test_a_stopped_loop_goes_on():
    @hoplo.remote
    class Stopper:
        async def stop(self):
            asyncio.get_running_loop().stop()

        async def one(self):
            return 1

    stopper = Stopper.remote()
    hoplo.get(stopper.stop.remote())
    assert hoplo.get(stopper.one.remote(), timeout=20) == 1


def test_a_callback_that_raises_does_not_end_it():
    @hoplo.remote
    class Careless:
        async def careless(self):
            asyncio.get_running_loop().call_soon(lambda: 1 / 0)
            return 1

    careless = Careless.remote()
    assert hoplo.get([careless.careless.remote() for _ in range(3)], timeout=20) == [1, 1, 1]


def test_a_task_factory_that_raises_fails_calls_and_no_more():
    @hoplo.remote
    class Factory:
        def __init__(self):
            self.works = False

        async def spoil(self):
            asyncio.get_running_loop().set_task_factory(self.make)

        def make(self, loop, coroutine):
            self.works = not self.works
            if self.works:
                return asyncio.Task(coroutine, loop=loop)
            raise LookupError("no more tasks")

        async def one(self):
            return 1

    factory = Factory.options(max_concurrency=1).remote()
    hoplo.get(factory.spoil.remote())
    assert hoplo.get(factory.one.remote(), timeout=20) == 1
    with pytest.raises(LookupError, match="no more tasks"):
        hoplo.get(factory.one.remote(), timeout=20)
    assert hoplo.get(factory.one.remote(), timeout=20) == 1


def test_a_task_shows_the_name_and_the_stack_of_its_call():
    @hoplo.remote
    class Shown:
        async def wait_long(self):
            await asyncio.sleep(3600)

        async def look(self):
            tasks = {task.get_name(): task for task in asyncio.all_tasks()}
            frames = tasks["wait_long"].get_stack()
            return [frame.f_code.co_name for frame in frames], repr(tasks["wait_long"])

    shown = Shown.remote()
    shown.wait_long.remote()
    frames, text = hoplo.get(shown.look.remote(), timeout=20)
    assert frames == ["wait_long"]
    assert "wait_long" in text


def test_a_forked_child_of_a_coroutine_replies_to_nobody():
    @hoplo.remote
    class Forker:
        async def fork(self):
            pid = os.fork()
            if pid == 0:
                return "child"
            _, status = os.waitpid(pid, 0)
            return os.waitstatus_to_exitcode(status)

    forker = Forker.remote()
    first = hoplo.get(forker.fork.remote(), timeout=30)
    assert first != "child"
    assert hoplo.get(forker.fork.remote(), timeout=30) != "child"


def test_out_of_scope_its_timers_do_not_keep_it():
    @hoplo.remote
    class Endless:
        async def start(self):
            self.task = asyncio.ensure_future(asyncio.sleep(3600))
            return os.getpid()

    def is_gone(pid):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False

    actor = Endless.remote()
    pid = hoplo.get(actor.start.remote())
    del actor
    eventually(lambda: is_gone(pid))
