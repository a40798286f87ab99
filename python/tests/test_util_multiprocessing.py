"""hoplo.util.multiprocessing.Pool: as multiprocessing.Pool."""

import itertools
import multiprocessing
import os
import queue
import threading

import pytest
from conftest import eventually

import hoplo
from hoplo.util.multiprocessing import Pool, TimeoutError


@pytest.fixture(scope="module")
def pool():
    with Pool(2) as pool:
        yield pool


# ------------------------------------------------------------------------------------ errors


def test_wrong_arguments():
    with pytest.raises(ValueError, match="at least 1"):
        Pool(0)
    with pytest.raises(ValueError, match="maxtasksperchild"):
        Pool(1, maxtasksperchild=0)
    with pytest.raises(TypeError, match="callable"):
        Pool(1, initializer=3)


def test_an_error_of_the_function(pool):
    with pytest.raises(ZeroDivisionError):
        pool.apply(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        pool.map(lambda x: 1 / x, [1, 0, 2])
    seen = []
    result = pool.apply_async(lambda: 1 / 0, error_callback=seen.append)
    with pytest.raises(ZeroDivisionError):
        result.get(20)
    assert not result.successful()
    assert isinstance(seen[0], ZeroDivisionError)
    items = pool.imap(lambda x: 1 // x, [1, 0, 1])
    assert next(items) == 1
    with pytest.raises(ZeroDivisionError):
        next(items)
    assert list(items) == [1]


def test_a_result_that_is_not_there(pool, gate):
    result = pool.apply_async(gate.wait, ("late",))
    assert not result.ready()
    with pytest.raises(ValueError, match="not ready"):
        result.successful()
    with pytest.raises(TimeoutError):
        result.get(0.02)
    assert TimeoutError is multiprocessing.TimeoutError
    result.wait(0.02)
    gate.open()
    assert result.get(20) == "late"
    assert result.successful()


def test_a_pool_that_is_closed():
    pool = Pool(1)
    with pytest.raises(ValueError, match="still running"):
        pool.join()
    pool.close()
    with pytest.raises(ValueError, match="not running"):
        pool.map(abs, [1])
    pool.join()
    with pytest.raises(ValueError, match="not running"):
        pool.__enter__()


def test_a_pool_is_not_pickled(pool):
    with pytest.raises(NotImplementedError, match="cannot be passed"):
        pool.__reduce__()


def test_a_worker_that_dies_fails_its_chunk_and_is_replaced():
    with Pool(1) as pool:
        with pytest.raises(hoplo.exceptions.ActorDiedError):
            pool.apply(os._exit, (3,))
        assert pool.apply(abs, (-4,)) == 4


def test_stop_iteration_of_the_function_does_not_shorten_the_results(pool):
    assert pool.map(next, [iter("a"), iter("b")], chunksize=2) == ["a", "b"]
    with pytest.raises(hoplo.exceptions.TaskError, match="StopIteration"):
        pool.map(next, [iter("a"), iter(""), iter("b")], chunksize=3)
    items = pool.imap(next, [iter("a"), iter(""), iter("b")], chunksize=3)
    assert next(items) == "a"
    with pytest.raises(hoplo.exceptions.TaskError, match="StopIteration"):
        next(items)
    assert next(items) == "b"


def test_map_stops_its_chunk_at_the_first_error_and_imap_does_not(pool, tmp_path):
    def mark(i):
        (tmp_path / str(i)).touch()
        return 1 // (i % 2)

    with pytest.raises(ZeroDivisionError):
        pool.map(mark, [1, 2, 3], chunksize=3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2"]
    items = pool.imap(mark, [1, 2, 3], chunksize=3)
    assert next(items) == 1
    with pytest.raises(ZeroDivisionError):
        next(items)
    assert list(items) == [1]


def test_an_iterable_that_raises(pool):
    def numbers():
        yield 1
        yield 2
        raise LookupError("no more numbers")

    with pytest.raises(LookupError, match="no more numbers"):
        pool.map(abs, numbers())
    items = pool.imap(abs, numbers())
    assert [next(items), next(items)] == [1, 2]
    with pytest.raises(LookupError, match="no more numbers"):
        next(items)
    assert list(items) == []
    items = pool.imap_unordered(abs, numbers())
    seen = []
    for _ in range(3):
        try:
            seen.append(next(items))
        except LookupError as error:
            seen.append(len(error.args))
    assert sorted(seen) == [1, 1, 2]
    assert list(items) == []


# ------------------------------------------------------------------------------------ calls


def test_every_way_to_call(pool):
    assert pool.apply(pow, (2, 5)) == 32
    assert pool.apply(int, ("11",), {"base": 2}) == 3
    assert pool.apply_async(pow, (2, 6)).get(20) == 64
    assert pool.map(lambda x: x + 1, range(100)) == list(range(1, 101))
    assert pool.map(lambda x: x, []) == []
    assert pool.map(lambda x: x, range(10), chunksize=3) == list(range(10))
    assert pool.map_async(abs, [-1, -2]).get(20) == [1, 2]
    assert pool.starmap(pow, [(2, 3), (3, 2)]) == [8, 9]
    assert pool.starmap_async(pow, [(2, 3)]).get(20) == [8]
    assert list(pool.imap(lambda x: -x, range(7), chunksize=2)) == [-i for i in range(7)]
    assert sorted(pool.imap_unordered(lambda x: x, range(7))) == list(range(7))


class Backwards(list):
    def __iter__(self):
        return reversed(self[:])


@pytest.mark.parametrize("chunksize", [None, 1, 3, 10, 11])
@pytest.mark.parametrize(
    "items", [range(10), tuple(range(10)), Backwards(range(10)), dict.fromkeys("abc"), (), range(0)]
)
def test_map_takes_any_iterable_as_iter_does(pool, items, chunksize):
    assert pool.map(lambda x: x, items, chunksize) == list(iter(items))
    assert pool.map(lambda x: x, iter(items), chunksize) == list(iter(items))


@pytest.mark.parametrize("chunksize", [0, -1])
def test_a_chunk_has_one_item_or_more(pool, chunksize):
    for call in (pool.map, pool.starmap_async, pool.imap):
        with pytest.raises(ValueError, match="Chunksize must be"):
            call(abs, [1], chunksize)


def test_imap_takes_from_an_endless_iterable_as_it_goes():
    taken = []

    def endless():
        for i in itertools.count():
            taken.append(i)
            yield i

    with Pool(1) as pool:
        items = pool.imap(lambda x: x + 1, endless(), chunksize=3)
        assert [next(items) for _ in range(100)] == list(range(1, 101))
    assert taken[:100] == list(range(100))


def test_imap_waits_for_an_iterable_that_waits_for_its_results(pool):
    answers = queue.SimpleQueue()

    def questions():
        yield 1
        while (answer := answers.get(timeout=30)) < 100:
            yield answer

    seen = []
    for value in pool.imap(lambda x: 2 * x, questions()):
        seen.append(value)
        answers.put(value)
    assert seen == [2, 4, 8, 16, 32, 64, 128]


def test_close_lets_an_imap_finish_and_terminate_does_not(gate):
    pool = Pool(1)
    items = pool.imap(lambda x: x, (i for i in range(50)))
    pool.close()
    pool.join()
    assert list(items) == list(range(50))
    pool = Pool(1)
    pool.imap(gate.wait, itertools.count())
    eventually(gate.arrived)
    pool.terminate()
    pool.join()
    eventually(lambda: "hoplo:pool-feeder" not in {t.name for t in threading.enumerate()})


def test_next_with_a_timeout(pool, gate):
    items = pool.imap(gate.wait, [1])
    with pytest.raises(TimeoutError):
        items.next(timeout=0.02)
    gate.open()
    assert items.next(timeout=20) == 1


def test_callbacks_of_one_worker_come_in_the_order_of_its_calls():
    """The word of the first answer came later than that of the second (an answer that is there when
    its future is made is told at once, others by another thread)."""
    with Pool(1) as pool:
        dispatcher, first_done, told = pool._dispatcher, queue.SimpleQueue(), threading.Event()
        when_done, tells = dispatcher._when_done, []

        def the_first_one_late(worker, chunk):
            tells.append(when_done(worker, chunk))
            if len(tells) == 1:
                return first_done.put

            def tell_both(future):
                tells[1](future)
                tells[0](first_done.get(timeout=30))
                told.set()

            return tell_both

        dispatcher._when_done = the_first_one_late
        seen = []
        first = pool.apply_async(abs, (-1,), callback=seen.append)
        second = pool.apply_async(abs, (-2,), callback=seen.append)
        assert (first.get(timeout=30), second.get(timeout=30)) == (1, 2)
        assert told.wait(30)
        assert seen == [1, 2]
        dispatcher._when_done = when_done
        assert pool.apply(abs, (-3,)) == 3


def test_callbacks(pool):
    seen = []
    pool.map_async(abs, [-1, -2], callback=seen.append).wait(20)
    assert seen == [[1, 2]]


def test_calls_run_in_the_pools_processes(pool):
    pids = set(pool.map(lambda _: os.getpid(), range(50), chunksize=1))
    assert os.getpid() not in pids
    assert 1 <= len(pids) <= 2


def test_an_initializer():
    def prepare(value):
        os.environ["PREPARED"] = value

    with Pool(1, prepare, ("yes",)) as pool:
        assert pool.apply(lambda: os.environ["PREPARED"]) == "yes"


def test_maxtasksperchild():
    pool = Pool(2, maxtasksperchild=1)
    pids = pool.map(lambda _: os.getpid(), range(6), chunksize=1)
    assert len(set(pids)) == 6
    pool.close()
    pool.join()


def test_terminate_ends_what_runs(gate):
    pool = Pool(1)
    pool.apply_async(gate.wait)
    eventually(gate.arrived)
    pool.terminate()
    pool.join()
    eventually(lambda: hoplo.available_resources()["CPU"] >= 2)
