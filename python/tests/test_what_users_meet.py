"""Mistakes that a new user makes, and what the error says to do."""

from __future__ import annotations

import contextlib
import operator
import pickle

import numpy as np
import pytest

import hoplo
from hoplo.exceptions import SerializationError, TaskError


@hoplo.remote
def one():
    return 1


@hoplo.remote
def add_all(values):
    return sum(values)


@pytest.mark.parametrize(
    "mistake",
    [
        lambda ref: ref + 1,
        lambda ref: 1 + ref,
        lambda ref: 2 * ref,
        lambda ref: ref - ref,
        lambda ref: ref / 2,
        lambda ref: ref[0],
        lambda ref: ref["key"],
        lambda ref: -ref,
        lambda ref: ref % 2,
        lambda ref: 2**ref,
        lambda ref: ref // 2,
        lambda ref: ref @ ref,
        lambda ref: ref > 1,
        lambda ref: 1 >= ref,
        lambda ref: sorted([ref, ref]),
        lambda ref: len(ref),
        lambda ref: int(ref),
        lambda ref: float(ref),
        lambda ref: range(ref),
        lambda ref: [1, 2][ref],
        lambda ref: 1 in ref,
        lambda ref: operator.setitem(ref, 0, 1),
        lambda ref: operator.delitem(ref, 0),
        lambda ref: contextlib.ExitStack().enter_context(ref),
    ],
)
def test_a_ref_taken_for_its_value_did_not_say_what_to_do(mistake):
    with pytest.raises(TypeError, match=r"an ObjectRef (has no|is n|contains).*hoplo\.get\(ref\)"):
        mistake(one.remote())


def test_what_refs_say_to_mistakes_does_not_change_how_they_are_kept_and_compared():
    ref = one.remote()
    assert ref
    assert bool(ref) is True
    assert not ref == 1
    assert ref != 1
    assert ref in [1, ref]
    assert 1 not in [ref]
    assert {ref: 1}[ref] == 1
    assert not callable(ref)  # what finds callables among values calls them, or makes methods
    refs = np.array([ref, ref])
    assert refs.shape == (2,)
    assert refs[0] is ref
    assert f"{ref}" == str(ref) == "%s" % ref  # noqa: UP031
    assert hoplo.get(pickle.loads(pickle.dumps([ref]))[0]) == hoplo.get(ref)


def test_a_ref_taken_for_a_future_did_not_say_what_to_do():
    ref = one.remote()
    with pytest.raises(AttributeError, match=r'no attribute "result".*hoplo\.get\(ref\)'):
        ref.result()
    assert not hasattr(ref, "shape")
    assert not hasattr(ref, "__array__")
    with pytest.raises(TypeError, match=r"cannot be iterated.*hoplo\.get\(ref\).*num_returns=n"):
        list(ref)


def test_refs_are_still_what_they_were_to_numpy_and_to_python():
    refs = [one.remote(), one.remote()]
    array = np.empty(2, dtype=object)
    array[:] = refs
    assert list(array) == refs
    assert np.array(refs, dtype=object).shape == (2,)
    assert bool(refs[0])
    assert refs[0] in {refs[0]}
    assert refs[0] != 1


def test_a_generator_as_an_argument_did_not_say_to_make_a_list():
    with pytest.raises(SerializationError, match=r"args\[0\].*generator.*make a list of it"):
        add_all.remote(x for x in range(3))


def test_a_coroutine_as_an_argument_did_not_say_to_await_it():
    async def soon():
        return 1

    coroutine = soon()
    with pytest.raises(SerializationError, match=r"args\[0\].*coroutine.*await it first"):
        add_all.remote(coroutine)
    coroutine.close()


def test_writing_to_a_read_only_array_did_not_say_to_copy_it():
    @hoplo.remote
    def write(array):
        array[0] = 1

    with pytest.raises(ValueError, match=r"read-only.*array\.copy\(\)") as raised:
        hoplo.get(write.remote(hoplo.put(np.zeros(100_000))))
    assert isinstance(raised.value, TaskError)


def test_a_programs_own_error_was_told_as_that_of_a_read_only_array():
    @hoplo.remote
    def refuse(array):
        raise ValueError("the table is read-only")

    with pytest.raises(ValueError, match="the table is read-only") as raised:
        hoplo.get(refuse.remote(hoplo.put(np.zeros(100_000))))
    assert "copy()" not in str(raised.value)


def test_large_bytes_were_said_to_be_read_in_place():
    def places(ref):
        values = [hoplo.get(ref) for _ in range(2)]
        arrays = [np.frombuffer(value, "uint8") for value in values]
        return len({array.__array_interface__["data"][0] for array in arrays})

    data = bytes(1 << 20)
    assert places(hoplo.put(data)) == 2
    assert places(hoplo.put(memoryview(data))) == 1
    assert places(hoplo.put(np.frombuffer(data, "uint8"))) == 1
