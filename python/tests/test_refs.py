"""What a ref is: a name, a future, something to await."""

import asyncio
import copy
import pickle

import numpy as np
import pytest
from conftest import eventually

import hoplo


@hoplo.remote
def make(i=0):
    return np.full(1 << 20, i, "uint8")


def test_refs_are_equal_by_id_and_hashable():
    ref = hoplo.put(1)
    same = pickle.loads(pickle.dumps(ref))
    assert ref == same
    assert hash(ref) == hash(same)
    assert ref != hoplo.put(1)
    assert ref != 3
    assert {ref: "x"}[same] == "x"
    assert len({ref, same, hoplo.put(1)}) == 2
    assert copy.copy(ref) == copy.deepcopy(ref) == ref


def test_ids_are_hexadecimal_text():
    ref = hoplo.put(1)
    assert bytes.fromhex(ref.hex()) == ref.binary()
    assert ref.hex() in repr(ref)
    first, second = hoplo.remote(num_returns=2)(lambda: (1, 2)).remote()
    assert first.task_id() == second.task_id()
    assert first.hex() != second.hex()
    assert hoplo.ObjectRef[int]


def test_a_ref_gives_a_future():
    future = make.remote(4).future()
    assert future.result(timeout=20)[0] == 4
    assert future.done()

    @hoplo.remote
    def fail():
        raise KeyError("gone")

    failed = fail.remote().future()
    with pytest.raises(KeyError, match="gone"):
        failed.result(timeout=20)
    assert isinstance(failed.exception(), KeyError)


def test_a_future_calls_back(gate):
    @hoplo.remote
    def hold():
        return gate.wait(5)

    seen = []
    future = hold.remote().future()
    future.add_done_callback(lambda done: seen.append(done.result()))
    eventually(gate.arrived)
    assert seen == []
    gate.open()
    eventually(lambda: seen == [5])


def test_await_in_the_driver():
    async def all_of_them():
        one = await make.remote(1)
        others = await asyncio.gather(*(make.remote(i) for i in range(5)))
        return [int(value[0]) for value in (one, *others)]

    assert asyncio.run(all_of_them()) == [1, 0, 1, 2, 3, 4]

    @hoplo.remote
    def fail():
        raise KeyError("gone")

    async def failing():
        await fail.remote()

    with pytest.raises(KeyError, match="gone"):
        asyncio.run(failing())


def test_await_with_a_timeout(gate):
    @hoplo.remote
    def hold():
        return gate.wait(5)

    async def impatient(ref):
        await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(ref.future())), 0.05)

    ref = hold.remote()
    with pytest.raises(TimeoutError):
        asyncio.run(impatient(ref))
    gate.open()
    assert hoplo.get(ref) == 5
