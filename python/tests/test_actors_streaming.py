"""Streaming methods of actors: sync and async generators, back-pressure, errors, ends."""

from __future__ import annotations

import asyncio
import os

import pytest
from conftest import eventually
from processes import Notes, alive

import hoplo
from hoplo.exceptions import ActorDiedError, TaskCancelledError


@hoplo.remote
class Source:
    def numbers(self, count):
        yield from range(count)

    def noted(self, notes, count):
        for i in range(count):
            notes.add(i)
            yield i

    def broken(self, at):
        yield from range(at)
        raise ArithmeticError("the source is dry")

    def dying(self, at):
        yield from range(at)
        os._exit(9)

    def gated(self, gate):
        yield "before"
        yield gate.wait("after")

    @hoplo.method(num_returns="streaming")
    def listed(self):
        return iter("abc")

    def pid(self):
        return os.getpid()


@hoplo.remote
class AsyncSource:
    async def numbers(self, count):
        for i in range(count):
            await asyncio.sleep(0)
            yield i

    async def noted(self, notes, count):
        for i in range(count):
            notes.add(i)
            yield i

    async def broken(self):
        yield 0
        raise ArithmeticError("the source is dry")


@pytest.mark.parametrize("source", [Source, AsyncSource])
def test_values_come_in_order(source):
    stream = source.remote().numbers.remote(200)
    assert isinstance(stream, hoplo.ObjectRefGenerator)
    assert [hoplo.get(ref) for ref in stream] == list(range(200))
    assert stream.is_finished()
    with pytest.raises(StopIteration):
        next(stream)
    assert hoplo.get(stream.completed()) is None


@pytest.mark.parametrize("source", [Source, AsyncSource])
def test_an_empty_stream_ends_at_once(source):
    assert list(source.remote().numbers.remote(0)) == []


def test_iterators_that_methods_return_are_streams_too():
    assert hoplo.get(list(Source.remote().listed.remote())) == ["a", "b", "c"]


def test_a_value_is_there_before_the_next_is_made(gate):
    stream = Source.remote().gated.remote(gate)
    assert hoplo.get(next(stream)) == "before"
    assert not stream.next_ready()
    assert hoplo.wait([stream], timeout=0.1) == ([], [stream])
    gate.open()
    assert hoplo.wait([stream], timeout=20) == ([stream], [])
    assert hoplo.get(next(stream)) == "after"


def test_async_iteration():
    async def read():
        return [await ref async for ref in AsyncSource.remote().numbers.remote(50)]

    assert asyncio.run(read()) == list(range(50))


@pytest.mark.parametrize("source", [Source, AsyncSource])
def test_back_pressure_pauses_the_source(source, tmp_path):
    notes = Notes(tmp_path / "made")
    actor = source.remote()
    method = actor.noted.options(_generator_backpressure_num_objects=4)
    stream = method.remote(notes, 100)
    eventually(lambda: len(notes.lines()) >= 4)
    first = hoplo.get(next(stream))
    assert first == 0
    taken = 1
    for ref in stream:
        assert hoplo.get(ref) == taken
        taken += 1
        # One that is being made may be noted before it waits.
        assert len(notes.lines()) <= taken + 5
    assert taken == 100


@pytest.mark.parametrize("source", ["sync", "async"])
def test_an_error_is_the_last_ref(source):
    stream = (
        Source.remote().broken.remote(1)
        if source == "sync"
        else (AsyncSource.remote().broken.remote())
    )
    assert hoplo.get(next(stream)) == 0
    last = next(stream)
    with pytest.raises(ArithmeticError, match="the source is dry"):
        hoplo.get(last)
    assert list(stream) == []
    with pytest.raises(ArithmeticError):
        hoplo.get(stream.completed())


def test_values_made_before_a_crash_stay():
    stream = Source.remote().dying.remote(3)
    refs = list(stream)
    assert hoplo.get(refs[:3]) == [0, 1, 2]
    with pytest.raises(ActorDiedError, match="exited with code 9"):
        hoplo.get(refs[3])


def test_cancel_ends_a_stream(gate):
    source = Source.remote()
    stream = source.gated.remote(gate)
    first = next(stream)
    eventually(gate.arrived)
    hoplo.cancel(stream)
    with pytest.raises(TaskCancelledError):
        hoplo.get(next(stream))
    assert hoplo.get(first) == "before"
    assert hoplo.get(source.pid.remote()) > 0  # the actor goes on


def test_a_dropped_stream_stops_its_source(tmp_path):
    notes = Notes(tmp_path / "made")
    source = Source.remote()
    stream = source.noted.options(_generator_backpressure_num_objects=2).remote(notes, 10**9)
    hoplo.get(next(stream))
    del stream
    assert hoplo.get(source.pid.remote(), timeout=30)  # the source has become free


def test_streams_of_several_callers_do_not_mix():
    @hoplo.remote
    def read(source):
        return [hoplo.get(ref) for ref in source.numbers.remote(100)]

    source = Source.remote()
    assert hoplo.get([read.remote(source) for _ in range(3)]) == [list(range(100))] * 3


def test_a_stream_keeps_its_actor_until_it_ends(gate):
    source = Source.remote()
    pid = hoplo.get(source.pid.remote())
    stream = source.gated.remote(gate)
    del source
    hoplo.get(next(stream))
    assert alive(pid)
    gate.open()
    assert hoplo.get(next(stream)) == "after"
    eventually(lambda: not alive(pid))


def test_large_values_go_through_the_store():
    numpy = pytest.importorskip("numpy")

    @hoplo.remote
    class Frames:
        def frames(self):
            for i in range(5):
                yield numpy.full((100_000,), i)

    for i, ref in enumerate(Frames.remote().frames.remote()):
        frame = hoplo.get(ref)
        assert frame[0] == frame[-1] == i
