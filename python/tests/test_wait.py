"""`wait`, `get` with a timeout, `cancel`."""

import statistics
import time

import numpy as np
import pytest
from conftest import alive, eventually, ready

import hoplo
from hoplo.exceptions import GetTimeoutError, TaskCancelledError, WorkerCrashedError


@hoplo.remote
def hold(gate, value=None):
    return gate.wait(value)


@hoplo.remote
def square(x):
    return x * x


# ------------------------------------------------------------------------------------ get


def test_get_gives_up_and_says_what_it_waits_for(gate):
    ref = hold.remote(gate)
    eventually(gate.arrived)
    with pytest.raises(GetTimeoutError) as caught:
        hoplo.get(ref, timeout=0.05)
    assert isinstance(caught.value, TimeoutError)
    text = str(caught.value)
    assert "hold" in text
    assert "running" in text
    assert "task:" in text
    gate.open()
    assert hoplo.get(ref, timeout=10) is None


def test_the_timeout_names_the_first_cause_of_a_chain(gate):
    last = square.remote(square.remote(hold.remote(gate, 3)))
    eventually(gate.arrived)
    with pytest.raises(GetTimeoutError, match=r"square.*hold.*running"):
        hoplo.get(last, timeout=0.05)
    gate.open()
    assert hoplo.get(last) == 81


def test_a_timeout_of_zero_looks_once(gate):
    ref = hold.remote(gate)
    with pytest.raises(GetTimeoutError):
        hoplo.get(ref, timeout=0)
    done = hoplo.put(1)
    assert hoplo.get(done, timeout=0) == 1
    assert hoplo.get([done, done], timeout=0) == [1, 1]


def test_the_timeout_is_for_all_refs_together(gate):
    refs = [hold.remote(gate) for _ in range(20)]
    began = time.monotonic()
    with pytest.raises(GetTimeoutError, match="20"):
        hoplo.get(refs, timeout=0.2)
    assert time.monotonic() - began < 2


def fail(message):
    raise ValueError(message)


def test_get_of_a_list_raises_when_one_fails_though_others_run_on(gate):
    running = hold.remote(gate)
    eventually(gate.arrived)
    with pytest.raises(ValueError, match="the second"):
        hoplo.get([running, hoplo.remote(fail).remote("the second"), running], timeout=30)

    # Inside a task, with refs of others; and where one had failed before anybody asked.
    @hoplo.remote
    def borrow(refs):
        hoplo.get(refs, timeout=30)

    failed = hoplo.remote(fail).remote("borrowed")
    with pytest.raises(ValueError, match="borrowed"):
        hoplo.get(borrow.remote([running, failed]), timeout=30)
    with pytest.raises(ValueError, match="borrowed"):
        hoplo.get([running, failed], timeout=30)
    gate.open()
    assert hoplo.get([running, running], timeout=30) == [None, None]


def test_get_of_nothing():
    assert hoplo.get([]) == []


def test_get_of_the_same_ref_twice():
    ref = square.remote(3)
    assert hoplo.get([ref, ref]) == [9, 9]


# ------------------------------------------------------------------------------------ wait


def test_wait_splits_and_keeps_the_order(gate):
    slow = hold.remote(gate)
    fast = [square.remote(i) for i in range(3)]
    refs = [fast[0], slow, fast[1], fast[2]]
    assert hoplo.wait(refs, num_returns=3, timeout=20) == (fast, [slow])
    assert hoplo.wait(refs, num_returns=1) == ([fast[0]], [slow, fast[1], fast[2]])
    assert hoplo.wait(refs, num_returns=4, timeout=0) == (fast, [slow])
    gate.open()
    assert hoplo.wait(refs, num_returns=4, timeout=20) == (refs, [])


def test_wait_gives_up(gate):
    refs = [hold.remote(gate) for _ in range(2)]
    began = time.monotonic()
    assert hoplo.wait(refs, timeout=0.05) == ([], refs)
    assert 0.05 <= time.monotonic() - began < 2


def test_an_error_is_ready():
    @hoplo.remote
    def fail():
        raise ValueError

    ref = fail.remote()
    assert hoplo.wait([ref], timeout=20) == ([ref], [])


def test_wait_for_put_objects_and_with_fetch_local():
    refs = [hoplo.put(1), hoplo.put(b"x" * 1_000_000)]
    assert hoplo.wait(refs, num_returns=2, timeout=0) == (refs, [])
    assert hoplo.wait(refs, num_returns=2, timeout=0, fetch_local=False) == (refs, [])


def test_wait_for_nothing():
    assert hoplo.wait([]) == ([], [])


def test_wait_one_by_one():
    waiting = [square.remote(i) for i in range(200)]
    seen = []
    while waiting:
        done, waiting = hoplo.wait(waiting)
        seen += hoplo.get(done)
    assert sorted(seen) == sorted(i * i for i in range(200))


def test_wait_inside_a_task(gate):
    @hoplo.remote
    def first_of(refs):
        done, waiting = hoplo.wait(refs)
        return len(done), len(waiting), hoplo.get(done[0])

    slow, fast = hold.remote(gate), square.remote(5)
    assert hoplo.get(first_of.remote([slow, fast])) == (1, 1, 25)


