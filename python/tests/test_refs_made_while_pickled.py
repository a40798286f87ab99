"""A ref, or an actor's handle, that `__getstate__` or `__reduce__` makes was lost at once.

Nobody has such a ref but the state, which the pickler drops. hoplo holds it until the value that
contains it is on its way, however that leaves.
"""

import gc
import json
import threading

import numpy as np
import pytest
from conftest import eventually

import hoplo
from hoplo import _core
from hoplo.exceptions import SerializationError, TaskError
from hoplo.util import inspect_serializability

NODE = {"num_cpus": 2}
MIB = 1 << 20
SMALL = 7
LARGE = np.full(MIB, 7, "uint8")


class Lazy:
    """Becomes a ref on its way; `pad` makes it large."""

    def __init__(self, value, pad=b""):
        self.value = value
        self.pad = pad

    def __getstate__(self):
        return {"ref": hoplo.put(self.value), "pad": self.pad}

    def __setstate__(self, state):
        self.__dict__.update(state)

    def read(self):
        return hoplo.get(self.ref, timeout=20)


class Reduced(Lazy):
    def __reduce__(self):
        return made_of, (type(self), hoplo.put(self.value), self.pad)


class Eager(Lazy):
    """Reads its ref while it is unpickled."""

    def __setstate__(self, state):
        super().__setstate__(state)
        self.got = self.read()

    def read(self):
        return self.got if "got" in vars(self) else super().read()


def made_of(kind, ref, pad):
    made = kind.__new__(kind)
    made.ref, made.pad = ref, pad
    return made


def local():
    """A class that only cloudpickle can send."""

    class Local(Lazy):
        pass

    return Local


@pytest.fixture(params=[Lazy, Reduced, Eager, local()], ids=lambda kind: kind.__name__)
def kind(request):
    return request.param


@pytest.fixture(params=[SMALL, LARGE], ids=["small", "large"])
def value(request):
    return request.param


def stored():
    """Ids of the objects that the node keeps."""
    gc.collect()
    rows = json.loads(_core.query("objects"))
    return {row["object_id"] for row in rows if row["state"] != "handle"}


@hoplo.remote
def read(lazy, *_rest, **_named):
    return lazy.read()


@hoplo.remote
def read_first(lazies):
    return lazies[0].read()


@hoplo.remote
def give(kind, *args):
    return kind(*args)


@hoplo.remote(num_returns=2)
def give_two(kind, *args):
    return kind(*args), kind(*args)


@hoplo.remote
def yield_two(kind, *args):
    yield kind(*args)
    yield kind(*args)


@hoplo.remote
class Reader:
    def __init__(self, lazy):
        self.lazy = lazy

    def read(self):
        return self.lazy.read()

    def read_another(self, lazy):
        return lazy.read()


@hoplo.remote
class Giver:
    async def give(self, kind, *args):
        return kind(*args)


class Refused(Exception):
    pass


@hoplo.remote
def refuse(kind, *args):
    raise Refused("with a ref", kind(*args))


@hoplo.remote(num_returns=2)
def give_one_and_refuse(kind, *args):
    yield kind(*args)
    raise Refused("with a ref", kind(*args))


# ------------------------------------------------------------------------------------ lost


@pytest.mark.parametrize("pad", [b"", bytes(MIB)], ids=["inline", "stored"])
def test_it_was_lost_in_an_argument(kind, value, pad):
    calls = [read.remote(kind(value, pad)), read_first.remote([kind(value, pad)])]
    assert all(np.array_equal(hoplo.get(call, timeout=20), value) for call in calls)


def test_it_was_lost_in_packed_arguments(kind, value):
    call = read.remote(kind(value), **{"n" * MIB: 0})
    assert np.array_equal(hoplo.get(call, timeout=20), value)


@pytest.mark.parametrize("pad", [b"", bytes(MIB)], ids=["inline", "stored"])
def test_it_was_lost_in_a_value_that_was_put(kind, value, pad):
    ref = hoplo.put(kind(value, pad))
    assert np.array_equal(hoplo.get(ref).read(), value)
    assert np.array_equal(hoplo.get(read.remote(ref), timeout=20), value)


def test_it_was_lost_in_a_value_that_was_put_in_place(value):
    array = hoplo.empty(MIB, "uint8").view(Named)
    array.lazy = Lazy(value)
    back = hoplo.get(hoplo.put(array))
    assert np.array_equal(back.lazy.read(), value)


class Named(np.ndarray):
    """An array whose pickle has a Lazy beside the data."""

    lazy = None

    def __reduce_ex__(self, protocol):
        return named_of, (np.ndarray.__reduce_ex__(self.view(np.ndarray), protocol), self.lazy)


def named_of(reduced, lazy):
    make, args = reduced[:2]
    array = make(*args).view(Named)
    array.lazy = lazy
    return array


