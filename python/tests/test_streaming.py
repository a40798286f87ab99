"""Tasks that are generators: refs one by one."""

import asyncio
import itertools

import numpy as np
import pytest
from conftest import eventually
from processes import Notes

import hoplo
from hoplo.exceptions import ObjectLostError, TaskCancelledError


@hoplo.remote
def count(n):
    yield from range(n)


@hoplo.remote
def breaks(n):
    yield from range(n)
    raise ValueError("broken")


# ------------------------------------------------------------------------------------ errors


def test_an_error_is_the_last_ref():
    seen = []
    values = (hoplo.get(ref) for ref in breaks.remote(3))
    with pytest.raises(ValueError, match="broken"):
        seen.extend(values)
    assert seen == [0, 1, 2]


def test_after_the_error_the_stream_has_ended():
    stream = breaks.remote(1)
    assert hoplo.get(next(stream)) == 0
    failed = next(stream)
    with pytest.raises(ValueError, match="broken"):
        hoplo.get(failed)
    with pytest.raises(StopIteration):
        next(stream)
    with pytest.raises(ValueError, match="broken"):
        hoplo.get(stream.completed())


def test_a_function_that_yields_nothing_streamable():
    @hoplo.remote(num_returns="streaming")
    def plain():
        return 3

    with pytest.raises(Exception, match=r"generator|iterable|streaming|num_returns"):
        hoplo.get(next(plain.remote()))


def test_a_value_that_cannot_be_pickled():
    import threading

    @hoplo.remote
    def locks():
        yield 1
        yield threading.Lock()

    stream = locks.remote()
    assert hoplo.get(next(stream)) == 1
    bad = next(stream)
    with pytest.raises(hoplo.exceptions.SerializationError, match="lock"):
        hoplo.get(bad)


def test_get_of_a_generator():
    with pytest.raises(TypeError, match="take them with next"):
        hoplo.get(count.remote(1))


# ------------------------------------------------------------------------------------ iteration


@pytest.mark.parametrize("n", [0, 1, 5, 500])
def test_every_value_in_order(n):
    assert [hoplo.get(ref) for ref in count.remote(n)] == list(range(n))


def test_num_returns_streaming():
    stream = count.options(num_returns="streaming").remote(3)
    assert isinstance(stream, hoplo.ObjectRefGenerator)
    assert hoplo.get(list(stream)) == [0, 1, 2]


def test_num_returns_dynamic_gives_one_ref_whose_value_holds_a_ref_for_each_item():
    ref = count.options(num_returns="dynamic").remote(3)
    assert isinstance(ref, hoplo.ObjectRef)
    refs = hoplo.get(ref)
    assert len(refs) == 3
    assert [hoplo.get(one) for one in refs] == [hoplo.get(one) for one in refs] == [0, 1, 2]
    again = count.options(num_returns="dynamic").options(num_returns="streaming").remote(2)
    assert hoplo.get(list(again)) == [0, 1]


def test_the_refs_of_a_dynamic_task_can_be_sent_to_others():
    @hoplo.remote
    def total(refs):
        return sum(hoplo.get(list(refs)))

    assert hoplo.get(total.remote(count.options(num_returns="dynamic").remote(4))) == 6


def test_what_a_dynamic_task_yielded_before_its_error_is_kept():
    @hoplo.remote(num_returns="dynamic")
    def breaks(after):
        yield from range(after)
        raise KeyError("enough")

    *good, bad = hoplo.get(breaks.remote(2))
    assert hoplo.get(good) == [0, 1]
    with pytest.raises(KeyError, match="enough"):
        hoplo.get(bad)
    with pytest.raises(KeyError, match="enough"):
        hoplo.get(breaks.remote(0))


def test_dynamic_is_for_functions_that_yield():
    with pytest.raises(ValueError, match=r"for functions that yield, and .*plain does not"):

        @hoplo.remote(num_returns="dynamic")
        def plain():
            return 1


@hoplo.remote
class Reader:
    def lines(self, count):
        yield from range(count)

    @hoplo.method(num_returns="dynamic")
    def words(self, count, fails=False):
        yield from "abcdef"[:count]
        if fails:
            raise KeyError("torn")


