"""What ids, refs and errors say of themselves under the names of Ray."""

from __future__ import annotations

import asyncio
import os
import pickle

import pytest
from conftest import eventually

import hoplo
import hoplo.ray as ray
from hoplo.ray import _nodes
from hoplo.util.placement_group import PlacementGroup


def test_an_object_lives_whoever_owns_it() -> None:
    @ray.remote
    class A:
        pass

    ref = ray.put([1], _owner=A.remote())
    assert ray.get(ref) == [1]


def test_get_of_a_generator_gives_it_back() -> None:
    @ray.remote
    def f():
        yield 1

    refs = f.remote()
    assert ray.get(refs) is refs
    assert ray.get(next(refs)) == 1


def test_as_future_is_one_of_the_loop() -> None:
    async def value() -> int:
        future = ray.put(3).as_future()  # type: ignore[attr-defined]
        assert isinstance(future, asyncio.Future)
        return await future

    assert asyncio.run(value()) == 3


def test_ids_are_made_of_bytes_or_digits_only() -> None:
    assert ray.ActorID(b"\x01" * 16).hex() == "01" * 16
    assert ray.ActorID("01" * 16).binary() == b"\x01" * 16
    with pytest.raises(ValueError, match="ActorID has 16 bytes, not 2"):
        ray.ActorID(b"ab")
    with pytest.raises(ValueError, match="needs hexadecimal digits, not 'xyz'"):
        ray.TaskID.from_hex("xyz")
    with pytest.raises(TypeError, match="made of bytes, not int"):
        ray.TaskID(3)  # type: ignore[arg-type]
    assert ray.JobID.nil() != ray.JobID.from_random()
    assert pickle.loads(pickle.dumps(ray.NodeID.nil())) == ray.NodeID.nil()


@pytest.mark.parametrize("kind", [ray.PlacementGroupID, ray.ClusterID])
def test_ids_of_groups_and_clusters_are_like_others(kind) -> None:
    assert kind.nil().is_nil()
    assert kind.nil().binary() == b"\xff" * kind.size()
    one = kind.from_random()
    assert not one.is_nil()
    assert kind.from_hex(one.hex()) == one == kind(one.binary()) == kind.from_binary(one.binary())
    assert pickle.loads(pickle.dumps(one)) == one
    assert repr(one) == f"{kind.__name__}({one.hex()})"
    with pytest.raises(ValueError, match=rf"{kind.__name__} has {kind.size()} bytes, not 3"):
        kind(b"abc")
    with pytest.raises(ValueError, match="needs hexadecimal digits, not 'xyz'"):
        kind.from_hex("xyz")


def test_the_id_of_a_group_is_made_again_from_its_text() -> None:
    group = ray.util.placement_group([{"CPU": 1}])
    assert ray.PlacementGroupID.from_hex(group.id.hex()) == group.id
    assert PlacementGroup(ray.PlacementGroupID(group.id.binary())) == group
    assert PlacementGroup.empty().id.is_nil()
    ray.util.remove_placement_group(group)


def test_ids_are_the_text_that_hoplo_uses() -> None:
    context = ray.get_runtime_context()
    assert context.node_id == hoplo.nodes()[0]["NodeID"]
    assert context.job_id == hoplo.get_runtime_context().get_job_id()
    assert ray.WorkerID(context.get_worker_id()) == context.get_worker_id()
    ref = hoplo.put(1)
    assert ref.hex() == ray.ObjectID(ref.binary())
    assert not ref.is_nil()  # type: ignore[attr-defined]


def test_every_exception_of_rays_is_an_exception_here() -> None:
    for name in ray.exceptions.__all__:
        assert issubclass(getattr(ray.exceptions, name), Exception)
    own = set(hoplo.exceptions.__all__) & set(ray.exceptions.__all__)
    assert "ActorDiedError" in own
    for name in own:
        assert getattr(ray.exceptions, name) is getattr(hoplo.exceptions, name)


def test_an_error_of_a_task_has_its_traceback_under_rays_name() -> None:
    @ray.remote
    def fails() -> None:
        raise KeyError("here")

    with pytest.raises(ray.exceptions.RayTaskError) as caught:
        ray.get(fails.remote())
    error = caught.value
    assert 'raise KeyError("here")' in error.traceback_str  # type: ignore[attr-defined]
    assert error.as_instanceof_cause() is error  # type: ignore[attr-defined]
    with pytest.raises(KeyError):
        raise error.as_instanceof_cause()  # type: ignore[attr-defined]


def test_an_error_of_a_task_says_where_its_code_raised() -> None:
    def place() -> tuple[str, str | None, str]:
        here = ray.get_runtime_context()
        return here.get_node_id(), here.get_actor_id(), ray.util.get_node_ip_address()

    @ray.remote
    def fails() -> None:
        raise KeyError(*place())

    @ray.remote
    class Fails:
        def call(self) -> None:
            raise KeyError(*place())

    for ref in (fails.remote(), Fails.remote().call.remote()):
        with pytest.raises(ray.exceptions.RayTaskError) as caught:
            ray.get(ref)
        for error in (caught.value, pickle.loads(pickle.dumps(caught.value))):
            told = (error.node_id, error.actor_id, error.ip)  # type: ignore[attr-defined]
            assert told == error.args
    error.node_id = "ffffff"
    assert error.ip is None, "no such node is known"  # type: ignore[attr-defined]


