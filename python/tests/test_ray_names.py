"""Names of Ray's that hoplo has not, and what is said of them: where they are imported or used."""

from __future__ import annotations

import ast
import importlib
import logging
import operator
import os
import platform
import re
import sys

import pytest
from conftest import TREE, command, eventually
from processes import Notes, alive

import hoplo
import hoplo.ray as ray
from hoplo import _logging
from hoplo.ray import _absent, _init

FACADE = TREE / "python" / "hoplo" / "ray"


@pytest.mark.parametrize("name", sorted(_absent.ABSENT))
def test_what_hoplo_has_not_says_so_with_its_name_and_a_remedy(name: str) -> None:
    module, _, last = name.rpartition(".")
    said = re.escape(f"{name} is not in hoplo; {_absent.ABSENT[name]}")
    with pytest.raises(ImportError, match=said):
        importlib.import_module(f"hoplo.{name}")
    around = sys.modules.get(f"hoplo.{module}")
    if around is not None and not around.__name__.startswith("hoplo.ray"):
        return  # a module of hoplo's own says nothing of Ray
    with pytest.raises(ImportError, match=said):
        exec(f"from hoplo.{module} import {last}")
    if _absent.remedy(module) is None:
        with pytest.raises(AttributeError, match=said):
            getattr(importlib.import_module(f"hoplo.{module}"), last)


REMEDIES = " ".join([*_absent.ABSENT.values(), *_absent.OPTIONS.values()])


def test_remedies_named_options_of_commands_that_there_are_not() -> None:
    commands = set(re.findall(r"`hoplo (\w+)([^`]*)`", REMEDIES))
    assert commands
    for name, rest in commands:
        told = command(name, "--help")
        for option in re.findall(r"--[a-z-]+", rest):
            assert option in told.stdout, (name, option)
    # An option stands with its command, where it is looked for.
    assert set(re.findall(r"--[a-z-]+", REMEDIES)) == set(
        re.findall(r"--[a-z-]+", " ".join(rest for _, rest in commands))
    )


def test_remedies_name_what_there_is() -> None:
    state = importlib.import_module("hoplo.ray.util.state")
    collective = importlib.import_module("hoplo.ray.util.collective")
    for name in set(re.findall(r"\b(?:ray|hoplo|util)(?:\.\w+)+", REMEDIES)):
        within = {"ray": ray, "hoplo": hoplo, "util": ray.util}[name.partition(".")[0]]
        operator.attrgetter(name.partition(".")[2])(within)
    for name in set(re.findall(r"(?<![.\w])(\w+)\(", REMEDIES)):
        assert any(hasattr(one, name) for one in (ray, state, collective)), name
    for name in set(re.findall(r"\w+\.py\b", REMEDIES)):
        assert (TREE / "examples" / name).exists(), name
    for name in set(re.findall(r"\bHOPLO_\w+", REMEDIES)):
        assert name in (TREE / "docs" / "guide" / "start.md").read_text()


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


@pytest.mark.near  # of a node that `init` starts
def test_a_task_asks_for_the_head_by_its_name() -> None:
    for name in ("node:__internal_head__", f"node:{ray.util.get_node_ip_address()}"):
        assert ray.cluster_resources()[name] == 1.0
        there = ray.remote(resources={name: 0.001})(lambda: ray.get_runtime_context().node_id)
        assert ray.get(there.remote(), timeout=50) == ray.get_runtime_context().node_id


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


def test_names_of_rays_make_no_handle_larger() -> None:
    @ray.remote
    class A:
        pass

    actor = A.remote()
    assert ray.get(actor.__ray_ready__.remote()) is True
    assert b"__ray_" not in hoplo._core._encode(actor)


def test_what_init_gives_did_not_name_versions() -> None:
    context = ray.init(ignore_reinit_error=True)
    assert context.ray_version == ray.__version__
    assert context.python_version == platform.python_version()


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


def test_a_logging_config_is_made_of_its_fields() -> None:
    config = ray.LoggingConfig("JSON", "ERROR", ["name"])
    assert ray.LoggingConfig.from_dict({**config.to_dict(), "unknown": 1}) == config


