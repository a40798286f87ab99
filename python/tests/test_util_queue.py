"""hoplo.util.Queue."""

import asyncio
import queue as standard
import threading

import pytest
from conftest import eventually

import hoplo
from hoplo.util import Empty, Full, Queue


@pytest.fixture
def queue():
    made = Queue(maxsize=2)
    yield made
    made.shutdown(force=True)


def test_a_full_queue(queue):
    queue.put(1)
    queue.put_nowait(2)
    assert queue.full()
    for attempt in (
        lambda: queue.put_nowait(3),
        lambda: queue.put(3, block=False),
        lambda: queue.put(3, timeout=0.02),
        lambda: queue.put_nowait_batch([3]),
    ):
        with pytest.raises(Full, match=r"2 items|room for 0"):
            attempt()
    assert issubclass(Full, standard.Full)
    assert queue.size() == len(queue) == queue.qsize() == 2


def test_an_empty_queue(queue):
    assert queue.empty()
    for attempt in (
        lambda: queue.get_nowait(),
        lambda: queue.get(block=False),
        lambda: queue.get(timeout=0.02),
        lambda: queue.get_nowait_batch(1),
    ):
        with pytest.raises(Empty, match="holds"):
            attempt()
    assert issubclass(Empty, standard.Empty)


def test_wrong_arguments(queue):
    with pytest.raises(ValueError, match="0 or more seconds"):
        queue.get(timeout=-1)
    with pytest.raises(TypeError, match="whole number"):
        queue.get_nowait_batch(1.0)
    with pytest.raises(ValueError, match="0 or more"):
        queue.get_nowait_batch(-1)


def test_a_batch_goes_whole_or_not_at_all(queue):
    queue.put(0)
    with pytest.raises(Full, match="room for 1 items, not for 2"):
        queue.put_nowait_batch([1, 2])
    queue.put_nowait_batch([1])
    with pytest.raises(Empty, match="holds 2 items, not 3"):
        queue.get_nowait_batch(3)
    assert queue.get_nowait_batch(2) == [0, 1]


def test_first_in_first_out():
    queue = Queue()
    for i in range(50):
        queue.put(i)
    assert [queue.get() for _ in range(50)] == list(range(50))


def test_get_waits_for_put(queue):
    taken = []
    thread = threading.Thread(target=lambda: taken.append(queue.get()))
    thread.start()
    queue.put("late")
    thread.join(timeout=10)
    assert taken == ["late"]


def test_put_waits_for_room(queue):
    queue.put_nowait_batch([1, 2])
    thread = threading.Thread(target=lambda: queue.put(3, timeout=20))
    thread.start()
    assert queue.get() == 1
    thread.join(timeout=10)
    assert not thread.is_alive()
    assert [queue.get(), queue.get()] == [2, 3]


def test_tasks_and_actors_share_a_queue(queue):
    @hoplo.remote
    def produce(queue, n):
        for i in range(n):
            queue.put(i)

    @hoplo.remote
    def consume(queue, n):
        return [queue.get() for _ in range(n)]

    produced = produce.remote(queue, 20)
    assert hoplo.get(consume.remote(queue, 20)) == list(range(20))
    hoplo.get(produced)


def test_async_use(queue):
    async def both():
        first = asyncio.ensure_future(queue.get_async())
        await queue.put_async(5)
        return await first

    assert asyncio.run(both()) == 5

    async def empty():
        await queue.get_async(timeout=0.01)

    with pytest.raises(Empty):
        asyncio.run(empty())


def test_many_blocked_callers_keep_nobody_out():
    queue = Queue()

    @hoplo.remote(num_cpus=0)
    def take(queue):
        return queue.get()

    refs = [take.remote(queue) for _ in range(6)]
    for i in range(6):
        queue.put(i)
    assert sorted(hoplo.get(refs)) == list(range(6))


def test_actor_options():
    queue = Queue(actor_options={"name": "shared queue"})
    queue.put(1)
    assert hoplo.get(hoplo.get_actor("shared queue").qsize.remote()) == 1


def test_shutdown_ends_the_actor(queue):
    other = Queue()
    other.put(1)
    other.shutdown()

    def gone():
        try:
            other.size()
        except hoplo.exceptions.ActorDiedError:
            return True

    eventually(gone)
