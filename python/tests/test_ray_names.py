"""Names of Ray's that hoplo has not, and what is said of them: where they are imported or used."""

from __future__ import annotations

import ast
import asyncio
import importlib
import logging
import os
import pickle
import platform
import re
import sys

import pytest
from conftest import TREE, eventually
from processes import Notes, alive

import hoplo
import hoplo.ray as ray
from hoplo import _logging, doctor
from hoplo.ray import _absent, _init
from hoplo.ray.util.local_iter import LocalIterator
from hoplo.util.placement_group import PlacementGroup

FACADE = TREE / "python" / "hoplo" / "ray"


@pytest.mark.parametrize("name", sorted(_absent.ABSENT))
def test_what_hoplo_has_not_says_so_with_its_name_and_a_remedy(name: str) -> None:
    module, _, last = name.rpartition(".")
    said = re.escape(f"{name} is not in hoplo; {_absent.ABSENT[name]}")
    with pytest.raises(ImportError, match=said):
        importlib.import_module(f"hoplo.{name}")
    with pytest.raises(ImportError, match=said):
        exec(f"from hoplo.{module} import {last}")
    if _absent.remedy(module) is None:
        with pytest.raises(AttributeError, match=said):
            getattr(importlib.import_module(f"hoplo.{module}"), last)


def test_what_lies_inside_of_it_names_the_whole() -> None:
    with pytest.raises(ImportError, match=r"ray\.rllib is not in hoplo"):
        importlib.import_module("hoplo.ray.rllib.algorithms.ppo")


