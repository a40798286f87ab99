"""What `ray.util` has of its own: named actors, groups of actors, iterators, serializers."""

from __future__ import annotations

import os
import threading

import pytest
from conftest import eventually

import hoplo.ray as ray
from hoplo.ray.util.local_iter import LocalIterator


def test_actors_without_a_name_are_not_listed_by_it() -> None:
    @ray.remote(num_cpus=0)
    class Quiet:
        pass

    quiet = Quiet.remote()
    ray.get(quiet.__ray_ready__.remote())
    assert "" not in ray.util.list_named_actors()
    assert all(row["name"] for row in ray.util.list_named_actors(all_namespaces=True))


def test_what_cannot_be_pickled_is_told_with_what_holds_it() -> None:
    import io

    from hoplo.ray.util.check_serialize import FailureTuple, inspect_serializability

    class Model:
        def __init__(self) -> None:
            self.layers = [{"lock": threading.Lock()}]

    model, out = Model(), io.StringIO()
    fine, failures = inspect_serializability(model, "model", print_file=out)
    (failure,) = failures
    assert not fine
    assert isinstance(failure, FailureTuple)
    assert failure.obj is model.layers[0]["lock"]
    assert failure.parent is model.layers[0]
    assert failure.path == "model.layers[0]['lock']"
    assert "model.layers[0]['lock'] (lock), which a dict holds: cannot pickle" in out.getvalue()

    (failure,) = inspect_serializability(model, "model", depth=1, print_file=out)[1]
    assert (failure.obj, failure.name) == (model.layers, "layers"), "no deeper than it was asked"
    lock = threading.Lock()
    (failure,) = inspect_serializability(lambda: lock, "f", print_file=out)[1]
    assert (failure.obj, failure.name) == (lock, "lock")
    (failure,) = inspect_serializability(lock, "lock", print_file=out)[1]
    assert (failure.obj, failure.name, failure.parent) == (lock, "lock", lock)
    assert inspect_serializability(3, print_file=out) == (True, set())


def test_a_pool_takes_rays_own_arguments() -> None:
    from hoplo.ray.util.multiprocessing import Pool

    with pytest.raises(TypeError, match="no option 'num_cpu'; did you mean 'num_cpus'"):
        Pool(1, ray_remote_args={"num_cpu": 1})
    with Pool(2, None, None, ray_address="auto", ray_remote_args={"num_cpus": 0.5}) as pool:
        assert pool.map(abs, range(-7, 0), chunksize=3) == [7, 6, 5, 4, 3, 2, 1]
        assert len(set(pool.map(lambda _: os.getpid(), range(6), chunksize=6))) == 1
        assert list(pool.imap(abs, [-2, -1], chunksize=None)) == [2, 1]
        for size in (0, -1):
            with pytest.raises(ValueError, match=f"Chunksize must be 1\\+, not {size}"):
                pool.map(abs, [1], chunksize=size)


def test_a_callback_of_a_pool_is_given_the_error_that_get_raises() -> None:
    from hoplo.exceptions import ActorDiedError
    from hoplo.ray.util.multiprocessing.pool import Pool, PoolTaskError

    heard: list[BaseException] = []
    with Pool(1) as pool:
        results = [
            pool.apply_async(divmod, (1, 0), error_callback=heard.append),
            pool.map_async(abs, ["x"], error_callback=heard.append),
            pool.starmap_async(pow, [(2, 3)], error_callback=heard.append),
        ]
        for result, error in zip(results, (ZeroDivisionError, TypeError)):
            with pytest.raises(error):
                result.get(timeout=30)
        assert results[2].get(timeout=30) == [8]
        dies = pool.apply_async(os._exit, (1,), error_callback=heard.append)
        with pytest.raises(ActorDiedError):
            dies.get(timeout=30)
    first, second, death = heard
    assert isinstance(first, PoolTaskError)
    assert isinstance(first.underlying, ZeroDivisionError)
    assert str(first) == str(first.underlying)
    assert isinstance(second.underlying, TypeError)  # type: ignore[attr-defined]
    assert isinstance(death, ActorDiedError), "no error of the function's"