@pytest.mark.parametrize("concurrency", [1, 2], ids=["one call at a time", "threads"])
def test_a_method_that_was_cancelled_could_not_ask_whether_it_was(concurrency: int) -> None:
    @ray.remote(num_cpus=0)
    class Notes:
        def __init__(self) -> None:
            self.said: set[str] = set()

        async def say(self, what: str) -> None:
            self.said.add(what)

        async def has(self, what: str) -> bool:
            return what in self.said

    @ray.remote(num_cpus=0, max_concurrency=concurrency)
    class Worker:
        def work(self, notes: ray.ActorHandle) -> None:
            here = ray.get_runtime_context()
            assert not here.is_canceled()
            ray.get(notes.say.remote("begun"))
            while not here.is_canceled():
                pass
            ray.get(notes.say.remote("ended"))
            raise ray.exceptions.TaskCancelledError("as asked")

        def is_canceled(self) -> bool:
            return ray.get_runtime_context().is_canceled()

    notes, worker = Notes.remote(), Worker.remote()
    ref = worker.work.remote(notes)
    eventually(lambda: ray.get(notes.has.remote("begun")))
    ray.cancel(ref)
    with pytest.raises(ray.exceptions.TaskCancelledError, match=r"Worker\.work was cancelled"):
        ray.get(ref, timeout=30)
    assert ray.get(notes.has.remote("ended"))
    assert not ray.get(worker.is_canceled.remote()), "the next call was not cancelled"


def test_a_task_that_catches_its_cancelling_can_ask_about_it() -> None:
    @ray.remote
    def cleans_up(begun: ray.ActorHandle) -> None:
        begun.put.remote(ray.get_runtime_context().is_canceled())
        try:
            while True:
                pass
        except KeyboardInterrupt:
            begun.put.remote(ray.get_runtime_context().is_canceled())
            raise

    @ray.remote(num_cpus=0)
    class Queue:
        def __init__(self) -> None:
            self.items: list[object] = []

        def put(self, item: object) -> None:
            self.items.append(item)

        def all(self) -> list[object]:
            return self.items

    queue = Queue.remote()
    ref = cleans_up.remote(queue)
    eventually(lambda: ray.get(queue.all.remote()) == [False])
    ray.cancel(ref)
    with pytest.raises(ray.exceptions.TaskCancelledError):
        ray.get(ref, timeout=30)
    eventually(lambda: ray.get(queue.all.remote()) == [False, True])


def test_a_driver_and_an_async_actor_are_not_asked_whether_they_are_cancelled() -> None:
    with pytest.raises(RuntimeError, match="this is a driver"):
        ray.get_runtime_context().is_canceled()

    @ray.remote
    class Async:
        async def asks(self) -> bool:
            return ray.get_runtime_context().is_canceled()

    with pytest.raises(RuntimeError, match="not for async actors"):
        ray.get(Async.remote().asks.remote())


def test_an_actors_error_did_not_say_whether_its_constructor_raised() -> None:
    @ray.remote
    class Fragile:
        def __init__(self, raises: bool) -> None:
            if raises:
                raise KeyError("here")

        def dies(self) -> None:
            os._exit(1)

    for raises in (True, False):
        with pytest.raises(ray.exceptions.RayActorError) as caught:
            ray.get(Fragile.remote(raises).dies.remote())
        assert caught.value.actor_init_failed is raises  # type: ignore[attr-defined]
        assert caught.value.preempted is False  # type: ignore[attr-defined]


def test_a_ref_says_that_nobody_recorded_where_it_was_made() -> None:
    assert ray.put(1).call_site() == ""


def test_a_ref_of_bytes_is_an_id() -> None:
    ref = ray.put(1)
    assert ray.ObjectRef.from_hex(ref.hex()) == ray.ObjectRef.from_binary(ref.binary()) == ref.hex()


def test_the_id_of_a_job_is_a_number_as_well() -> None:
    job = ray.get_runtime_context().job_id
    assert ray.JobID.from_int(job.int()) == job
    assert ray.JobID.from_int(1).hex() == f"{1:016x}"


def test_a_ref_of_nothing_and_one_of_chance_are_ids() -> None:
    assert ray.ObjectRef.nil().is_nil()
    assert ray.ObjectRef.from_random() != ray.ObjectRef.from_random()
    assert len(ray.ObjectRef.from_random().binary()) == ray.ObjectRef.size()


def test_rows_of_nodes_lacked_keys_of_rays() -> None:
    for row in ray.nodes():
        assert row["alive"] is row["Alive"]
        assert row["NodeName"] == row["NodeManagerAddress"]
        assert row["Labels"]["ray.io/node-id"] == row["NodeID"]
        if row["alive"]:
            assert (row["DeathReason"], row["DeathReasonMessage"]) == (0, "")
    labels = ray.get_runtime_context().get_node_labels()
    assert labels["ray.io/node-id"] == ray.get_runtime_context().get_node_id()
    dead = _nodes.as_ray({**hoplo.nodes()[0], "Alive": False, "Reason": "it was drained"})
    assert (dead["alive"], dead["DeathReasonMessage"]) == (False, "it was drained")