@pytest.mark.parametrize("pad", [b"", bytes(MIB)], ids=["inline", "stored"])
def test_it_was_lost_in_results(kind, value, pad):
    refs = [give.remote(kind, value, pad), *give_two.remote(kind, value, pad)]
    refs += list(yield_two.remote(kind, value, pad))
    giver = Giver.remote()
    refs.append(giver.give.remote(kind, value, pad))
    for ref in refs:
        assert np.array_equal(hoplo.get(ref, timeout=20).read(), value)


def test_it_was_lost_with_an_actor(kind, value):
    reader = Reader.remote(kind(value))
    calls = [reader.read.remote(), reader.read_another.remote(kind(value))]
    assert all(np.array_equal(hoplo.get(call, timeout=20), value) for call in calls)


@pytest.mark.parametrize("pad", [b"", bytes(MIB)], ids=["inline", "stored"])
def test_it_was_lost_in_a_function_that_captured_it(kind, value, pad):
    captured = kind(value, pad)

    @hoplo.remote
    def read_captured():
        return captured.read()

    assert np.array_equal(hoplo.get(read_captured.remote(), timeout=20), value)


def test_it_was_lost_in_an_exception(kind, value):
    whole, (first, second) = refuse.remote(kind, value), give_one_and_refuse.remote(kind, value)
    assert np.array_equal(hoplo.get(first, timeout=20).read(), value)
    for ref in (whole, second):
        with pytest.raises(Refused) as caught:
            hoplo.get(ref, timeout=20)
        assert isinstance(caught.value, TaskError)
        assert np.array_equal(caught.value.args[1].read(), value)


@hoplo.remote(num_cpus=0)
class Adder:
    def add(self, a, b):
        return a + b


class WithActor:
    def __getstate__(self):
        return {"actor": Adder.remote(), "add": Adder.remote().add}

    def __setstate__(self, state):
        self.__dict__.update(state)

    def read(self):
        calls = [self.actor.add.remote(1, 2), self.add.remote(3, 4)]
        return hoplo.get(calls, timeout=20)


def test_an_actor_made_while_its_handle_was_pickled_ended():
    assert hoplo.get(read.remote(WithActor()), timeout=30) == [3, 7]
    assert hoplo.get(hoplo.put(WithActor())).read() == [3, 7]
    assert hoplo.get(give.remote(WithActor), timeout=30).read() == [3, 7]


def test_the_result_of_a_task_called_while_its_ref_was_pickled_was_lost(gate):
    @hoplo.remote
    def late():
        return gate.wait("late")

    class Calls(Lazy):
        def __getstate__(self):
            return {"ref": late.remote(), "pad": b""}

    ref = hoplo.put(Calls(0))
    gate.open()
    assert hoplo.get(ref).read() == "late"


# ------------------------------------------------------------------------------------ taken away


class Empties:
    """Empties a list while it is pickled itself."""

    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        self.target.clear()
        return int, (0,)


@pytest.mark.parametrize("beside", [0, frozenset()], ids=["plain", "pickled"])
def test_a_ref_that_the_next_argument_took_out_of_an_encoded_list_was_lost(beside):
    @hoplo.remote
    def read_in(box, _):
        return hoplo.get(box[0], timeout=20)

    box = [hoplo.put(SMALL), beside]
    assert hoplo.get(read_in.remote(box, Empties(box)), timeout=20) == SMALL
    assert box == []


def test_a_ref_that_the_next_result_took_out_of_an_encoded_list_was_lost():
    @hoplo.remote(num_returns=2)
    def two():
        box = [hoplo.put(SMALL)]
        return box, Empties(box)

    first, second = two.remote()
    assert hoplo.get(second, timeout=20) == 0
    assert hoplo.get(hoplo.get(first)[0], timeout=20) == SMALL


# ------------------------------------------------------------------------------------ not kept


@pytest.mark.parametrize("beside", [None, local()], ids=["pickled_once", "pickled_twice"])
def test_what_was_made_goes_with_the_value_and_at_once_if_it_is_pickled_again(beside):
    before = stored()
    ref = hoplo.put([Lazy(LARGE, bytes(MIB)), beside])
    assert hoplo.get(read_first.remote([Lazy(LARGE), beside]), timeout=20)[0] == SMALL
    assert hoplo.get(give.remote(Lazy, LARGE), timeout=20).read()[0] == SMALL
    eventually(lambda: len(stored() - before) == 2, what="the value and what lies inside")
    del ref
    eventually(lambda: stored() <= before)


def test_a_value_that_could_not_be_pickled_kept_its_refs_for_ever():
    before = stored()
    value = [hoplo.put(LARGE), {1, 2}, threading.Lock()]
    assert not inspect_serializability(value)[0]
    with pytest.raises(SerializationError):
        hoplo.put(value)
    with pytest.raises(SerializationError):
        read.remote(value)
    del value
    eventually(lambda: stored() <= before)


def test_a_value_that_was_only_inspected_kept_its_refs_for_ever():
    before = stored()
    value = [hoplo.put(LARGE), {1, 2}]
    assert inspect_serializability(value)[0]
    del value
    eventually(lambda: stored() <= before)