def test_named_actors_are_listed_while_they_live() -> None:
    @ray.remote
    class A:
        pass

    actor = A.options(name="listed", namespace="elsewhere").remote()
    ray.get(actor.__ray_ready__.remote())
    assert "listed" not in ray.util.list_named_actors()
    everywhere = ray.util.list_named_actors(all_namespaces=True)
    assert {"namespace": "elsewhere", "name": "listed"} in everywhere
    ended = actor.__ray_terminate__.remote()
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(ended)

    def is_gone() -> bool:
        return {"namespace": "elsewhere", "name": "listed"} not in ray.util.list_named_actors(True)

    eventually(is_gone)
    with pytest.raises(TypeError, match="all_namespaces must be True or False"):
        ray.util.list_named_actors("x")  # type: ignore[arg-type]


def test_a_group_of_actors_is_called_together() -> None:
    class Doubler:
        def __init__(self, factor: int) -> None:
            self.factor = factor

        def double(self, x: int) -> int:
            return self.factor * x

    group = ray.util.ActorGroup(Doubler, 3, num_cpus_per_actor=0, init_args=[2])
    assert (len(group), ray.get(group.double.remote(4))) == (3, [8, 8, 8])
    group.remove_actors([0])
    assert ray.get(group.double.remote(1)) == [2, 2]
    with pytest.raises(RuntimeError, match="call shutdown"):
        group.start()
    with pytest.raises(AttributeError, match="no method 'triple'"):
        group.triple
    with pytest.raises(TypeError, match=r"double\(\) runs nothing, .*: call double\.remote\(\)"):
        group.double(1)
    assert group.actor_metadata == [None, None], "the class says nothing of its actors"
    assert group.actor_config.init_args == (2,)
    group.shutdown()
    assert len(group) == 0
    with pytest.raises(RuntimeError, match=r"shut down: call start\(\)"):
        group.double.remote(1)
    with pytest.raises(ValueError, match="num_actors must be 1 or more"):
        ray.util.ActorGroup(Doubler, 0)


def test_actors_of_a_group_say_of_themselves_what_the_group_knows() -> None:
    class Numbered:
        def get_actor_metadata(self) -> dict[str, int]:
            return {"pid": os.getpid()}

        def pid(self) -> int:
            return os.getpid()

    group = ray.util.ActorGroup(Numbered, 2, num_cpus_per_actor=0)
    group.add_actors(1)
    pids = ray.get(group.pid.remote())
    assert [told["pid"] for told in group.actor_metadata] == pids
    assert [one.metadata["pid"] for one in group.actors] == pids
    assert ray.get(group[1].actor.pid.remote()) == pids[1]
    group.remove_actors([0])
    assert [told["pid"] for told in group.actor_metadata] == pids[1:]
    group.shutdown()
    assert group.actor_metadata == []


