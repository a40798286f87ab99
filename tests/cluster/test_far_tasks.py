"""Tasks that run on another node than their caller's."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
from typing import Any

import numpy as np
import pytest
from far import MIB, count_bytes, dies, echo, here, ones, total, where
from machines import alive, until
from processes import forever

import hoplo
from hoplo.exceptions import (
    GetTimeoutError,
    SerializationError,
    TaskCancelledError,
    TaskError,
    WorkerCrashedError,
)

FAR = (1, 2)

# ------------------------------------------------------------------------------- errors


@hoplo.remote
def fails(*_: Any) -> None:
    def inner() -> None:
        raise ValueError("it failed there")

    inner()


def test_an_error_comes_back_as_what_it_was_with_the_far_traceback(far: Any) -> None:
    ref = fails.options(scheduling_strategy=far.on(1)).remote()
    with pytest.raises(ValueError, match="it failed there") as caught:
        hoplo.get(ref, timeout=20)
    assert isinstance(caught.value, TaskError)
    assert "in inner" in str(caught.value)
    assert "test_far_tasks.py" in str(caught.value)


def test_an_error_passes_through_the_tasks_that_needed_the_result(far: Any) -> None:
    failed = fails.options(scheduling_strategy=far.on(1)).remote()
    for number in (0, 1, 2):
        ref = total.options(scheduling_strategy=far.on(number)).remote(failed, 1)
        with pytest.raises(ValueError, match="it failed there"):
            hoplo.get(ref, timeout=20)


def test_a_result_that_cannot_be_pickled(far: Any) -> None:
    @hoplo.remote
    def lock() -> Any:
        import threading

        return threading.Lock()

    with pytest.raises(SerializationError, match="lock"):
        hoplo.get(lock.options(scheduling_strategy=far.on(1)).remote(), timeout=20)


def test_a_far_task_that_hangs_is_explained_when_get_gives_up(far: Any, gate: Any) -> None:
    @hoplo.remote
    def waits() -> None:
        gate.wait()

    ref = waits.options(scheduling_strategy=far.on(1)).remote()
    until(lambda: gate.arrived() == 1)
    with pytest.raises(GetTimeoutError, match="waits"):
        hoplo.get(ref, timeout=0.2)
    gate.open()
    assert hoplo.get(ref, timeout=20) is None


# ------------------------------------------------------------------------------- where


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_task_runs_on_the_node_that_it_was_sent_to(far: Any, number: int) -> None:
    strategy = far.on(number)
    refs = [where.options(scheduling_strategy=strategy).remote() for _ in range(20)]
    assert set(hoplo.get(refs, timeout=20)) == {far.ids[number]}


def test_each_node_is_told_under_the_id_that_its_tasks_see(far: Any) -> None:
    told = {node["NodeID"] for node in hoplo.nodes() if node["Alive"]}
    seen = {
        hoplo.get(where.options(scheduling_strategy=far.on(n)).remote(), timeout=20)
        for n in range(3)
    }
    assert told == seen == set(far.ids)


# ------------------------------------------------------------------------------- values

VALUES = {
    "none": None,
    "int": 1 << 80,
    "text": "naïve ✓",
    "bytes": bytes(range(256)),
    "nested": {"a": [1, (2.5, {"b"})], None: ...},
    "small array": np.arange(100.0),
    "array that is not contiguous": np.arange(10_000)[::3],
    "empty array": np.empty((0, 3)),
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_a_value_goes_there_and_back(far: Any, value: Any) -> None:
    got = hoplo.get(echo.options(scheduling_strategy=far.on(1)).remote(value), timeout=20)
    if isinstance(value, np.ndarray):
        assert got.dtype == value.dtype
        np.testing.assert_array_equal(got, value)
    else:
        assert got == value


def test_keyword_arguments_and_several_results(far: Any) -> None:
    @hoplo.remote(num_returns=3)
    def three(a: int, *rest: int, b: int = 0) -> tuple[Any, ...]:
        return a, rest, b

    refs = three.options(scheduling_strategy=far.on(2)).remote(1, 2, 3, b=4)
    assert hoplo.get(refs, timeout=20) == [1, (2, 3), 4]


def test_a_function_of_this_test_and_what_it_closes_over(far: Any) -> None:
    offset = 10

    @hoplo.remote
    def shifted(x: int) -> int:
        return x + offset

    assert hoplo.get(shifted.options(scheduling_strategy=far.on(1)).remote(1), timeout=20) == 11


def test_functions_and_classes_go_to_a_node_once(make_lab: Any) -> None:
    """Each captures 5 MB that no packing makes smaller."""
    lab = make_lab(nodes=2)
    lab.cluster("--num-cpus", "2")
    source = """
    from hoplo.util.scheduling_strategies import NodeAffinitySchedulingStrategy
    hoplo.init(address="auto")
    [there] = [n["NodeID"] for n in hoplo.nodes() if n["NodeManagerAddress"] != "10.199.0.1"]
    on = {"num_cpus": 0, "scheduling_strategy": NodeAffinitySchedulingStrategy(there)}
    data = os.urandom(5_000_000)

    @hoplo.remote(**on)
    def size():
        return len(data), os.getpid()

    @hoplo.remote(**on)
    class Sized:
        def size(self):
            return len(data), os.getpid()

    def sizes():
        actors = [Sized.remote() for _ in range(3)]
        refs = [size.remote() for _ in range(20)] + [actor.size.remote() for actor in actors]
        return zip(*hoplo.get(refs))

    for _ in range(2):
        found, processes = sizes()
        say([set(found) == {5_000_000}, len(set(processes)) > 3])
        heard()
    """
    program = lab[1].program(source)
    moved = []
    for _ in range(2):
        assert program.heard() == [True, True]
        moved.append(lab.moved(2)["rx_bytes"])
        program.tell()
    program.end()
    assert 10_000_000 < moved[0] < 12_000_000
    assert moved[1] - moved[0] < 400_000


@pytest.mark.parametrize("nbytes", [200_000, 10 * MIB])
def test_a_large_argument_and_a_large_result(far: Any, nbytes: int) -> None:
    array = np.ones(nbytes, np.uint8)
    strategy = far.on(1)
    assert hoplo.get(count_bytes.options(scheduling_strategy=strategy).remote(array)) == nbytes
    got = hoplo.get(ones.options(scheduling_strategy=strategy).remote(nbytes), timeout=30)
    assert got.nbytes == nbytes
    assert int(got.sum(dtype=np.int64)) == nbytes
    back = hoplo.get(echo.options(scheduling_strategy=strategy).remote(array), timeout=30)
    np.testing.assert_array_equal(back, array)


def test_the_result_of_one_node_is_an_argument_on_another_one(far: Any) -> None:
    first = ones.options(scheduling_strategy=far.on(1)).remote(MIB)
    second = echo.options(scheduling_strategy=far.on(2)).remote(first)
    third = count_bytes.options(scheduling_strategy=far.on(0)).remote(second)
    assert hoplo.get(third, timeout=30) == MIB


def test_a_chain_that_goes_from_node_to_node(far: Any) -> None:
    ref = hoplo.put(0)
    for step in range(30):
        ref = total.options(scheduling_strategy=far.on(step % 3)).remote(ref, 1)
    assert hoplo.get(ref, timeout=30) == 30


# ------------------------------------------------------------------------------- refs inside


@hoplo.remote
def read_inside(boxed: dict[str, list[Any]]) -> tuple[str, Any]:
    return here(), sum(hoplo.get(boxed["refs"]))


@hoplo.remote
def put_some(count: int) -> list[Any]:
    return [hoplo.put(i) for i in range(count)]


def test_refs_in_a_container_are_read_there(far: Any) -> None:
    mine = [hoplo.put(i) for i in range(10)]
    theirs = [echo.options(scheduling_strategy=far.on(2)).remote(i) for i in range(10)]
    ref = read_inside.options(scheduling_strategy=far.on(1)).remote({"refs": mine + theirs})
    assert hoplo.get(ref, timeout=20) == (far.ids[1], 90)


def test_refs_that_a_far_task_made_are_read_here_and_elsewhere(far: Any) -> None:
    refs = hoplo.get(put_some.options(scheduling_strategy=far.on(1)).remote(20), timeout=20)
    assert hoplo.get(refs, timeout=20) == list(range(20))
    ref = read_inside.options(scheduling_strategy=far.on(2)).remote({"refs": refs})
    assert hoplo.get(ref, timeout=20) == (far.ids[2], 190)


def test_a_large_object_that_a_far_task_put_is_read_though_the_task_is_over(far: Any) -> None:
    @hoplo.remote
    def box() -> list[Any]:
        return [hoplo.put(np.ones(MIB, np.uint8))]

    [ref] = hoplo.get(box.options(scheduling_strategy=far.on(1)).remote(), timeout=20)
    assert hoplo.get(count_bytes.options(scheduling_strategy=far.on(2)).remote(ref)) == MIB
    assert int(hoplo.get(ref, timeout=20).sum(dtype=np.int64)) == MIB


def test_a_ref_in_a_ref_in_a_ref(far: Any) -> None:
    @hoplo.remote
    def unpack(boxed: list[Any], depth: int) -> Any:
        for _ in range(depth):
            boxed = hoplo.get(boxed[0])
        return boxed

    ref = hoplo.put("core")
    for number in (1, 2, 1):
        ref = echo.options(scheduling_strategy=far.on(number)).remote([ref])
    boxed = unpack.options(scheduling_strategy=far.on(2)).remote([ref], 4)
    assert hoplo.get(boxed, timeout=20) == "core"


# ------------------------------------------------------------------------------- many, nested


def test_a_thousand_tasks_come_back_each_with_its_own_result(far: Any) -> None:
    strategies = [far.on(number) for number in range(3)]
    refs = [echo.options(scheduling_strategy=strategies[i % 3]).remote(i) for i in range(1000)]
    assert hoplo.get(refs, timeout=30) == list(range(1000))


def test_tasks_that_call_tasks_on_yet_another_node(far: Any) -> None:
    @hoplo.remote
    def outer(strategy: Any) -> list[str]:
        inner = [where.options(scheduling_strategy=strategy).remote() for _ in range(5)]
        return [here(), *hoplo.get(inner)]

    ref = outer.options(scheduling_strategy=far.on(1)).remote(far.on(2))
    assert hoplo.get(ref, timeout=20) == [far.ids[1], *[far.ids[2]] * 5]
    ref = outer.options(scheduling_strategy=far.on(2)).remote(far.on(0))
    assert hoplo.get(ref, timeout=20) == [far.ids[2], *[far.ids[0]] * 5]


def test_a_ref_that_was_returned_before_it_had_a_value(far: Any, gate: Any) -> None:
    @hoplo.remote
    def late() -> int:
        gate.wait()
        return 7

    @hoplo.remote
    def starts(strategy: Any) -> list[Any]:
        return [late.options(scheduling_strategy=strategy).remote()]

    [ref] = hoplo.get(starts.options(scheduling_strategy=far.on(1)).remote(far.on(2)), timeout=20)
    _, pending = hoplo.wait([ref], timeout=0.05)
    assert pending == [ref]
    until(lambda: gate.arrived() == 1)
    gate.open()
    assert hoplo.get(ref, timeout=20) == 7


def test_wait_tells_what_is_ready_of_tasks_on_several_nodes(far: Any, gate: Any) -> None:
    @hoplo.remote
    def held(value: int) -> Any:
        return gate.wait(value)

    slow = [held.options(scheduling_strategy=far.on(n)).remote(n) for n in range(3)]
    quick = [echo.options(scheduling_strategy=far.on(n)).remote(n) for n in range(3)]
    ready, pending = hoplo.wait(slow + quick, num_returns=3, timeout=20)
    assert set(ready) == set(quick)
    assert set(pending) == set(slow)
    gate.open()
    assert len(hoplo.wait(slow, num_returns=3, timeout=20)[0]) == 3


def test_a_far_result_is_awaited(far: Any) -> None:
    async def main() -> list[int]:
        refs = [echo.options(scheduling_strategy=far.on(n % 3)).remote(n) for n in range(9)]
        return list(await asyncio.gather(*refs))

    assert asyncio.run(main()) == list(range(9))


# ------------------------------------------------------------------------------- crashes


def test_a_far_worker_that_is_killed_costs_a_retry(far: Any, notes: Any) -> None:
    @hoplo.remote(max_retries=1)
    def once() -> str:
        if notes.add() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return here()

    ref = once.options(scheduling_strategy=far.on(1)).remote()
    assert hoplo.get(ref, timeout=20) == far.ids[1]
    assert len(notes.lines()) == 2


def test_a_far_worker_that_is_killed_and_no_retry_is_left(far: Any) -> None:
    ref = dies.options(scheduling_strategy=far.on(1), max_retries=0).remote()
    with pytest.raises(WorkerCrashedError):
        hoplo.get(ref, timeout=20)


def test_tasks_behind_one_that_kills_its_worker_all_run(far: Any) -> None:
    strategy = far.on(1)
    refs = [echo.options(scheduling_strategy=strategy, max_retries=0).remote(i) for i in range(50)]
    bad = dies.options(scheduling_strategy=strategy, max_retries=0).remote()
    # What was sent ahead to the worker that died had not begun: it costs no retry.
    more = [echo.options(scheduling_strategy=strategy, max_retries=1).remote(i) for i in range(50)]
    assert hoplo.get(refs + more, timeout=30) == [*range(50), *range(50)]
    with pytest.raises(WorkerCrashedError):
        hoplo.get(bad, timeout=20)


def test_an_exception_that_is_to_be_retried_is(far: Any, notes: Any) -> None:
    @hoplo.remote(max_retries=3, retry_exceptions=[ValueError])
    def third_time() -> int:
        if (count := notes.add()) < 3:
            raise ValueError("not yet")
        return count

    assert hoplo.get(third_time.options(scheduling_strategy=far.on(2)).remote(), timeout=20) == 3


# ------------------------------------------------------------------------------- cancel


def test_a_queued_far_task_is_cancelled_and_never_runs(far: Any, gate: Any, notes: Any) -> None:
    @hoplo.remote
    def held() -> None:
        gate.wait()

    @hoplo.remote
    def runs() -> None:
        notes.add()

    strategy = far.on(1)
    holding = [held.options(scheduling_strategy=strategy).remote() for _ in range(2)]
    until(lambda: gate.arrived() == 2)
    queued = [runs.options(scheduling_strategy=strategy).remote() for _ in range(50)]
    for ref in queued:
        hoplo.cancel(ref)
    for ref in queued:
        with pytest.raises(TaskCancelledError):
            hoplo.get(ref, timeout=20)
    gate.open()
    hoplo.get(holding, timeout=20)
    assert hoplo.get(echo.options(scheduling_strategy=strategy).remote(1), timeout=20) == 1
    assert notes.lines() == []


def test_a_running_far_task_is_cancelled(far: Any, notes: Any) -> None:
    @hoplo.remote
    def sleeps() -> None:
        notes.add(os.getpid())
        forever()

    ref = sleeps.options(scheduling_strategy=far.on(1)).remote()
    until(lambda: notes.lines())
    hoplo.cancel(ref)
    with pytest.raises(TaskCancelledError):
        hoplo.get(ref, timeout=20)


def test_a_far_task_that_resists_is_cancelled_by_force(far: Any, notes: Any) -> None:
    @hoplo.remote(max_retries=0)
    def resists() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        notes.add(os.getpid())
        while True:
            try:
                forever()
            except BaseException:
                pass

    ref = resists.options(scheduling_strategy=far.on(2)).remote()
    [pid] = until(notes.pids)
    hoplo.cancel(ref, force=True)
    with pytest.raises((TaskCancelledError, WorkerCrashedError)):
        hoplo.get(ref, timeout=20)
    until(lambda: not alive(pid))


def test_the_children_of_a_cancelled_task_are_cancelled_on_their_nodes(
    far: Any, notes: Any
) -> None:
    @hoplo.remote
    def sleeps() -> None:
        notes.add(os.getpid())
        try:
            forever()
        finally:
            notes.add("interrupted")

    @hoplo.remote
    def parent(strategy: Any) -> None:
        hoplo.get(sleeps.options(scheduling_strategy=strategy).remote())

    ref = parent.options(scheduling_strategy=far.on(1)).remote(far.on(2))
    until(lambda: notes.lines())
    hoplo.cancel(ref, recursive=True)
    with pytest.raises(TaskCancelledError):
        hoplo.get(ref, timeout=20)
    until(lambda: "interrupted" in notes.lines(), what="the child heard of it")


# ------------------------------------------------------------------------------- streams


@hoplo.remote
def counts(n: int) -> Any:
    yield from range(n)


def test_a_stream_of_another_node_comes_in_order(far: Any) -> None:
    stream = counts.options(scheduling_strategy=far.on(1)).remote(200)
    assert [hoplo.get(ref) for ref in stream] == list(range(200))


def test_a_stream_of_large_values(far: Any) -> None:
    @hoplo.remote
    def arrays(n: int) -> Any:
        for i in range(n):
            yield np.full(MIB, i, np.uint8)

    stream = arrays.options(scheduling_strategy=far.on(2)).remote(8)
    seen = [int(hoplo.get(ref).sum(dtype=np.int64)) // MIB for ref in stream]
    assert seen == list(range(8))


def test_an_error_is_the_last_of_a_stream(far: Any) -> None:
    @hoplo.remote
    def breaks() -> Any:
        yield from range(3)
        raise ValueError("broken")

    seen: list[int] = []
    values = map(hoplo.get, breaks.options(scheduling_strategy=far.on(1)).remote())
    with pytest.raises(ValueError, match="broken"):
        seen.extend(values)
    assert seen == [0, 1, 2]


def test_a_stream_that_nobody_reads_is_paused(far: Any, notes: Any) -> None:
    @hoplo.remote(_generator_backpressure_num_objects=4)
    def endless() -> Any:
        for i in itertools.count():
            notes.add(i)
            yield i

    stream = endless.options(scheduling_strategy=far.on(1)).remote()
    assert [hoplo.get(next(stream)) for _ in range(10)] == list(range(10))
    until(lambda: len(notes.lines()) >= 13)
    # It would have gone on by now: another call went there and came back.
    assert hoplo.get(echo.options(scheduling_strategy=far.on(1)).remote(1), timeout=20) == 1
    assert len(notes.lines()) <= 16
    hoplo.cancel(stream)


def test_a_stream_that_was_dropped_ends_there(far: Any, notes: Any) -> None:
    @hoplo.remote(_generator_backpressure_num_objects=2)
    def endless() -> Any:
        try:
            yield from itertools.count()
        finally:
            notes.add("ended")

    stream = endless.options(scheduling_strategy=far.on(2)).remote()
    assert hoplo.get(next(stream)) == 0
    del stream
    until(lambda: notes.lines() == ["ended"])


# ------------------------------------------------------------------------------- environments


def test_variables_of_a_runtime_environment(far: Any) -> None:
    @hoplo.remote(runtime_env={"env_vars": {"FAR_COLOUR": "blue"}})
    def colour() -> Any:
        return os.environ.get("FAR_COLOUR"), sys.executable

    got, python = hoplo.get(colour.options(scheduling_strategy=far.on(1)).remote(), timeout=20)
    assert got == "blue"
    assert python == sys.executable


def test_what_a_far_worker_prints_is_shown_here(far: Any, capfd: Any) -> None:
    @hoplo.remote
    def speaks() -> None:
        print("hello from afar", flush=True)

    hoplo.get(speaks.options(scheduling_strategy=far.on(1)).remote(), timeout=20)
    shown = ""

    def is_shown() -> bool:
        nonlocal shown
        out, err = capfd.readouterr()
        shown += out + err
        return "hello from afar" in shown

    until(is_shown)