def test_a_variable_says_how_often_tasks_are_tried_again(monkeypatch) -> None:
    monkeypatch.setenv("RAY_TASK_MAX_RETRIES", "1")
    monkeypatch.delenv("HOPLO_TASK_MAX_RETRIES", raising=False)
    _init.take_variables()
    try:
        assert hoplo.remote(lambda: 1)._options.max_retries == 1
        assert hoplo.remote(max_retries=2)(lambda: 1)._options.max_retries == 2
        os.environ["HOPLO_TASK_MAX_RETRIES"] = "often"
        with pytest.raises(ValueError, match="HOPLO_TASK_MAX_RETRIES is 'often'"):
            hoplo.remote(lambda: 1)
    finally:
        os.environ.pop("HOPLO_TASK_MAX_RETRIES", None)


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
    "ray.util.actor_group": "ActorConfig ActorGroup ActorGroupMethod ActorWrapper",
    "ray.util.actor_pool": "ActorPool",
    "ray.util.annotations": "Deprecated DeveloperAPI PublicAPI RayDeprecationWarning",
    "ray.util.check_serialize": "FailureTuple inspect_serializability",
    "ray.util.collective": """allgather allgather_multigpu allreduce allreduce_multigpu barrier
        broadcast broadcast_multigpu collective create_collective_group destroy_collective_group
        get_collective_group_size get_group_handle get_rank gloo_available init_collective_group
        is_backend_available is_group_initialized nccl_available recv recv_multigpu reduce
        reduce_multigpu reducescatter reducescatter_multigpu send send_multigpu synchronize
        types""",
    "ray.util.collective.types": """AllGatherOptions AllReduceOptions Backend BarrierOptions
        BroadcastOptions RecvOptions ReduceOp ReduceOptions ReduceScatterOptions SendOptions
        cupy_available torch_available unset_timeout_ms""",
    "ray.util.iter": """LocalIterator ParallelIterator ParallelIteratorWorker from_actors
        from_items from_iterators from_range""",
    "ray.util.multiprocessing": "JoinableQueue Pool TimeoutError pool",
    "ray.util.multiprocessing.pool": "Pool PoolTaskError TimeoutError",
    "ray.util.placement_group": """PlacementGroup get_current_placement_group get_placement_group
        placement_group placement_group_table remove_placement_group""",
    "ray.util.queue": "Empty Full Queue",
    "ray.util.scheduling_strategies": """DoesNotExist Exists In NodeAffinitySchedulingStrategy
        NodeLabelSchedulingStrategy NotIn PlacementGroupSchedulingStrategy""",
    "ray.util.serialization": """StandaloneSerializationContext deregister_serializer
        register_serializer""",
    "ray.util.dask": """ProgressBarCallback RayDaskCallback dataframe_optimize disable_dask_on_ray
        enable_dask_on_ray local_ray_callbacks ray_dask_get ray_dask_get_sync ray_dask_persist
        unpack_ray_callbacks""",
    "ray.util.state": """StateApiClient get_actor get_log get_node get_objects get_placement_group
        get_task get_worker list_actors list_cluster_events list_jobs list_logs list_nodes
        list_objects list_placement_groups list_runtime_envs list_tasks list_workers
        summarize_actors summarize_objects summarize_tasks""",
    "ray.util.iter_metrics": "MetricsContext SharedMetrics",
    "ray.util.state.api": "StateApiClient get_actor list_actors summarize_tasks",
    "ray.util.state.common": """AVAILABLE_STATES ActorState ActorSummaries ActorSummaryPerClass
        ClusterEventState DEFAULT_LIMIT DEFAULT_LOG_LIMIT DEFAULT_RPC_TIMEOUT GetApiOptions
        GetLogOptions Humanify JobState Link ListApiOptions ListApiResponse NestedTaskSummary
        NodeState ObjectState ObjectSummaries ObjectSummaryPerKey PlacementGroupState PredicateType
        RAY_MAX_LIMIT_FROM_API_SERVER RAY_MAX_LIMIT_FROM_DATA_SOURCE RuntimeEnvState StateResource
        StateSchema StateSummary SummaryApiOptions SummaryApiResponse SummaryResource
        SupportedFilterType TaskState TaskSummaries TaskSummaryPerFuncOrClassName WorkerState
        dict_to_state filter_fields resource_to_schema state_column""",
    "ray.util.state.exception": "RayStateApiException ServerUnavailable",
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