def test_parallel_iterators_are_checked() -> None:
    it = ray.util.iter.from_range(3)
    with pytest.raises(ValueError, match="num_shards must be 1 or more"):
        ray.util.iter.from_items([1], num_shards=0)
    with pytest.raises(TypeError, match="read gather_sync"):
        iter(it)
    with pytest.raises(ValueError, match="there is no shard 2: there are 2"):
        it.select_shards([2])
    with pytest.raises(ValueError, match="num_partitions must be 1 or more"):
        it.repartition(0)
    with pytest.raises(ValueError, match="at least one actor"):
        ray.util.iter.from_actors([])
    with pytest.raises(ZeroDivisionError):
        it.for_each(lambda x: 1 // x).take(1)
    assert list(ray.util.iter.from_items([], repeat=True).gather_sync()) == []


def test_iterators_are_dealt_to_other_shards_and_read_from_actors() -> None:
    it = ray.util.iter.from_items(list("abcdefg"), num_shards=2).repartition(3)
    assert it.num_shards() == 3
    # Of the first shard a, c, e, g; of the second one b, d, f: each is dealt in turns.
    parts = [list(it.get_shard(at)) for at in range(3)]
    assert parts == [["a", "b", "g"], ["c", "d"], ["e", "f"]]
    assert sorted(it.for_each(str.upper).gather_async()) == list("ABCDEFG")
    assert sorted(it.repartition(1).gather_sync()) == list("abcdefg")

    @ray.remote
    class Letters(ray.util.iter.ParallelIteratorWorker):
        def __init__(self, letters: str) -> None:
            super().__init__(lambda: iter(letters), repeat=False)

    of_actors = ray.util.iter.from_actors([Letters.remote("xy"), Letters.remote("z")])
    assert sorted(of_actors.gather_sync()) == ["x", "y", "z"]
    assert sorted(of_actors.gather_async()) == ["x", "y", "z"], "it begins again"
    assert of_actors.batch(2).take(2) == [["x", "y"], ["z"]]


def test_items_are_read_with_the_actors_that_made_them() -> None:
    @ray.remote(num_cpus=0)
    class Letters(ray.util.iter.ParallelIteratorWorker):
        def __init__(self, letters: str) -> None:
            super().__init__(lambda: iter(letters), repeat=False)
            self.letters = letters

        def all(self) -> str:
            return self.letters

    actors = [Letters.remote("xyz"), Letters.remote("ab")]
    it = ray.util.iter.from_actors(actors)
    x, y = actors
    assert list(it.gather_sync().zip_with_source_actor()) == [
        (x, "x"), (y, "a"), (x, "y"), (y, "b"), (x, "z"),
    ]  # fmt: skip
    steps = it.gather_async(num_async=2).filter(str.isalpha).for_each(str.upper)
    pairs = list(steps.zip_with_source_actor())
    assert sorted(item for _, item in pairs) == list("ABXYZ")
    assert all(item.lower() in ray.get(actor.all.remote()) for actor, item in pairs)
    first, second = it.shards()
    both = first.for_each(str.upper).union(second, round_robin_weights=[2, 1])
    assert list(both.zip_with_source_actor()) == [
        (x, "X"), (x, "Y"), (y, "a"), (x, "Z"), (y, "b"),
    ]  # fmt: skip
    # Those of the iterator's own actors have one for each shard, too.
    own = list(ray.util.iter.from_range(4).gather_sync().zip_with_source_actor())
    assert [item for _, item in own] == [0, 2, 1, 3]
    assert len({actor._actor_id for actor, _ in own}) == 2
    for mixed in (
        it.batch_across_shards(),
        it.gather_sync().batch(2),
        it.gather_sync().shuffle(2),
        it.gather_sync().duplicate(2)[0],
    ):
        with pytest.raises(ValueError, match="does not tell which actor made an item"):
            list(mixed.zip_with_source_actor())


def test_local_iterators_join_and_part() -> None:
    def numbers(n: int) -> LocalIterator:
        return LocalIterator(lambda: range(n), "numbers")

    assert list(numbers(3).union(numbers(2))) == [0, 0, 1, 1, 2]
    assert list(numbers(3).union(numbers(2), round_robin_weights=[2, 1])) == [0, 1, 0, 2, 1]
    with pytest.raises(ValueError, match="give 2 weights"):
        numbers(1).union(numbers(1), round_robin_weights=[1])
    first, second = numbers(3).duplicate(2)
    assert (list(first), list(second)) == ([0, 1, 2], [0, 1, 2])
    assert sorted(numbers(9).shuffle(3, seed=1)) == list(range(9))
    assert list(numbers(9).shuffle(3, seed=1)) == list(numbers(9).shuffle(3, seed=1))


def test_serializers_are_checked_and_taken_back() -> None:
    with pytest.raises(TypeError, match="takes a class"):
        ray.util.register_serializer(3, serializer=str, deserializer=int)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="deserializer must be a function"):
        ray.util.register_serializer(set, serializer=str, deserializer=3)  # type: ignore[arg-type]
    ray.util.deregister_serializer(frozenset)


def test_a_library_registers_its_classes_with_a_context() -> None:
    from hoplo.ray.util.serialization import StandaloneSerializationContext

    class Guarded:
        def __init__(self, value: int) -> None:
            self.value = value
            self.lock = threading.Lock()

    context = StandaloneSerializationContext()
    context._register_cloudpickle_serializer(Guarded, lambda one: one.value, Guarded)
    assert ray.get(ray.put([Guarded(3)]))[0].value == 3
    context._register_cloudpickle_reducer(Guarded, lambda one: (Guarded, (one.value + 1,)))
    assert ray.get(ray.remote(lambda one: one.value).remote(Guarded(3))) == 4
    ray.util.deregister_serializer(Guarded)
    context._unregister_cloudpickle_reducer(Guarded)
    with pytest.raises(TypeError, match="lock"):
        ray.put(Guarded(3))
    with pytest.raises(TypeError, match="callable"):
        context._register_cloudpickle_reducer(Guarded, 3)  # type: ignore[arg-type]
