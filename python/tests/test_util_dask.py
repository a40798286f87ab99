"""Graphs of Dask's, run as tasks."""

import os

import numpy as np
import pytest

import hoplo

dask = pytest.importorskip("dask")

from dask import delayed  # noqa: E402
from dask.callbacks import Callback  # noqa: E402

from hoplo.ray.util import dask as as_ray  # noqa: E402
from hoplo.util.dask import get, use_dask_here  # noqa: E402

NODE = {"num_cpus": 2, "resources": {"special": 1}}


@pytest.fixture(autouse=True)
def here():
    with use_dask_here():
        yield


def test_a_graph_of_calls_runs_in_workers():
    pids = [delayed(os.getpid, pure=False)() for _ in range(4)]
    found = dask.compute(*pids)
    assert os.getpid() not in found
    total = delayed(sum)([delayed(pow)(number, 2) for number in range(5)])
    assert total.compute() == 30


def test_graphs_written_as_dicts_and_nested_keys():
    graph = {"a": 1, "b": (sum, ["a", 2]), "c": "b", ("x", 0): (pow, "b", 2), "d": ["a", "c"]}
    assert get(graph, [["a", "b"], [("x", 0)], "c"]) == [[1, 3], [9], 3]
    assert get(graph, "d") == [1, 3]


def test_large_arrays_go_through_the_store():
    array = pytest.importorskip("dask.array")
    ones = array.ones((2000, 1000), chunks=(500, 1000))
    assert float((ones + ones.T.sum()).sum().compute()) == 2e6 * (2e6 + 1)
    values = (ones * 2).compute()
    assert values.shape == (2000, 1000)
    assert np.all(values == 2)


def test_bags():
    bag = pytest.importorskip("dask.bag")
    words = bag.from_sequence(["a", "b", "a", "c"] * 10, npartitions=3)
    assert dict(words.frequencies().compute()) == {"a": 20, "b": 10, "c": 10}


def test_an_error_of_a_node_is_that_of_its_call():
    broken = delayed(divmod)(1, delayed(int)(0))
    with pytest.raises(ZeroDivisionError):
        delayed(str)(broken).compute()


def test_options_for_all_and_for_some():
    where = delayed(lambda: hoplo.get_runtime_context().get_assigned_resources(), pure=False)
    made = where()
    assert get(made.dask, made.key) == {"CPU": 1.0}
    assert get(made.dask, made.key, remote_args={"num_cpus": 2})["CPU"] == 2.0
    for name in ("remote_args", "ray_remote_args"):
        with dask.annotate(**{name: {"resources": {"special": 1}}}):
            special = where()
        assert special.compute(optimize_graph=False)["special"] == 1.0


def test_refs_stand_for_values_in_further_graphs():
    made = delayed(sum)([1, 2])
    ref = get(made.dask, made.key, persist=True)
    assert isinstance(ref, hoplo.ObjectRef)
    assert get({"a": ref, "b": (sum, ["a", 4])}, "b") == 7


def kept(collection):
    """What the graph of something persisted has for data."""
    return list(dict(collection.dask).values())


def test_what_was_persisted_came_to_the_program_and_went_back():
    pids = delayed([delayed(os.getpid, pure=False)() for _ in range(2)])
    (persisted,) = dask.persist(pids)
    assert [type(value) for value in kept(persisted)] == [hoplo.ObjectRef]
    assert os.getpid() not in persisted.compute()
    assert persisted.compute() == persisted.compute(), "it ran once"
    assert delayed(len)(persisted.persist()).compute() == 2
    assert delayed(lambda lists: lists["a"][0])({"a": [persisted]}).compute() == persisted.compute()


def test_persisting_waits_for_nothing_and_an_error_comes_with_the_value():
    (broken,) = dask.persist(delayed(divmod)(1, 0))
    with pytest.raises(ZeroDivisionError):
        delayed(str)(broken).compute()


def test_what_was_persisted_is_read_in_nodes_that_dask_made_of_several():
    array = pytest.importorskip("dask.array")
    ones = (array.ones((40, 30), chunks=(10, 30)) * 2).persist()
    assert {type(value) for value in kept(ones)} == {hoplo.ObjectRef}
    assert ones.map_blocks(lambda block: block + 1).sum().compute() == 3600
    assert (ones[:10, :10] + ones.T[:10, :10]).compute().tolist() == [[4.0] * 10] * 10
    assert (ones + 1).persist().rechunk((20, 15)).sum().compute() == 3600
    bag = pytest.importorskip("dask.bag")
    even = bag.from_sequence(range(100), npartitions=4).map(lambda x: 2 * x).persist()
    assert even.map(lambda x: x + 1).filter(lambda x: x % 3 == 0).sum().compute() == 3267


def test_options_go_with_what_is_persisted():
    where = delayed(lambda: hoplo.get_runtime_context().get_assigned_resources(), pure=False)
    (special,) = dask.persist(where(), remote_args={"resources": {"special": 1}})
    assert special.compute()["special"] == 1.0
    (special,) = as_ray.ray_dask_persist(where(), ray_remote_args={"resources": {"special": 1}})
    assert special.compute()["special"] == 1.0


def test_callbacks_hear_of_each_task():
    heard = []

    class Hears(Callback):
        def _start(self, dsk):
            heard.append("start")

        def _pretask(self, key, dsk, state):
            heard.append("before")

        def _posttask(self, key, result, dsk, state, worker_id):
            heard.append("after")

        def _finish(self, dsk, state, failed):
            heard.append(f"finish {failed}")

    with Hears():
        assert delayed(sum)([delayed(pow)(2, 2), 1]).compute() == 5
    assert heard[0] == "start"
    assert heard.count("before") >= 1
    assert heard.count("after") >= heard.count("before")
    assert heard[-1] == "finish False"
    with Hears(), pytest.raises(ZeroDivisionError):
        delayed(divmod)(1, 0).compute()


def test_by_rays_names():
    with as_ray.enable_dask_on_ray():
        assert dask.config.get("scheduler") is as_ray.ray_dask_get
        assert delayed(max)(3, 4).compute() == 4
    assert as_ray.ray_dask_get({"a": (pow, 2, 3)}, "a") == 8
    with pytest.raises(ImportError, match=r"ray\.util\.dask\.ProgressBarCallback"):
        exec("from hoplo.ray.util.dask import ProgressBarCallback")


def test_it_is_persisted_by_rays_names_whichever_scheduler_is_set():
    from hoplo.ray.util.dask import scheduler

    assert scheduler is as_ray
    with as_ray.enable_dask_on_ray():
        assert type(kept(delayed(max)(3, 4).persist())[0]) is hoplo.ObjectRef
    with dask.config.set(scheduler="threads"):
        (here,) = dask.persist(delayed(max)(3, 4))
        (there,) = as_ray.ray_dask_persist(delayed(max)(3, 4))
    assert (type(kept(here)[0]), type(kept(there)[0])) == (int, hoplo.ObjectRef)
    assert (here.compute(), there.compute()) == (4, 4)
