"""hoplo.util.ActorPool."""

import pytest
from conftest import eventually

import hoplo
from hoplo.exceptions import GetTimeoutError
from hoplo.util import ActorPool


@hoplo.remote(num_cpus=0)
class Doubler:
    def double(self, x):
        if x == 99:
            raise ValueError("not 99")
        return 2 * x

    @hoplo.method(num_returns=2)
    def pair(self, x):
        if x == 99:
            raise ValueError("not 99")
        return x, x + 1

    def hold(self, gate):
        return gate.wait("held")


def double(actor, value):
    return actor.double.remote(value)


@pytest.fixture
def pool():
    return ActorPool([Doubler.remote(), Doubler.remote()])


def test_an_error_is_raised_where_its_result_is_taken(pool):
    results = pool.map(double, [1, 99, 3])
    assert next(results) == 2
    with pytest.raises(ValueError, match="not 99"):
        next(results)
    assert pool.get_next() == 6
    assert list(pool.map(double, [1, 2])) == [2, 4]


def pair(actor, value):
    return actor.pair.remote(value)


def test_of_several_results_none_is_dropped(pool):
    assert list(pool.map(pair, [1, 2, 3])) == [[1, 2], [2, 3], [3, 4]]
    assert sorted(pool.map_unordered(pair, [1, 2, 3])) == [[1, 2], [2, 3], [3, 4]]
    for value in (1, 2, 3):
        pool.submit(pair, value)
    assert pool.get_next(timeout=20) == [1, 2]
    assert sorted([pool.get_next_unordered(), pool.get_next_unordered()]) == [[2, 3], [3, 4]]
    results = pool.map(pair, [99, 1])
    with pytest.raises(ValueError, match="not 99"):
        next(results)
    assert pool.get_next() == [1, 2]


def test_nothing_to_take(pool):
    assert not pool.has_next()
    with pytest.raises(StopIteration):
        pool.get_next()
    with pytest.raises(StopIteration):
        pool.get_next_unordered()


def test_a_pool_without_actors():
    pool = ActorPool([])
    pool.submit(double, 1)
    with pytest.raises(RuntimeError, match="no actors: push one"):
        pool.get_next()


def test_an_actor_is_in_the_pool_once(pool):
    actor = pool.pop_idle()
    pool.push(actor)
    with pytest.raises(ValueError, match="in the pool already"):
        pool.push(actor)


def test_a_timeout(pool, gate):
    pool.submit(lambda actor, gate: actor.hold.remote(gate), gate)
    with pytest.raises(GetTimeoutError):
        pool.get_next(timeout=0.01)
    with pytest.raises(TimeoutError):
        pool.get_next_unordered(timeout=0.01)
    gate.open()
    assert pool.get_next(timeout=10) == "held"


def test_a_timeout_that_skips(pool, gate):
    pool.submit(lambda actor, gate: actor.hold.remote(gate), gate)
    pool.submit(double, 4)
    with pytest.raises(TimeoutError):
        pool.get_next(timeout=0.01, ignore_if_timedout=True)
    assert pool.get_next(timeout=10) == 8
    assert not pool.has_next()


def test_results_in_order(pool):
    assert list(pool.map(double, range(20))) == [2 * i for i in range(20)]


def test_results_as_they_come(pool, gate):
    pool.submit(lambda actor, gate: actor.hold.remote(gate), gate)
    pool.submit(double, 1)
    assert pool.get_next_unordered(timeout=10) == 2
    gate.open()
    assert pool.get_next_unordered(timeout=10) == "held"
    assert sorted(pool.map_unordered(double, range(20))) == [2 * i for i in range(20)]


def test_work_waits_for_a_free_actor(pool, gate):
    for _ in range(5):
        pool.submit(lambda actor, gate: actor.hold.remote(gate), gate)
    eventually(lambda: gate.arrived() == 2)
    assert not pool.has_free()
    assert pool.pop_idle() is None
    gate.open()
    assert [pool.get_next() for _ in range(5)] == ["held"] * 5
    assert pool.has_free()


def test_a_pushed_actor_takes_what_waits(gate):
    pool = ActorPool([])
    pool.submit(double, 3)
    pool.push(Doubler.remote())
    assert pool.get_next(timeout=10) == 6
