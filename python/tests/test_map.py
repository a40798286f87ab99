"""`f.map`: many calls in few tasks."""

import itertools
import os

import pytest

import hoplo


@hoplo.remote
def double(x):
    return 2 * x


@hoplo.remote
def minus(x, y):
    return x - y


@hoplo.remote
def fussy(x):
    if x == 7:
        raise LookupError("seven")
    return x


def test_no_iterable_is_told():
    with pytest.raises(TypeError, match=r"double.map\(items\)"):
        double.map()


def test_what_cannot_be_iterated_is_told_at_the_call():
    with pytest.raises(TypeError, match="not iterable"):
        double.map(3)
    with pytest.raises(TypeError, match=r"map over hoplo.get\(ref\)"):
        double.map(hoplo.put([1]))


@pytest.mark.parametrize("size", [0, -1, 1.5])
def test_a_wrong_chunk_size_is_told(size):
    with pytest.raises(ValueError, match="chunk_size must be None or 1 or more"):
        double.map([1], chunk_size=size)


def test_several_returns_are_refused():
    with pytest.raises(ValueError, match="num_returns=1"):
        double.options(num_returns=2).map([1])


def test_values_come_in_order():
    assert list(double.map(range(10_000))) == [2 * i for i in range(10_000)]
    assert list(double.map([])) == []
    assert list(double.map(iter([5]))) == [10]


def test_several_iterables_give_several_arguments():
    assert list(minus.map([5, 6, 7], [1, 2])) == [4, 4]


def test_refs_among_the_items_are_resolved():
    assert list(double.map([hoplo.put(1), 2])) == [2, 4]


def test_an_endless_iterable_is_taken_as_needed():
    values = double.map(itertools.count())
    assert list(itertools.islice(values, 100)) == [2 * i for i in range(100)]


def test_the_first_error_comes_in_its_place():
    values = fussy.map(range(20), chunk_size=5)
    assert [next(values) for _ in range(7)] == list(range(7))
    with pytest.raises(LookupError, match="seven"):
        next(values)
    assert list(values) == []


def test_stop_iteration_of_the_function_does_not_end_the_map():
    @hoplo.remote
    def first(text):
        return next(iter(text))

    values = first.map(["a", "", "b"], chunk_size=3)
    assert next(values) == "a"
    with pytest.raises(hoplo.exceptions.TaskError, match="StopIteration"):
        next(values)


def test_refs_instead_of_values():
    refs = list(double.map(range(50), refs=True, chunk_size=20))
    assert len(refs) == 50
    assert hoplo.get(refs) == [2 * i for i in range(50)]


def test_long_calls_spread_over_the_workers():
    @hoplo.remote
    def where(gate_directory):
        # Both calls run at once, or neither ends: in one chunk this would wait for ever.
        path = os.path.join(gate_directory, str(os.getpid()))
        open(path, "w").close()
        while len(os.listdir(gate_directory)) < 2:
            os.sched_yield()
        return os.getpid()

    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        assert len(set(where.map([directory, directory]))) == 2
