"""Remote functions: calls, arguments, results, graphs of them."""

import os
import sys

import pytest
from conftest import eventually

import hoplo
from hoplo.exceptions import TaskError


@hoplo.remote
def add(x, y=1):
    return x + y


@hoplo.remote
def fail(text):
    raise ValueError(text)


# ------------------------------------------------------------------------------------ errors


def test_an_error_comes_back_as_its_own_type_with_the_remote_traceback():
    @hoplo.remote
    def outer():
        def inner():
            return {}["missing"]

        return inner()

    with pytest.raises(KeyError) as caught:
        hoplo.get(outer.remote())
    error = caught.value
    assert isinstance(error, TaskError)
    assert error.args == ("missing",)
    assert type(error.cause) is KeyError
    assert error.__cause__ is error.cause
    assert error.pid not in (0, os.getpid())
    assert "outer" in error.function_name
    assert 'return {}["missing"]' in error.traceback_text
    assert f"in worker process {error.pid}" in str(error)
    assert "in inner" in str(error)


def test_an_error_is_raised_at_each_get_of_it():
    ref = fail.remote("again")
    for _ in range(3):
        with pytest.raises(ValueError, match="again"):
            hoplo.get(ref)


def test_an_error_passes_through_the_tasks_that_depend_on_it():
    ref = fail.remote("the first one")
    for _ in range(5):
        ref = add.remote(ref)
    with pytest.raises(ValueError, match="the first one") as caught:
        hoplo.get(ref)
    assert "fail" in caught.value.function_name


def test_an_error_passes_through_a_task_that_gets_it():
    @hoplo.remote
    def middle():
        return hoplo.get(fail.remote("from below"))

    with pytest.raises(ValueError, match="from below") as caught:
        hoplo.get(middle.remote())
    assert type(caught.value.cause) is ValueError
    assert str(caught.value).count("from below") >= 1


def test_one_error_fails_a_get_of_many():
    with pytest.raises(ValueError, match="seven"):
        hoplo.get([add.remote(1), fail.remote("seven"), add.remote(2)])


def test_every_result_of_a_failed_call_raises():
    @hoplo.remote(num_returns=3)
    def three():
        raise RuntimeError("no results")

    for ref in three.remote():
        with pytest.raises(RuntimeError, match="no results"):
            hoplo.get(ref)


def test_the_number_of_results_must_fit():
    @hoplo.remote(num_returns=2)
    def three():
        return 1, 2, 3

    @hoplo.remote(num_returns=2)
    def none():
        return None

    for ref in three.remote():
        with pytest.raises(Exception, match=r"num_returns"):
            hoplo.get(ref)
    for ref in none.remote():
        with pytest.raises(Exception, match=r"num_returns"):
            hoplo.get(ref)


def test_system_exit_in_a_task_is_an_error_of_that_task_only():
    @hoplo.remote(max_retries=0)
    def leave():
        sys.exit(3)

    with pytest.raises(hoplo.exceptions.HoploError):
        hoplo.get(leave.remote())
    assert hoplo.get(add.remote(1)) == 2


# ------------------------------------------------------------------------------------ arguments


def test_arguments_by_place_and_by_name():
    @hoplo.remote
    def shown(a, /, b, *rest, c=3, **more):
        return a, b, rest, c, more

    assert hoplo.get(shown.remote(1, 2)) == (1, 2, (), 3, {})
    assert hoplo.get(shown.remote(1, b=2, d=4)) == (1, 2, (), 3, {"d": 4})
    assert hoplo.get(shown.remote(1, 2, 5, 6, c=7)) == (1, 2, (5, 6), 7, {})


def test_refs_on_top_are_resolved_and_nested_ones_are_passed():
    @hoplo.remote
    def kinds(top, nested, *, named):
        inner = nested[0]
        return type(top).__name__, type(inner).__name__, hoplo.get(inner), named

    ref = add.remote(1)
    assert hoplo.get(kinds.remote(ref, [ref], named=ref)) == ("int", "ObjectRef", 2, 2)


def test_the_same_ref_twice():
    ref = hoplo.put(4)
    assert hoplo.get(add.remote(ref, ref)) == 8
    assert hoplo.get(add.remote(ref, y=ref)) == 8


@pytest.mark.parametrize("size", [0, 1, 1000, 100 * 1024, 100 * 1024 + 1, 300_000, 3_000_000])
def test_arguments_and_results_of_any_size(size):
    @hoplo.remote
    def echo(data, ref):
        return data + ref

    data = b"x" * size
    assert hoplo.get(echo.remote(data, hoplo.put(data))) == 2 * data


def test_many_arguments():
    @hoplo.remote
    def total(*values, **named):
        return sum(values) + sum(named.values())

    refs = [hoplo.put(i) for i in range(500)]
    assert hoplo.get(total.remote(*refs)) == sum(range(500))
    names = {f"n{i}": ref for i, ref in enumerate(refs)}
    assert hoplo.get(total.remote(**names)) == sum(range(500))
    blocks = [b"x" * 50_000] * 40  # each small, together more than a frame holds

    @hoplo.remote
    def length(*blocks):
        return sum(map(len, blocks))

    assert hoplo.get(length.remote(*blocks)) == 2_000_000


def test_an_argument_is_a_copy():
    @hoplo.remote
    def change(values):
        values.append(4)
        return values

    mine = [1, 2, 3]
    ref = hoplo.put(mine)
    mine.clear()
    assert hoplo.get(change.remote(ref)) == [1, 2, 3, 4]
    assert hoplo.get(ref) == [1, 2, 3]


# ------------------------------------------------------------------------------------ results


def test_several_results():
    @hoplo.remote(num_returns=3)
    def three():
        return 1, "two", [3]

    first, second, third = three.remote()
    assert hoplo.get([third, first, second]) == [[3], 1, "two"]

    @hoplo.remote(num_returns=2)
    def from_a_list():
        return ["a", "b"]

    assert hoplo.get(from_a_list.remote()) == ["a", "b"]


def test_no_results(tmp_path):
    @hoplo.remote(num_returns=0)
    def touch(path):
        open(path, "w").close()

    path = tmp_path / "touched"
    assert touch.remote(str(path)) is None
    eventually(path.exists)


def test_one_result_may_be_a_tuple():
    @hoplo.remote
    def pair():
        return 1, 2

    assert hoplo.get(pair.remote()) == (1, 2)
    only = pair.options(num_returns=1).remote()
    assert hoplo.get(only) == (1, 2)


def test_a_result_may_hold_refs():
    @hoplo.remote
    def spread(n):
        return [add.remote(i) for i in range(n)]

    refs = hoplo.get(spread.remote(5))
    assert hoplo.get(refs) == [1, 2, 3, 4, 5]


def test_a_result_may_be_a_ref_to_a_task_that_still_runs(gate):
    @hoplo.remote
    def waits():
        return gate.wait("late")

    @hoplo.remote
    def starts():
        return [waits.remote()]

    (ref,) = hoplo.get(starts.remote())
    assert hoplo.wait([ref], timeout=0) == ([], [ref])
    gate.open()
    assert hoplo.get(ref) == "late"