@hoplo.remote
class AsyncReader:
    async def lines(self, count):
        for number in range(count):
            yield number

    @hoplo.method(num_returns="dynamic")
    async def words(self, count):
        for letter in "abcdef"[:count]:
            yield letter


@pytest.mark.parametrize("kind", [Reader, AsyncReader, Reader.options(max_concurrency=2)])
def test_a_dynamic_method_gives_one_ref_whose_value_holds_a_ref_for_each_item(kind):
    reader = kind.remote()
    ref = reader.words.remote(2)
    assert isinstance(ref, hoplo.ObjectRef)
    refs = hoplo.get(ref)
    assert hoplo.get(list(refs)) == hoplo.get(list(refs)) == ["a", "b"]
    dynamic = reader.lines.options(num_returns="dynamic", name="reading")
    assert hoplo.get(list(hoplo.get(dynamic.remote(3)))) == [0, 1, 2]
    assert repr(dynamic).endswith("Reader.lines, num_returns='dynamic')")
    streaming = dynamic.options(num_returns="streaming")
    assert hoplo.get(list(streaming.remote(2))) == [0, 1]


def test_what_a_dynamic_method_yielded_before_its_error_is_kept():
    reader = Reader.remote()
    *good, bad = hoplo.get(reader.words.remote(2, fails=True))
    assert hoplo.get(good) == ["a", "b"]
    with pytest.raises(KeyError, match="torn"):
        hoplo.get(bad)
    with pytest.raises(KeyError, match="torn"):
        hoplo.get(reader.words.remote(0, fails=True))
    with pytest.raises(ValueError, match=r"for functions that yield, and .*plain does not"):

        class Plain:
            @hoplo.method(num_returns="dynamic")
            def plain(self):
                return 1

    with pytest.raises(TypeError, match="runs nothing"):
        reader.lines.options(num_returns="dynamic")(1)


def test_values_come_before_the_task_ends(gate):
    @hoplo.remote
    def slow():
        yield 1
        yield 2
        gate.wait()
        yield 3

    stream = slow.remote()
    assert hoplo.get(next(stream)) == 1
    assert hoplo.get(next(stream)) == 2
    eventually(gate.arrived)
    assert not stream.is_finished()
    assert not stream.next_ready()
    gate.open()
    assert hoplo.get(next(stream)) == 3
    with pytest.raises(StopIteration):
        next(stream)
    assert stream.is_finished()
    assert not stream.next_ready()
    assert hoplo.wait([stream], timeout=0) == ([stream], [])
    assert hoplo.get(stream.completed()) is None


def test_large_values():
    @hoplo.remote
    def frames(n):
        for i in range(n):
            yield np.full(300_000, i)

    for i, ref in enumerate(frames.remote(10)):
        value = hoplo.get(ref)
        assert value.shape == (300_000,)
        assert (value == i).all()


def test_wait_takes_generators(gate):
    @hoplo.remote
    def slow():
        gate.wait()
        yield 1

    held, done, ref = slow.remote(), count.remote(2), hoplo.put(3)
    ready, waiting = hoplo.wait([held, done, ref], num_returns=2, timeout=20)
    assert ready == [done, ref]
    assert waiting == [held]
    gate.open()
    ready, waiting = hoplo.wait([held], timeout=20)
    assert ready == [held]
    assert hoplo.get(next(held)) == 1


def test_refs_of_a_stream_are_arguments():
    double = hoplo.remote(lambda x: 2 * x)
    assert hoplo.get([double.remote(ref) for ref in count.remote(4)]) == [0, 2, 4, 6]


def test_async_iteration():
    async def collect():
        return [await ref async for ref in count.remote(5)]

    assert asyncio.run(collect()) == [0, 1, 2, 3, 4]

    async def collect_broken():
        seen = []
        async for ref in breaks.remote(2):
            seen.append(await ref)

    with pytest.raises(ValueError, match="broken"):
        asyncio.run(collect_broken())


