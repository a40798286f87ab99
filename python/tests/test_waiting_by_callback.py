"""A task that waits otherwise than in `get` lends its CPU, too: what it waits for may need it."""

from __future__ import annotations

import asyncio
import concurrent.futures

import pytest
from conftest import run_driver

import hoplo

NODE = {"num_cpus": 1}


@hoplo.remote
def one():
    return 1


@hoplo.remote
def ones():
    yield 1


@hoplo.remote(num_cpus=1)
class One:
    def one(self):
        return 1


def await_one():
    async def wait():
        return await one.remote()

    return asyncio.run(wait())


def await_many():
    async def wait():
        return max(await asyncio.gather(*[one.remote() for _ in range(20)]))

    return asyncio.run(wait())


def await_a_stream():
    async def wait():
        async for ref in ones.remote():
            return await ref

    return asyncio.run(wait())


def a_future():
    return one.remote().future().result()


def futures():
    waited = concurrent.futures.wait([one.remote().future() for _ in range(3)])
    return len(waited.done) // 3


def wait_for_a_stream():
    ready, _ = hoplo.wait([ones.remote()])
    return hoplo.get(next(ready[0]))


def await_a_method():
    actor = One.remote()

    async def wait():
        return await actor.one.remote()

    return asyncio.run(wait())


@pytest.mark.parametrize(
    "wait",
    [
        await_one,
        await_many,
        await_a_stream,
        a_future,
        futures,
        wait_for_a_stream,
        await_a_method,
    ],
)
def test_a_task_that_waited_by_callback_kept_the_cpu_that_its_children_needed(wait):
    outer = hoplo.remote(wait)
    assert hoplo.get([outer.remote() for _ in range(3)], timeout=30) == [1, 1, 1]


def test_an_async_actor_whose_calls_all_wait_kept_its_cpu():
    @hoplo.remote(num_cpus=1)
    class Asking:
        async def ask(self):
            return await one.remote()

    asking = Asking.remote()
    assert hoplo.get([asking.ask.remote() for _ in range(3)], timeout=30) == [1, 1, 1]


def test_the_first_of_two_threads_that_waits_no_more_took_back_the_cpu_of_the_second():
    @hoplo.remote
    def two_threads():
        quick, slow = one.remote(), One.remote().one.remote()
        with concurrent.futures.ThreadPoolExecutor(2) as threads:
            return sum(threads.map(hoplo.get, [quick, slow]))

    assert hoplo.get(two_threads.remote(), timeout=30) == 2


def test_a_cpu_that_was_lent_for_a_callback_is_taken_back():
    @hoplo.remote
    def wait_then_look():
        await_one()
        return hoplo.available_resources().get("CPU", 0)

    assert hoplo.get(wait_then_look.remote(), timeout=30) == 0


def test_a_callback_that_nobody_waits_for_any_more_lends_nothing_of_the_next_task(gate):
    @hoplo.remote(num_cpus=0)
    def never():
        return gate.wait()

    @hoplo.remote(max_retries=0)
    def leaves_a_future(refs):
        refs[0].future()

    @hoplo.remote
    def quick():
        return hoplo.available_resources().get("CPU", 0)

    ref = never.remote()
    hoplo.get([leaves_a_future.remote([ref]) for _ in range(3)], timeout=30)
    assert hoplo.get(quick.remote(), timeout=30) == 0
    gate.open()
    hoplo.get(ref)


def test_shutdown_left_futures_and_loops_to_wait_for_ever():
    done = run_driver(
        """
import asyncio, threading, hoplo
hoplo.init(num_cpus=1)

@hoplo.remote
def never():
    threading.Event().wait()

@hoplo.remote
def nothing():
    threading.Event().wait()
    yield 1

future = never.remote().future()
outcomes = []
waits = threading.Semaphore(0)

def in_a_loop(make):
    async def wait():
        waiting = asyncio.ensure_future(make())
        await asyncio.sleep(0)
        waits.release()
        await waiting
    try:
        asyncio.run(wait())
    except Exception as error:
        outcomes.append(type(error).__name__)

async def a_ref():
    await never.remote()

async def an_item():
    await anext(aiter(nothing.remote()))

threads = [threading.Thread(target=in_a_loop, args=(make,)) for make in (a_ref, an_item)]
for thread in threads:
    thread.start()
    waits.acquire()
hoplo.shutdown()
for thread in threads:
    thread.join()
print(type(future.exception(timeout=30)).__name__, *outcomes)
"""
    )
    first, *rest = done.stdout.split()
    assert first == "RuntimeError"
    assert len(rest) == 2
