"""Threads that begin and end the session at once: one at a time does, and the others wait."""

import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import eventually, processes, run_driver

import hoplo
from hoplo import _api, _core

NODE = None
THREADS = 6


@hoplo.remote
def same(x):
    return x


def daemons():
    return [line for line in processes().values() if " daemon " in str(line)]


def in_threads(work):
    """What `work` gives or raises in each of several threads that begin together."""
    together = threading.Barrier(THREADS)

    def begin(_):
        together.wait()
        try:
            return work()
        except Exception as error:
            return error

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(begin, range(THREADS)))


class Held:
    """A thread in the middle of `init`: its daemon is not there yet."""

    def __init__(self, monkeypatch):
        self.real, self.within, self.go_on = _core.init, threading.Event(), threading.Event()
        monkeypatch.setattr(_core, "init", self.init)
        self.thread = threading.Thread(target=lambda: hoplo.init(num_cpus=1), daemon=True)
        self.thread.start()
        assert self.within.wait(20)

    def init(self, config):
        self.within.set()
        assert self.go_on.wait(40)
        return self.real(config)

    def ends(self):
        self.go_on.set()
        self.thread.join(30)
        assert not self.thread.is_alive()


@pytest.fixture
def held(monkeypatch, fresh_node):
    held = Held(monkeypatch)
    yield held
    held.ends()
    hoplo.shutdown()


def test_init_in_several_threads_started_several_nodes_and_lost_values(fresh_node):
    def handles():
        session = hoplo.init(num_cpus=1, ignore_reinit_error=True)["session_dir"]
        refs = [hoplo.put(i) for i in range(20)]
        return session, hoplo.get([same.remote(ref) for ref in refs]) == list(range(20))

    done = in_threads(handles)
    assert len(set(done)) == 1, done
    assert done[0][1] is True
    assert len(daemons()) == 1
    hoplo.shutdown()
    assert daemons() == []


def test_init_in_several_threads_told_nobody_that_it_was_called_already(fresh_node):
    done = in_threads(lambda: hoplo.init(num_cpus=1)["session_dir"])
    [session] = [one for one in done if isinstance(one, str)]
    refused = [str(one) for one in done if isinstance(one, RuntimeError)]
    assert len(refused) == THREADS - 1
    assert all("was called already" in text for text in refused)
    assert os.path.isdir(session)
    hoplo.shutdown()


def test_init_and_first_calls_at_once_started_several_nodes(fresh_node):
    turns = iter(range(THREADS))

    def uses():
        if next(turns) % 2:
            return hoplo.get(same.remote(1))
        hoplo.init(num_cpus=1, ignore_reinit_error=True)
        return 1

    assert in_threads(uses) == [1] * THREADS
    assert len(daemons()) == 1
    hoplo.shutdown()


def test_shutdown_passed_an_init_of_another_thread(held):
    ends = threading.Thread(target=hoplo.shutdown, daemon=True)
    ends.start()
    ends.join(0.1)
    assert ends.is_alive(), "it waits for what it is to end"
    held.ends()
    ends.join(30)
    assert not hoplo.is_initialized()
    assert daemons() == []


@pytest.mark.parametrize("begin", [lambda: hoplo.init(num_cpus=1), lambda: same.remote(1)])
def test_ctrl_c_ends_the_wait_for_an_init_of_another_thread(held, begin):
    main = threading.main_thread().ident

    def waits():
        return sys._current_frames()[main].f_code is _api._Turns.take.__code__

    def interrupts():
        eventually(waits)
        signal.pthread_kill(main, signal.SIGINT)

    helper = threading.Thread(target=interrupts)
    helper.start()
    with pytest.raises(KeyboardInterrupt):
        begin()
    helper.join()
    held.ends()
    assert hoplo.get(same.remote(2)) == 2
    assert len(daemons()) == 1


def test_a_child_forked_during_an_init_waited_for_a_thread_that_it_lacks(held):
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)  # ends it
        _core.init = held.real
        hoplo.init(num_cpus=1)
        right = hoplo.get(same.remote(3)) == 3
        hoplo.shutdown()
        os._exit(0 if right else 1)
    assert os.waitpid(pid, 0)[1] == 0


def test_what_interrupts_init_in_its_own_thread_waited_for_itself(monkeypatch, fresh_node):
    real, told = _core.init, []

    def interrupted(config):
        # As a signal handler, or a destructor.
        hoplo.shutdown()
        for use in (hoplo.init, lambda: same.remote(1)):
            with pytest.raises(RuntimeError, match="runs in this thread") as caught:
                use()
            told.append(caught.value)
        return real(config)

    monkeypatch.setattr(_core, "init", interrupted)
    hoplo.init(num_cpus=1)
    assert len(told) == 2
    assert hoplo.get(same.remote(4)) == 4
    assert len(daemons()) == 1
    hoplo.shutdown()


def test_output_that_calls_hoplo_during_shutdown_waited_for_its_end():
    out = run_driver(
        """
import sys, time, hoplo
told = []
class Output:
    def write(self, text):
        while hoplo.is_initialized():
            time.sleep(0.001)
        try:
            hoplo.put(text)
        except RuntimeError as error:
            told.append(str(error))
    def flush(self):
        pass
hoplo.init(num_cpus=1)
screen, sys.stdout = sys.stdout, Output()
hoplo.get(hoplo.remote(lambda: print("a line")).remote())
hoplo.shutdown()
sys.stdout = screen
print({"begins no new session" in text for text in told}, hoplo.is_initialized())
"""
    ).stdout
    assert out.strip() == "{True} False"