# ------------------------------------------------------------------------------------ cancel


def test_a_task_that_has_not_started_never_runs(gate):
    running = [hold.remote(gate) for _ in range(4)]
    eventually(lambda: gate.arrived() == 4)
    queued = [hold.remote(gate) for _ in range(3)]
    for ref in queued:
        hoplo.cancel(ref)
        with pytest.raises(TaskCancelledError, match="cancelled"):
            hoplo.get(ref, timeout=10)
    gate.open()
    hoplo.get(running)
    assert gate.arrived() == 4


def test_a_running_task_is_interrupted_and_its_worker_lives(gate):
    ref = hold.remote(gate)
    eventually(gate.arrived)
    (pid,) = gate.pids_arrived()
    hoplo.cancel(ref)
    with pytest.raises(TaskCancelledError):
        hoplo.get(ref, timeout=10)
    assert alive(pid)


def test_a_cancelled_task_may_clean_up(gate, tmp_path):
    @hoplo.remote
    def tidy(path):
        try:
            gate.wait()
        except Exception:
            return "cancel is past every except Exception"
        finally:
            open(path, "w").close()

    path = tmp_path / "tidied"
    ref = tidy.remote(str(path))
    eventually(gate.arrived)
    hoplo.cancel(ref)
    with pytest.raises(TaskCancelledError):
        hoplo.get(ref, timeout=10)
    assert path.exists()


def test_force_ends_the_worker(gate):
    ref = hold.remote(gate)
    eventually(gate.arrived)
    (pid,) = gate.pids_arrived()
    hoplo.cancel(ref, force=True)
    with pytest.raises((TaskCancelledError, WorkerCrashedError)):
        hoplo.get(ref, timeout=10)
    eventually(lambda: not alive(pid))
    assert gate.arrived() == 1


def test_tasks_that_depend_on_a_cancelled_one_are_cancelled_too(gate):
    first = hold.remote(gate, 1)
    second = square.remote(first)
    eventually(gate.arrived)
    hoplo.cancel(first)
    with pytest.raises(TaskCancelledError):
        hoplo.get(second, timeout=10)


def test_cancel_reaches_the_tasks_that_a_task_called(gate):
    @hoplo.remote
    def outer():
        return hoplo.get(hold.remote(gate))

    ref = outer.remote()
    eventually(gate.arrived)
    hoplo.cancel(ref)
    with pytest.raises(TaskCancelledError):
        hoplo.get(ref, timeout=10)
    # The CPU of the inner one is free again though the gate never opened.
    eventually(lambda: hoplo.available_resources().get("CPU") == 4)


def test_cancel_without_recursion_spares_them(gate):
    inner_refs = []

    @hoplo.remote
    class Keeper:
        def keep(self, refs):
            self.refs = refs

        def take(self):
            return self.refs

    keeper = Keeper.remote()

    @hoplo.remote
    def outer():
        inner = hold.remote(gate, "spared")
        hoplo.get(keeper.keep.remote([inner]))
        return hoplo.get(inner)

    ref = outer.remote()
    eventually(gate.arrived)
    hoplo.cancel(ref, recursive=False)
    with pytest.raises(TaskCancelledError):
        hoplo.get(ref, timeout=10)
    inner_refs = hoplo.get(keeper.take.remote())
    gate.open()
    assert hoplo.get(inner_refs, timeout=10) == ["spared"]


def test_cancelling_what_is_done_changes_nothing():
    ref = square.remote(3)
    assert ready(ref)
    hoplo.cancel(ref)
    hoplo.cancel(ref, force=True)
    assert hoplo.get(ref) == 9


def test_cancelling_twice(gate):
    ref = hold.remote(gate)
    eventually(gate.arrived)
    hoplo.cancel(ref)
    hoplo.cancel(ref)
    with pytest.raises(TaskCancelledError):
        hoplo.get(ref, timeout=10)
    assert hoplo.get(square.remote(2)) == 4


def test_num_returns_may_be_a_whole_number_of_numpy():
    refs = [hoplo.put(x) for x in range(3)]
    assert hoplo.wait(refs, num_returns=np.int64(2)) == (refs[:2], refs[2:])
    with pytest.raises(ValueError, match="from 1 to the number of refs, 3, not 4"):
        hoplo.wait(refs, num_returns=np.uint8(4))


def test_who_waits_for_several_results_tells_others_of_one_at_once():
    @hoplo.remote
    def computes():
        sum(range(2_000_000))  # the driver sleeps by then
        return time.perf_counter()

    @hoplo.remote
    def waits_for(refs):
        ended = hoplo.get(refs[0])
        return time.perf_counter() - ended

    late = []
    for _ in range(7):
        result = computes.remote()
        late += hoplo.get([waits_for.remote([result]) for _ in range(2)])
    # It was told when the driver looked for signals, 0.1 s after it had begun to wait.
    assert statistics.median(late) < 0.03, late