def test_a_library_is_given_what_it_imports_and_a_program_is_not(tmp_path, monkeypatch) -> None:
    (tmp_path / "modin.py").write_text(
        "from hoplo.ray._private.services import get_node_ip_address\n"
        "from hoplo.ray.data import from_pandas_refs\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    try:
        library = importlib.import_module("modin")
        assert library.get_node_ip_address().count(".") == 3
        with pytest.raises(NotImplementedError, match=r"ray\.data\.from_pandas_refs is not in"):
            library.from_pandas_refs([])
        with pytest.raises(AttributeError, match=r"ray\.data\.range is not in hoplo"):
            ray.data.range(3)
    finally:
        for name in (
            "modin",
            "hoplo.ray.data",
            "hoplo.ray._private",
            "hoplo.ray._private.services",
        ):
            sys.modules.pop(name, None)
        for name in ("data", "_private"):
            vars(ray).pop(name, None)
    with pytest.raises(ImportError, match=r"ray\.data is not in hoplo"):
        importlib.import_module("hoplo.ray.data")


def test_libraries_that_ask_for_a_client_hear_that_there_is_none() -> None:
    from hoplo.ray.util import client
    from hoplo.ray.util.client.common import ClientActorHandle, ClientObjectRef

    assert not client.ray.is_connected()
    assert client.num_connected_contexts() == 0
    assert not isinstance(ray.put(1), ClientObjectRef)
    assert ClientActorHandle is not ray.ActorHandle


def test_actors_without_a_name_are_not_listed_by_it() -> None:
    @ray.remote(num_cpus=0)
    class Quiet:
        pass

    quiet = Quiet.remote()
    ray.get(quiet.__ray_ready__.remote())
    assert "" not in ray.util.list_named_actors()
    assert all(row["name"] for row in ray.util.list_named_actors(all_namespaces=True))


@pytest.mark.near  # of a node that `init` starts
def test_a_task_asks_for_the_head_by_its_name() -> None:
    for name in ("node:__internal_head__", f"node:{ray.util.get_node_ip_address()}"):
        assert ray.cluster_resources()[name] == 1.0
        there = ray.remote(resources={name: 0.001})(lambda: ray.get_runtime_context().node_id)
        assert ray.get(there.remote(), timeout=50) == ray.get_runtime_context().node_id


def test_what_cannot_be_pickled_is_told_with_what_holds_it() -> None:
    import io
    import threading

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


def test_programs_that_try_first_hear_no_error() -> None:
    assert not hasattr(ray, "data")
    assert getattr(ray, "serve", None) is None
    try:
        from hoplo.ray import tune
    except ImportError:
        tune = None
    assert tune is None


def test_a_name_of_nobodys_gets_the_nearest_one() -> None:
    with pytest.raises(AttributeError, match="did you mean 'remote'"):
        ray.remot
    with pytest.raises(AttributeError, match=r"no attribute 'zzz'$"):
        ray.zzz
    with pytest.raises(ImportError):
        from hoplo.ray.exceptions import Nothing  # noqa: F401


def test_a_module_of_nobodys_is_just_not_there() -> None:
    with pytest.raises(ModuleNotFoundError, match="No module named"):
        importlib.import_module("hoplo.ray.nothing")
    with pytest.raises(ModuleNotFoundError, match="No module named 'ray'"):
        importlib.import_module("ray")  # nobody asked for the alias here


def test_one_module_has_all_of_its_names() -> None:
    theirs = importlib.import_module("hoplo.ray.util.queue")
    assert theirs is importlib.import_module("hoplo.util.queue")
    assert theirs.__name__ == theirs.__spec__.name == "hoplo.util.queue"


def test_a_module_takes_no_functions_place() -> None:
    importlib.import_module("hoplo.ray.util.placement_group")
    assert ray.util.placement_group is hoplo.util.placement_group
    group = importlib.import_module("hoplo.ray.util.placement_group").PlacementGroup
    assert group is type(hoplo.util.placement_group([{"CPU": 1}]))


@pytest.mark.parametrize("call", ["bind", "experimental_compile"])
def test_graphs_that_are_compiled_say_what_to_call(call: str) -> None:
    @ray.remote
    def f() -> None:
        pass

    @ray.remote
    class A:
        def m(self) -> None:
            pass

    for target in (f, A, A.remote().m):
        with pytest.raises(NotImplementedError, match=r"call \.remote\(\) with refs"):
            getattr(target, call)(1)


def test_options_that_hoplo_has_not_are_refused_by_name() -> None:
    with pytest.raises(TypeError, match=r"remote\(tensor_transport=\) is not in hoplo; arrays"):
        ray.remote(tensor_transport="nccl")
    with pytest.raises(TypeError, match=r"put\(_tensor_transport=\) is not in hoplo"):
        ray.put(1, _tensor_transport="nixl")
    with pytest.raises(TypeError, match="_owner must be an actor's handle, not int"):
        ray.put(1, _owner=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="init has no option 'num_cpu'; did you mean 'num_cpus'"):
        ray.init(num_cpu=2)
    with pytest.raises(TypeError, match="job_config must be a JobConfig"):
        ray.init(job_config={})


def test_calls_out_of_order_are_accepted() -> None:
    @ray.remote(allow_out_of_order_execution=True)
    class A:
        def m(self) -> int:
            return 1

    assert ray.get(A.remote().m.remote()) == 1
    with pytest.raises(TypeError, match="allow_out_of_order_execution must be True or False"):
        A.options(allow_out_of_order_execution=1)


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


def test_names_of_rays_make_no_handle_larger() -> None:
    @ray.remote
    class A:
        pass

    actor = A.remote()
    assert ray.get(actor.__ray_ready__.remote()) is True
    assert b"__ray_" not in hoplo._core._encode(actor)


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


def test_what_init_gives_did_not_name_versions() -> None:
    context = ray.init(ignore_reinit_error=True)
    assert context.ray_version == ray.__version__
    assert context.python_version == platform.python_version()


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
    group.shutdown()
    assert len(group) == 0
    with pytest.raises(ValueError, match="num_actors must be 1 or more"):
        ray.util.ActorGroup(Doubler, 0)


def test_a_logging_config_is_checked() -> None:
    with pytest.raises(ValueError, match="encoding must be 'TEXT' or 'JSON', not 'XML'"):
        ray.LoggingConfig(encoding="XML")
    with pytest.raises(ValueError, match="log_level must be one of"):
        ray.LoggingConfig(log_level="LOUD")
    with pytest.raises(ValueError, match="a log record has no attribute 'nope'"):
        ray.LoggingConfig(additional_log_standard_attrs=["nope"])
    with pytest.raises(TypeError, match="logging_config must be a LoggingConfig, not dict"):
        ray.init(logging_config={})


def test_a_record_as_text_says_where_it_is_of() -> None:
    record = logging.makeLogRecord({"msg": "%s!", "args": ("hear",), "levelname": "INFO"})
    text = _logging._Text(ray.LoggingConfig()).format(record)
    assert " -- hear! job_id=" in text
    assert " task_id=" not in text  # this is the driver


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


def test_a_ref_says_that_nobody_recorded_where_it_was_made() -> None:
    assert ray.put(1).call_site() == ""


def test_a_ref_of_bytes_is_an_id() -> None:
    ref = ray.put(1)
    assert ray.ObjectRef.from_hex(ref.hex()) == ray.ObjectRef.from_binary(ref.binary()) == ref.hex()


def test_the_id_of_a_job_is_a_number_as_well() -> None:
    job = ray.get_runtime_context().job_id
    assert ray.JobID.from_int(job.int()) == job
    assert ray.JobID.from_int(1).hex() == f"{1:016x}"


def test_a_logging_config_is_made_of_its_fields() -> None:
    config = ray.LoggingConfig("JSON", "ERROR", ["name"])
    assert ray.LoggingConfig.from_dict({**config.to_dict(), "unknown": 1}) == config


def test_a_ref_of_nothing_and_one_of_chance_are_ids() -> None:
    assert ray.ObjectRef.nil().is_nil()
    assert ray.ObjectRef.from_random() != ray.ObjectRef.from_random()
    assert len(ray.ObjectRef.from_random().binary()) == ray.ObjectRef.size()


def test_a_variable_says_how_often_tasks_are_tried_again(monkeypatch) -> None:
    monkeypatch.setenv("RAY_TASK_MAX_RETRIES", "1")
    monkeypatch.delenv("HOPLO_TASK_MAX_RETRIES", raising=False)
    _init.take_variables()
    try:
        assert hoplo.remote(lambda: 1)._options.max_retries == 1
        assert hoplo.remote(max_retries=2)(lambda: 1)._options.max_retries == 2
        monkeypatch.setenv("HOPLO_TASK_MAX_RETRIES", "often")
        with pytest.raises(ValueError, match="HOPLO_TASK_MAX_RETRIES is 'often'"):
            hoplo.remote(lambda: 1)
    finally:
        os.environ.pop("HOPLO_TASK_MAX_RETRIES", None)


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


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("way", ["dropped", "terminated", "left", "killed"])
def test_an_actor_that_ends_in_order_runs_its_shutdown_method(way, is_async, tmp_path) -> None:
    notes = Notes(tmp_path / "notes")

    class A:
        def __ray_shutdown__(self) -> None:
            notes.add("shut")
            raise ValueError("nobody hears of it")

        def pid(self) -> int:
            return os.getpid()

        def leave(self) -> None:
            ray.actor.exit_actor()

        if is_async:

            async def wait(self) -> None:
                pass

    actor = ray.remote(A).remote()
    pid = ray.get(actor.pid.remote())
    if way == "terminated":
        actor.__ray_terminate__.remote()
    elif way == "left":
        actor.leave.remote()
    elif way == "killed":
        ray.kill(actor)
    else:
        del actor
    eventually(lambda: not alive(pid))
    assert notes.lines() == ([] if way == "killed" else ["shut"])


# ------------------------------------------------------------------------------- the doctor


def test_the_doctor_finds_each_use_by_its_line() -> None:
    source = (
        "import ray as r\n"
        "import ray.util.queue as q\n"
        "from ray import tune\n"
        "from ray.util import ActorPool as Pool\n"
        "r.init(include_dashboard=True, runtime_env={'conda': 'x', 'pip': []}, nope=1)\n"
        "@r.remote(tensor_transport='nccl')\n"
        "def f(): pass\n"
        "f.bind(1), f.options(num_gpus=1, blah=2), q.Queue(), q.Nope, Pool([])\n"
        "r.get(f.remote()), tune.run(f), r.ObjectRef.none()\n"
        "from ray.util.placement_group import PlacementGroup as G, nothing\n"
    )
    found = {(use.line, use.name, use.state) for use in doctor.uses_of(source)}
    there, without, missing = doctor.THERE, doctor.NO_EFFECT, doctor.NOT_THERE
    assert found == {
        (1, "ray", there),
        (2, "ray.util.queue", there),
        (3, "ray.tune", missing),
        (4, "ray.util.ActorPool", there),
        (5, "ray.init", there),
        (5, "init(include_dashboard=)", without),
        (5, "runtime_env['conda']", missing),
        (5, "init(nope=)", missing),
        (6, "ray.remote", there),
        (6, "remote(tensor_transport=)", missing),
        (8, ".bind()", missing),
        (8, "options(blah=)", missing),
        (8, "ray.util.queue.Queue", there),
        (8, "ray.util.queue.Nope", missing),
        (8, "ray.util.ActorPool", there),
        (9, "ray.get", there),
        (9, "ray.tune", missing),
        (9, "ray.ObjectRef.none", missing),
        (10, "ray.util.placement_group.PlacementGroup", there),
        (10, "ray.util.placement_group.nothing", missing),
    }


def test_the_doctor_looks_at_nothing_but_ray() -> None:
    source = "import numpy, raya\nfrom . import ray\nx = object()\nx.ray.data\nnumpy.ray\n"
    assert doctor.uses_of(source) == []


@pytest.mark.parametrize(
    "program", sorted((TREE / "python/tests/ray_programs").glob("*.py")), ids=lambda p: p.stem
)
def test_the_doctor_finds_that_our_programs_run(program) -> None:
    uses = doctor.uses_of(program.read_text())
    assert uses
    assert [use for use in uses if use.state == doctor.NOT_THERE] == []


def test_the_doctor_tells_programs_apart_by_its_status(tmp_path, capsys) -> None:
    good, bad, none = tmp_path / "good.py", tmp_path / "bad.py", tmp_path / "none.py"
    good.write_text("import ray\nray.init()\n")
    bad.write_text("import ray.data\nimport ray.data\n")
    none.write_text("print(1)\n")
    assert doctor.main([str(good), str(none)]) == 0
    said = capsys.readouterr().out
    assert "0 not there, 0 no effect, 2 there" in said
    assert f"run it: python -m hoplo.ray {good}" in said
    assert f"{none}: uses nothing of Ray" in said
    assert doctor.main([str(good), str(bad)]) == 1
    assert "not there  ray.data  (lines 1, 2): hoplo has no datasets" in capsys.readouterr().out
    bad.write_text("import ray (\n")
    assert doctor.main([str(bad)]) == 2
    assert doctor.main([str(tmp_path / "missing.py")]) == 2
    assert doctor.main([]) == 2
    assert "bad.py:1:" in capsys.readouterr().err


# ------------------------------------------------------------------------------- the table

PUBLIC = {
    "ray": """ActorClassID ActorID ClientBuilder FunctionID JobID Language LoggingConfig NodeID
        ObjectID ObjectRef ObjectRefGenerator DynamicObjectRefGenerator PlacementGroupID SCRIPT_MODE
        TaskID UniqueID WORKER_MODE WorkerID __version__ actor autoscaler available_resources cancel
        client cluster_resources cpp_function data get get_actor get_gpu_ids get_runtime_context
        init internal is_initialized java_actor_class java_function kill method nodes put remote
        shutdown timeline util wait widgets workflow air cluster_utils cloudpickle cross_language
        dag dashboard exceptions experimental job_config job_submission llm remote_function rllib
        runtime_context runtime_env serve train tune types""",
    "ray.actor": """ActorClass ActorClassInheritanceException ActorHandle ActorMethod ActorProxy
        exit_actor method""",
    "ray.experimental": """CommunicatorMetadata RDTManager TensorTransportManager
        TensorTransportMetadata deregister_nixl_memory get_local_object_locations
        get_object_locations register_nixl_memory register_nixl_memory_pool set_resource
        register_tensor_transport set_nixl_cuda_stream set_target_device_for_ref set_target_for_ref
        wait_tensor_freed channel internal_kv locations shuffle state tqdm_ray""",
    "ray.remote_function": "RemoteFunction",
    "ray.runtime_context": "RuntimeContext get_runtime_context",
    "ray.runtime_env": "RuntimeEnv RuntimeEnvConfig",
    "ray.runtime_env.runtime_env": "RuntimeEnv RuntimeEnvConfig",
    "ray.util": """ActorPool accelerators as_completed collective connect deregister_serializer
        disable_log_once_globally disconnect enable_periodic_logging get_current_placement_group
        get_node_instance_id get_node_ip_address get_placement_group inspect_serializability iter
        list_named_actors log_once map_unordered pdb placement_group placement_group_table
        ray_debugpy register_serializer remove_placement_group actor_group actor_pool annotations
        check_serialize client dask debug debugpy helpers horovod joblib lightgbm metrics
        multiprocessing queue rpdb scheduling_strategies serialization sgd spark state tpu tracing
        xgboost""",
    "ray.util.actor_group": "ActorGroup",
    "ray.util.actor_pool": "ActorPool",
    "ray.util.annotations": "Deprecated DeveloperAPI PublicAPI RayDeprecationWarning",
    "ray.util.check_serialize": "FailureTuple inspect_serializability",
    "ray.util.collective": """allgather allgather_multigpu allreduce allreduce_multigpu barrier
        broadcast broadcast_multigpu collective create_collective_group destroy_collective_group
        get_collective_group_size get_group_handle get_rank gloo_available init_collective_group
        is_group_initialized nccl_available recv recv_multigpu reduce reduce_multigpu reducescatter
        reducescatter_multigpu send send_multigpu synchronize types""",
    "ray.util.collective.types": "Backend ReduceOp",
    "ray.util.iter": """LocalIterator ParallelIterator ParallelIteratorWorker from_actors
        from_items from_iterators from_range""",
    "ray.util.multiprocessing": "JoinableQueue Pool TimeoutError pool",
    "ray.util.placement_group": """PlacementGroup get_current_placement_group get_placement_group
        placement_group placement_group_table remove_placement_group""",
    "ray.util.queue": "Empty Full Queue",
    "ray.util.scheduling_strategies": """DoesNotExist Exists In NodeAffinitySchedulingStrategy
        NodeLabelSchedulingStrategy NotIn PlacementGroupSchedulingStrategy""",
    "ray.util.serialization": "deregister_serializer register_serializer",
    "ray.util.state": """StateApiClient get_actor get_log get_node get_objects get_placement_group
        get_task get_worker list_actors list_cluster_events list_jobs list_logs list_nodes
        list_objects list_placement_groups list_runtime_envs list_tasks list_workers
        summarize_actors summarize_objects summarize_tasks""",
    "ray.util.iter_metrics": "MetricsContext SharedMetrics",
    "ray.util.state.common": """ActorState DEFAULT_LIMIT DEFAULT_LOG_LIMIT DEFAULT_RPC_TIMEOUT
        GetApiOptions GetLogOptions JobState ListApiOptions NodeState ObjectState
        PlacementGroupState StateResource StateSchema SummaryApiOptions SummaryResource TaskState
        WorkerState""",
    "ray.util.state.exception": "RayStateApiException",
}
"""Public names of Ray 2.60 where programs look for them."""


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_of_rays_is_there_or_says_what_to_use(module: str) -> None:
    ours = importlib.import_module(f"hoplo.{module}")
    for name in PUBLIC[module].split():
        if _absent.remedy(f"{module}.{name}") is not None:
            assert not hasattr(ours, name)
        elif name != "joblib":  # needs the library
            assert hasattr(ours, name), f"{module}.{name}"


def test_nothing_is_said_to_be_missing_that_is_there() -> None:
    for name in _absent.ABSENT:
        module, _, last = name.rpartition(".")
        if _absent.remedy(module) is None:
            assert not hasattr(importlib.import_module(f"hoplo.{module}"), last), name


def test_no_option_of_init_is_said_to_have_no_effect_that_has_one() -> None:
    assert not set(_init.WITHOUT_EFFECT) & set(hoplo._api._INIT_OPTIONS)


def test_public_functions_of_the_facade_have_docstrings() -> None:
    for path in FACADE.rglob("*.py"):
        tree = ast.parse(path.read_text())
        assert ast.get_docstring(tree), path
        for node in tree.body:
            named = isinstance(node, ast.FunctionDef | ast.ClassDef)
            overloaded = named and any(
                isinstance(d, ast.Name) and d.id == "overload" for d in node.decorator_list
            )
            if named and not node.name.startswith("_") and not overloaded:
                assert ast.get_docstring(node), f"{path}: {node.name}"
