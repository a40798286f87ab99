"""Refs in event loops and as futures."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading

import pytest
from conftest import eventually

import hoplo
from hoplo.exceptions import GetTimeoutError, TaskCancelledError


@hoplo.remote
def double(x):
    return 2 * x


@hoplo.remote
def fail(text):
    raise ValueError(text)


@hoplo.remote
def wait(gate):
    return gate.wait("through")


def test_await_gives_the_value():
    async def main():
        return await double.remote(4), await hoplo.put("put")

    assert asyncio.run(main()) == (8, "put")


def test_gather_of_a_thousand():
    async def main():
        return await asyncio.gather(*[double.remote(i) for i in range(1000)])

    assert asyncio.run(main()) == [2 * i for i in range(1000)]


def test_await_raises_the_users_own_type():
    async def main():
        with pytest.raises(ValueError, match="asynchronously"):
            await fail.remote("asynchronously")
        return await asyncio.gather(
            fail.remote("together"), double.remote(1), return_exceptions=True
        )

    error, value = asyncio.run(main())
    assert isinstance(error, ValueError)
    assert value == 2


def test_the_loop_goes_on_while_a_ref_is_awaited(gate):
    async def main():
        through = asyncio.ensure_future(wait.remote(gate))
        # The task may be there before the first look. It waits until this loop, which goes on,
        # lets it through.
        turns = 0
        while not gate.arrived() or turns < 3:
            await asyncio.sleep(0.001)
            turns += 1
        gate.open()
        return await through

    assert asyncio.run(main()) == "through"


def test_awaiting_one_ref_twice_and_in_two_tasks():
    async def main():
        ref = double.remote(3)
        both = await asyncio.gather(ref, ref)
        return both, await ref

    assert asyncio.run(main()) == ([6, 6], 6)


def test_wait_for_gives_up_and_the_ref_stays_good(gate):
    async def main():
        ref = wait.remote(gate)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(ref, timeout=0.05)
        gate.open()
        return await ref

    assert asyncio.run(main()) == "through"


def test_as_completed_and_async_for():
    @hoplo.remote
    def count(n):
        yield from range(n)

    async def main():
        done = [await ref for ref in asyncio.as_completed([double.remote(i) for i in range(20)])]
        streamed = [await ref async for ref in count.remote(20)]
        return sorted(done), streamed

    assert asyncio.run(main()) == ([2 * i for i in range(20)], list(range(20)))


def test_await_of_a_cancelled_task(gate):
    async def main():
        ref = wait.remote(gate)
        while not gate.arrived():
            await asyncio.sleep(0.001)
        hoplo.cancel(ref)
        with pytest.raises(TaskCancelledError):
            await ref

    asyncio.run(main())


def test_several_loops_in_several_threads():
    async def main(base):
        return await asyncio.gather(*[double.remote(base + i) for i in range(100)])

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda base: asyncio.run(main(base)), range(0, 400, 100)))
    assert answers == [[2 * (base + i) for i in range(100)] for base in range(0, 400, 100)]


def test_a_loop_that_ends_before_its_ref_harms_nobody(gate):
    async def main():
        task = asyncio.ensure_future(wait.remote(gate))
        await asyncio.sleep(0)
        task.cancel()

    asyncio.run(main())
    gate.open()
    assert asyncio.run(_value(double.remote(1))) == 2


async def _value(ref):
    return await ref


# ------------------------------------------------------------------------------- futures


def test_future_of_a_ref():
    future = double.remote(21).future()
    assert isinstance(future, concurrent.futures.Future)
    assert future.result(timeout=20) == 42
    assert double.remote(1).future().exception(timeout=20) is None


def test_future_of_a_failure():
    future = fail.remote("later").future()
    assert isinstance(future.exception(timeout=20), ValueError)
    with pytest.raises(ValueError, match="later"):
        future.result()


def test_futures_call_back_without_anybody_in_get(gate):
    called = threading.Event()
    future = wait.remote(gate).future()
    future.add_done_callback(lambda done: called.set() if done.result() == "through" else None)
    eventually(gate.arrived)
    assert not called.is_set()
    gate.open()
    assert called.wait(20)


def test_futures_together():
    futures = [double.remote(i).future() for i in range(100)]
    done, waiting = concurrent.futures.wait(futures, timeout=30)
    assert not waiting
    assert sorted(future.result() for future in done) == [2 * i for i in range(100)]


def test_threads_share_the_api():
    def work(base):
        refs = [double.remote(base + i) for i in range(50)]
        ready, _ = hoplo.wait(refs, num_returns=25, timeout=30)
        assert len(ready) == 25
        big = hoplo.put(b"x" * 200_000)
        assert len(hoplo.get(big)) == 200_000
        return sum(hoplo.get(refs))

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        sums = list(pool.map(work, range(0, 800, 100)))
    assert sums == [sum(2 * (base + i) for i in range(50)) for base in range(0, 800, 100)]


def test_get_in_many_threads_times_out_in_each(gate):
    ref = wait.remote(gate)

    def give_up(_):
        try:
            hoplo.get(ref, timeout=0.1)
        except GetTimeoutError as error:
            return str(error)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        texts = list(pool.map(give_up, range(4)))
    assert all("wait" in text for text in texts)
    gate.open()
    assert hoplo.get(ref) == "through"
