"""Workers that die: retried, then told with signal or exit code and last lines."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

import pytest
from conftest import eventually, printed_by
from processes import Notes, alive

import hoplo
from hoplo.exceptions import ActorDiedError, TaskError, WorkerCrashedError

NODE = {"num_cpus": 2}

WAYS = {
    "SIGKILL (9)": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "SIGSEGV (11)": lambda: ctypes.string_at(0),
    "SIGABRT (6)": os.abort,
    "exited with code 42": lambda: os._exit(42),
    "exited with code 0": lambda: os._exit(0),
}


@hoplo.remote(max_retries=0)
def die(way, notes=None):
    print("about to die of", way, flush=True)
    if notes is not None:
        notes.add(os.getpid())
    way()


@pytest.mark.parametrize("told", WAYS)
def test_the_error_tells_how_it_died_and_what_it_said_last(told):
    @hoplo.remote(max_retries=0)
    def fall():
        print("a line on stdout", flush=True)
        print("a line on stderr", file=sys.stderr, flush=True)
        WAYS[told]()

    with pytest.raises(WorkerCrashedError) as caught:
        hoplo.get(fall.remote())
    text = str(caught.value)
    assert told in text
    assert "fall" in text
    assert "the last lines it printed:" in text
    assert "a line on stdout" in text
    assert "a line on stderr" in text
    assert caught.value.task_id


def test_a_segmentation_fault_shows_the_python_frames():
    @hoplo.remote(max_retries=0)
    def fall():
        ctypes.string_at(0)

    with pytest.raises(WorkerCrashedError, match="in fall"):
        hoplo.get(fall.remote())


def test_three_retries_are_the_default(tmp_path):
    notes = Notes(tmp_path / "runs")

    @hoplo.remote
    def die():
        notes.add(os.getpid())
        os._exit(5)

    with pytest.raises(WorkerCrashedError, match=r"run 4 times.*max_retries") as caught:
        hoplo.get(die.remote())
    assert "exited with code 5" in str(caught.value)
    assert len(set(notes.pids())) == 4


def test_a_retry_may_succeed_and_the_user_is_told(tmp_path, capfd):
    notes = Notes(tmp_path / "runs")

    @hoplo.remote
    def third_time_lucky():
        if notes.add() < 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return hoplo.get_runtime_context().get_attempt_number()

    assert hoplo.get(third_time_lucky.remote()) == 2
    seen = []

    def told():
        seen.append(capfd.readouterr().err)
        return "".join(seen).count("third_time_lucky runs again") == 2

    eventually(told)
    assert "SIGKILL (9)" in "".join(seen)


def test_max_retries_of_minus_one_never_gives_up(tmp_path):
    notes = Notes(tmp_path / "runs")

    @hoplo.remote(max_retries=-1)
    def eighth_time_lucky():
        if notes.add() < 8:
            os._exit(1)
        return "at last"

    assert hoplo.get(eighth_time_lucky.remote()) == "at last"


def test_a_worker_killed_from_outside_is_replaced(gate):
    @hoplo.remote
    def wait():
        return gate.wait(os.getpid())

    ref = wait.remote()
    eventually(gate.arrived)
    (first,) = gate.pids_arrived()
    os.kill(first, signal.SIGKILL)
    eventually(lambda: gate.arrived() == 2, what="it runs again")
    gate.open()
    second = hoplo.get(ref)
    assert second != first
    assert not alive(first)


def test_calls_queued_behind_the_crash_run_once_and_use_no_retry(tmp_path):
    notes = Notes(tmp_path / "runs")

    @hoplo.remote(max_retries=0)
    def work(i):
        if i == 20:
            os.kill(os.getpid(), signal.SIGKILL)
        notes.add(i)
        return i

    refs = [work.remote(i) for i in range(300)]
    for i, ref in enumerate(refs):
        if i == 20:
            with pytest.raises(WorkerCrashedError):
                hoplo.get(ref)
        else:
            assert hoplo.get(ref) == i
    assert sorted(map(int, notes.lines())) == [i for i in range(300) if i != 20]


def test_results_of_a_worker_that_dies_later_stay():
    @hoplo.remote(max_retries=0)
    def make(i):
        return bytes([i]) * (1000 if i % 2 else 300_000), os.getpid()

    refs = [make.remote(i) for i in range(10)]
    hoplo.wait(refs, num_returns=10)
    for pid in {pid for _, pid in hoplo.get(refs)}:
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: not alive(pid))
    for i, (value, _) in enumerate(hoplo.get(refs)):
        assert value == bytes([i]) * len(value)


def test_dependents_of_a_crashed_task_fail_with_its_error():
    @hoplo.remote
    def use(value):
        return value

    lost = die.remote(lambda: os._exit(3))
    with pytest.raises(WorkerCrashedError, match="exited with code 3"):
        hoplo.get(use.remote(lost))


def test_a_task_that_gets_a_crash_sees_the_same_error():
    @hoplo.remote
    def watch(boxed):
        try:
            hoplo.get(boxed[0])
        except WorkerCrashedError as error:
            return str(error)

    lost = die.remote(lambda: os._exit(4))
    assert "exited with code 4" in hoplo.get(watch.remote([lost]))


def test_a_crash_is_no_reason_for_a_bare_except_of_task_errors():
    with pytest.raises(WorkerCrashedError) as caught:
        hoplo.get(die.remote(lambda: os._exit(1)))
    assert not isinstance(caught.value, TaskError)


def test_several_results_of_a_crash_all_fail():
    refs = die.options(num_returns=3).remote(lambda: os._exit(6))
    for ref in refs:
        with pytest.raises(WorkerCrashedError, match="code 6"):
            hoplo.get(ref)


# ------------------------------------------------------------------------------- exceptions


def test_exceptions_are_not_retried_unless_asked(tmp_path):
    notes = Notes(tmp_path / "runs")

    @hoplo.remote
    def fail():
        notes.add()
        raise OSError("flaky disk")

    with pytest.raises(OSError, match="flaky disk"):
        hoplo.get(fail.remote())
    assert len(notes.lines()) == 1


def test_retry_exceptions_of_any_kind(tmp_path):
    notes = Notes(tmp_path / "runs")

    @hoplo.remote(retry_exceptions=True, max_retries=2)
    def fail():
        raise OSError(f"time {notes.add()}")

    with pytest.raises(OSError, match="time 3"):
        hoplo.get(fail.remote())
    assert len(notes.lines()) == 3


@pytest.mark.parametrize(("kind", "runs"), [(ConnectionResetError, 4), (KeyError, 1)])
def test_retry_exceptions_of_listed_kinds(tmp_path, kind, runs):
    notes = Notes(tmp_path / "runs")

    @hoplo.remote(retry_exceptions=[ConnectionError, TimeoutError])
    def fail():
        notes.add()
        raise kind("listed or not")

    with pytest.raises(kind):
        hoplo.get(fail.remote())
    assert len(notes.lines()) == runs


def test_a_retry_after_an_exception_may_succeed(tmp_path):
    notes = Notes(tmp_path / "runs")

    @hoplo.remote(retry_exceptions=True)
    def fetch():
        if notes.add() < 3:
            raise TimeoutError
        return "fetched"

    assert hoplo.get(fetch.remote()) == "fetched"


# ------------------------------------------------------------------------------- streams


def test_a_stream_starts_again_after_a_crash_and_repeats_nothing(tmp_path):
    notes = Notes(tmp_path / "runs")

    @hoplo.remote
    def count():
        first = notes.add() == 1
        for i in range(6):
            if first and i == 3:
                os._exit(1)
            yield i

    assert [hoplo.get(ref) for ref in count.remote()] == list(range(6))
    assert len(notes.lines()) == 2


# ------------------------------------------------------------------------------------ sys.exit


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("the text",), "sys.exit('the text')"),
        ((3,), "sys.exit(3)"),
        ((0,), "sys.exit(0)"),
        ((), "sys.exit()"),
    ],
)
def test_sys_exit_lost_its_text_and_was_retried(tmp_path, capfd, arguments, told):
    notes = Notes(tmp_path / "runs")

    @hoplo.remote
    def leave():
        notes.add(os.getpid())
        sys.exit(*arguments)

    with pytest.raises(WorkerCrashedError) as caught:
        hoplo.get(leave.remote(), timeout=30)
    assert f"leave called {told}" in str(caught.value)
    assert "does not run again" in str(caught.value)
    (pid,) = notes.pids()
    assert f"pid {pid}" in str(caught.value)
    eventually(lambda: not alive(pid), what="its worker has ended")
    if arguments == ("the text",):
        seen = []

        def is_shown():
            seen.append(capfd.readouterr().err)
            return f"{printed_by('leave', pid)} the text" in "".join(seen)

        eventually(is_shown)


def test_the_text_of_sys_exit_in_an_actor_is_in_its_obituary():
    @hoplo.remote
    class Leaver:
        def leave(self):
            sys.exit("no more work")

    leaver = Leaver.remote()
    with pytest.raises(ActorDiedError, match=r"(?s)exited with code 1.*no more work"):
        hoplo.get(leaver.leave.remote(), timeout=30)


def test_calls_queued_behind_sys_exit_run_elsewhere(tmp_path):
    @hoplo.remote(max_retries=0)
    def work(i):
        if i == 20:
            sys.exit("enough")
        return i

    refs = [work.remote(i) for i in range(200)]
    for i, ref in enumerate(refs):
        if i == 20:
            with pytest.raises(WorkerCrashedError, match="enough"):
                hoplo.get(ref)
        else:
            assert hoplo.get(ref) == i


def test_a_stream_that_calls_sys_exit_ends_with_the_error():
    @hoplo.remote(num_returns="streaming")
    def numbers():
        yield 1
        sys.exit("that was all")

    stream = numbers.remote()
    assert hoplo.get(next(stream)) == 1
    with pytest.raises(WorkerCrashedError, match="that was all"):
        hoplo.get(next(stream))