def test_two_streams_together():
    async def collect(stream):
        return [await ref async for ref in stream]

    async def both():
        return await asyncio.gather(collect(count.remote(50)), collect(count.remote(60)))

    assert asyncio.run(both()) == [list(range(50)), list(range(60))]


def test_a_stream_inside_a_task():
    @hoplo.remote
    def total(n):
        return sum(hoplo.get(ref) for ref in count.remote(n))

    assert hoplo.get(total.remote(10)) == 45


def test_a_generator_that_streams_from_another():
    @hoplo.remote
    def doubled(n):
        for ref in count.remote(n):
            yield 2 * hoplo.get(ref)

    assert [hoplo.get(ref) for ref in doubled.remote(4)] == [0, 2, 4, 6]


# ------------------------------------------------------------------------------------ flow


def test_back_pressure_pauses_the_generator(tmp_path):
    @hoplo.remote(_generator_backpressure_num_objects=2)
    def counted():
        for i in range(20):
            (tmp_path / f"made{i:02}").touch()
            yield i

    def made():
        return len(list(tmp_path.glob("made*")))

    stream = counted.remote()
    first = next(stream)
    eventually(lambda: made() >= 2)
    # Whoever waits does not make more: at most the two unread, the one read, and the next begun.
    hoplo.get([hoplo.remote(lambda: None).remote() for _ in range(20)])
    assert made() <= 4
    assert [hoplo.get(first), *(hoplo.get(ref) for ref in stream)] == list(range(20))
    assert made() == 20


def test_dropping_a_stream_cancels_the_rest(tmp_path):
    @hoplo.remote
    def endless():
        try:
            i = 0
            while True:
                yield i
                i += 1
        finally:
            (tmp_path / "ended").touch()

    stream = endless.options(_generator_backpressure_num_objects=4).remote()
    assert hoplo.get(next(stream)) == 0
    del stream
    eventually((tmp_path / "ended").exists)
    eventually(lambda: hoplo.available_resources()["CPU"] == 4)


def test_cancel_of_a_stream(gate):
    @hoplo.remote
    def slow():
        yield 1
        gate.wait()
        yield 2

    stream = slow.remote()
    assert hoplo.get(next(stream)) == 1
    eventually(gate.arrived)
    hoplo.cancel(stream)

    def rest():
        for ref in stream:
            hoplo.get(ref)

    with pytest.raises(TaskCancelledError):
        rest()


def test_a_stream_is_run_again_after_a_crash(tmp_path):
    import os

    @hoplo.remote(max_retries=1)
    def crashes():
        for i in range(6):
            if i == 3 and not (tmp_path / "crashed").exists():
                (tmp_path / "crashed").touch()
                os._exit(1)
            yield i

    assert [hoplo.get(ref) for ref in crashes.remote()] == list(range(6))


def test_a_generator_that_yielded_less_when_it_ran_again_ended_as_if_that_were_all(gate):
    import os

    @hoplo.remote(max_retries=1)
    def shrinks():
        runs_again = hoplo.get_runtime_context().get_attempt_number() > 0
        yield from range(2 if runs_again else 5)
        if not runs_again:
            gate.wait()
            os._exit(1)

    stream = shrinks.remote()
    assert [hoplo.get(next(stream)) for _ in range(5)] == [0, 1, 2, 3, 4]
    gate.open()
    with pytest.raises(ObjectLostError) as error:
        hoplo.get(next(stream))
    text = str(error.value)
    assert "shrinks ran again, and that run (attempt 1 at node " in text
    assert ") yielded 2 values, where an earlier one had yielded 5: " in text
    assert "max_retries=0" in text
    with pytest.raises(StopIteration):
        next(stream)


