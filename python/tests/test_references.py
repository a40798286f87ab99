"""References: who may still reach an object, and that it goes when nobody can."""

import gc
import json
import pickle

import numpy as np
import pytest
from conftest import alive, eventually

import hoplo
from hoplo import _core

MIB = 1 << 20


def stored():
    """Ids of the objects that the node keeps."""
    gc.collect()
    rows = json.loads(_core.query("objects"))
    return {row["object_id"] for row in rows if row["state"] != "handle"}


def big(i=0):
    return np.full(MIB, i, "uint8")


@hoplo.remote
def make(i=0):
    return np.full(MIB, i, "uint8")


@hoplo.remote
def keep(nested):
    return nested


@hoplo.remote
class Keeper:
    def __init__(self):
        self.kept = None

    def keep(self, nested):
        self.kept = nested

    def read(self):
        return [int(value[0]) for value in hoplo.get(self.kept)]

    def take(self):
        kept, self.kept = self.kept, None
        return kept


# ------------------------------------------------------------------------------------ counting


def test_an_object_goes_with_its_last_ref():
    before = stored()
    ref = hoplo.put(big())
    (other,) = hoplo.get(hoplo.put([ref]))
    name = ref.hex()
    eventually(lambda: name in stored())
    del ref
    assert name in stored()
    del other
    eventually(lambda: stored() <= before)


def test_a_ref_that_foreign_code_pickles_is_kept():
    data = pickle.dumps(hoplo.put(big(4)))
    gc.collect()
    assert hoplo.get(pickle.loads(data))[0] == 4


def test_a_result_that_nobody_wants_goes():
    before = stored()
    for _ in range(5):
        make.remote()
    hoplo.get(make.remote())
    eventually(lambda: stored() <= before)


def test_arguments_are_kept_until_the_task_is_done(gate):
    @hoplo.remote
    def late(value):
        gate.wait()
        return int(value[0])

    before = stored()
    ref = hoplo.put(big(7))
    result = late.remote(ref)
    nested = late.remote(ref)
    del ref
    eventually(lambda: gate.arrived() == 2)
    assert len(stored() - before) == 1
    gate.open()
    assert hoplo.get([result, nested]) == [7, 7]
    eventually(lambda: stored() <= before)


def test_a_ref_inside_a_value_keeps_the_object():
    before = stored()
    outer = hoplo.put({"deep": [hoplo.put(big(3))]})
    gc.collect()
    assert hoplo.get(hoplo.get(outer)["deep"][0])[0] == 3
    del outer
    eventually(lambda: stored() <= before)


def test_a_ref_inside_a_stored_value_keeps_the_object():
    before = stored()
    outer = hoplo.put([big(1), hoplo.put([hoplo.put(big(3))])])
    eventually(lambda: len(stored() - before) == 2 or len(stored() - before) == 3)
    assert hoplo.get(hoplo.get(hoplo.get(outer)[1])[0])[0] == 3
    del outer
    eventually(lambda: stored() <= before)


def test_an_actor_that_keeps_a_ref_keeps_the_object():
    before = stored()
    keeper = Keeper.remote()
    refs = [hoplo.put(big(i)) for i in range(3)]
    hoplo.get(keeper.keep.remote(refs))
    del refs
    gc.collect()
    assert hoplo.get(keeper.read.remote()) == [0, 1, 2]
    back = hoplo.get(keeper.take.remote())
    assert [int(v[0]) for v in hoplo.get(back)] == [0, 1, 2]
    del back
    eventually(lambda: stored() <= before)


def test_an_actor_that_ends_lets_go():
    before = stored()
    keeper = Keeper.remote()
    hoplo.get(keeper.keep.remote([hoplo.put(big())]))
    assert len(stored() - before) == 1
    hoplo.kill(keeper)
    eventually(lambda: stored() <= before)


def test_a_worker_that_returns_refs_hands_them_over():
    @hoplo.remote
    def several(n):
        return [hoplo.put(np.full(MIB, i, "uint8")) for i in range(n)]

    before = stored()
    refs = hoplo.get(several.remote(4))
    gc.collect()
    assert [int(v[0]) for v in hoplo.get(refs)] == [0, 1, 2, 3]
    del refs
    eventually(lambda: stored() <= before)


def test_a_ref_goes_through_many_hands():
    @hoplo.remote
    def pass_on(nested, hops):
        if hops == 0:
            return nested
        return hoplo.get(pass_on.remote(nested, hops - 1))

    before = stored()
    ref = hoplo.put(big(9))
    (back,) = hoplo.get(pass_on.remote([ref], 5))
    assert back == ref
    del ref
    gc.collect()
    assert hoplo.get(back)[0] == 9
    del back
    eventually(lambda: stored() <= before)


def test_objects_survive_the_worker_that_made_them():
    @hoplo.remote
    class Maker:
        def make(self):
            import os

            return os.getpid(), hoplo.put(np.full(MIB, 5, "uint8")), hoplo.put("small")

    maker = Maker.remote()
    pid, large, small = hoplo.get(maker.make.remote())
    hoplo.kill(maker)
    eventually(lambda: not alive(pid))
    assert hoplo.get(large)[-1] == 5
    assert hoplo.get(small) == "small"
    assert hoplo.get(keep.remote([large, small])) == [large, small]


@pytest.mark.near
def test_a_pending_task_survives_its_owner(gate):
    @hoplo.remote
    def late():
        return gate.wait("adopted")

    @hoplo.remote
    class Starter:
        def start(self):
            import os

            return os.getpid(), late.remote()

    starter = Starter.remote()
    pid, ref = hoplo.get(starter.start.remote())
    eventually(gate.arrived)
    hoplo.kill(starter)
    eventually(lambda: not alive(pid))
    gate.open()
    assert hoplo.get(ref, timeout=20) == "adopted"


def test_a_ref_captured_by_a_closure():
    ref = hoplo.put(big(6))

    @hoplo.remote
    def captured():
        return int(hoplo.get(ref)[0])

    assert hoplo.get(captured.remote()) == 6


def test_a_thousand_refs_in_a_value():
    before = stored()
    refs = [hoplo.put(i) for i in range(1000)]
    back = hoplo.get(keep.remote(refs))
    assert back == refs
    assert hoplo.get(back) == list(range(1000))
    del refs, back
    eventually(lambda: stored() <= before)


def test_references_in_a_cycle_of_python_objects():
    before = stored()
    ref = hoplo.put(big())
    holder: dict = {"ref": ref}
    holder["self"] = holder
    del ref, holder
    eventually(lambda: stored() <= before)


def test_a_result_with_many_refs_inside_killed_its_worker():
    @hoplo.remote
    def many(count):
        return [hoplo.put(i) for i in range(count)]

    refs = hoplo.get(many.remote(10_000))
    assert hoplo.get(refs) == list(range(10_000))


def test_a_ref_pickled_by_hand_was_lost_in_another_process():
    import pickle

    @hoplo.remote
    class Keeper:
        def make(self):
            return pickle.dumps(hoplo.put("value"))

    keeper = Keeper.remote()
    ref = pickle.loads(hoplo.get(keeper.make.remote()))
    assert hoplo.get(ref, timeout=30) == "value"