def test_a_reader_that_looked_ahead_let_the_producer_run_one_value_ahead(tmp_path):
    notes = Notes(tmp_path / "notes")

    def count(n):
        for i in range(n):
            notes.add(i)
            yield i

    @hoplo.remote
    class Counter:
        def threaded(self, n):
            yield from count(n)

    @hoplo.remote
    class AsyncCounter:
        async def coroutine(self, n):
            for i in range(n):
                notes.add(i)
                yield i

    task = hoplo.remote(count)
    for method in (task, Counter.remote().threaded, AsyncCounter.remote().coroutine):
        before = len(notes.lines())
        stream = method.options(_generator_backpressure_num_objects=1).remote(5)
        for taken in range(5):
            # However often it looks, what was not taken counts as unread.
            hoplo.wait([stream], timeout=20)
            assert stream.next_ready()
            assert not stream.is_finished()
            assert hoplo.wait([stream], timeout=0.05) == ([stream], [])
            assert len(notes.lines()) - before == taken + 1
            assert hoplo.get(next(stream)) == taken
        assert next(stream, None) is None
        assert stream.is_finished()
        assert not stream.next_ready()


def test_values_that_a_generator_gave_before_its_error_were_lost():
    @hoplo.remote(num_returns=4)
    def three_and_an_error(kind):
        yield 1
        yield np.zeros(1 << 20)
        yield [hoplo.put(3)]
        raise kind("no fourth")

    one, zeros, inner, missing = three_and_an_error.remote(LookupError)
    assert hoplo.get(one) == 1
    assert hoplo.get(zeros).sum() == 0
    assert hoplo.get(hoplo.get(inner)[0]) == 3
    with pytest.raises(LookupError, match="no fourth"):
        hoplo.get(missing)
    first, *rest = hoplo.remote(num_returns=3)(_one_and_an_error).remote()
    assert hoplo.get(first) == 1
    for ref in rest:
        with pytest.raises(LookupError):
            hoplo.get(ref)


def test_values_that_a_generator_gave_before_it_ended_too_early_were_lost():
    @hoplo.remote(num_returns=3)
    def two_of_three():
        yield 1
        yield np.ones(1 << 18)

    one, ones, missing = two_of_three.remote()
    assert hoplo.get(one) == 1
    assert hoplo.get(ones).sum() == 1 << 18
    with pytest.raises(ValueError, match="num_returns=3 and returned 2 values"):
        hoplo.get(missing)


def _one_and_an_error():
    yield 1
    raise LookupError("no more")


def test_refs_inside_what_a_generator_with_a_fixed_number_of_results_gave_were_lost():
    @hoplo.remote(num_returns=2)
    def lists():
        yield [hoplo.put(1)]
        yield [hoplo.put(np.ones(1 << 18))]

    one, ones = hoplo.get(lists.remote())
    assert hoplo.get(one[0]) == 1
    assert hoplo.get(ones[0]).sum() == 1 << 18


def test_a_generator_that_never_ends_hung_though_the_number_of_its_results_was_fixed(tmp_path):
    notes = Notes(tmp_path / "notes")

    def numbers():
        try:
            yield from itertools.count()
        finally:
            notes.add()

    @hoplo.remote
    class Source:
        def numbers(self):
            yield from numbers()

    functions = [numbers, lambda: itertools.count(), lambda: map(str, itertools.count())]
    calls = [hoplo.remote(num_returns=3)(function).remote() for function in functions]
    calls.append(Source.remote().numbers.options(num_returns=3).remote())
    for refs in calls:
        for ref in refs:
            with pytest.raises(ValueError, match="num_returns=3 and gave more values than that"):
                hoplo.get(ref, timeout=60)
    assert len(notes.lines()) == 2  # both generators were closed


def test_a_generator_that_cannot_be_closed_after_too_many_values_says_why():
    @hoplo.remote(num_returns=2)
    def clings():
        try:
            yield from range(10)
        finally:
            raise OSError("the file is still open")

    for ref in clings.remote():
        with pytest.raises(OSError, match="still open"):
            hoplo.get(ref, timeout=60)


def test_a_generator_with_a_fixed_number_of_results_is_still_retried(tmp_path):
    notes = Notes(tmp_path / "notes")

    @hoplo.remote(num_returns=3, max_retries=2, retry_exceptions=True)
    def works_at_last():
        yield 1
        yield np.ones(1 << 18)
        if notes.add() < 3:
            raise OSError("not yet")
        yield 3

    one, ones, three = works_at_last.remote()
    assert (hoplo.get(one), hoplo.get(ones).sum(), hoplo.get(three)) == (1, 1 << 18, 3)
    assert len(notes.lines()) == 3
