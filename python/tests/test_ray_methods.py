"""Methods and arguments of Ray's classes, as programs written for Ray call them."""

from __future__ import annotations

import copy
import pickle

import pytest

import hoplo
import hoplo.ray as ray
from hoplo.ray.exceptions import RayError, RayTaskError, UnserializableException
from hoplo.ray.job_config import JobConfig
from hoplo.ray.runtime_env import RuntimeEnv, RuntimeEnvConfig
from hoplo.ray.util import accelerators
from hoplo.ray.util.iter import LocalIterator
from hoplo.ray.util.iter_metrics import MetricsContext, SharedMetrics
from hoplo.ray.util.timer import Timer
from hoplo.util.placement_group import VALID_PLACEMENT_GROUP_STRATEGIES, placement_group

# ------------------------------------------------------------------------ environments and jobs


def test_an_environment_says_what_it_has(tmp_path) -> None:
    (tmp_path / "tools.py").write_text("")
    env = RuntimeEnv(
        env_vars={"LEVEL": "debug"},
        working_dir=str(tmp_path),
        py_modules=[str(tmp_path / "tools.py")],
        pip=["six"],
    )
    assert env.env_vars() == {"LEVEL": "debug"}
    assert env.has_working_dir()
    assert env.working_dir() == env.working_dir_uri() == env["working_dir"] == str(tmp_path)
    assert env.py_modules() == env.py_modules_uris() == [str(tmp_path / "tools.py")]
    assert env.has_pip()
    assert env.pip_config() == {"packages": ["six"], "pip_check": False}
    assert env.pip_uri() == RuntimeEnv(pip={"packages": ["six"]}).pip_uri() != ""
    assert env.pip_uri() != RuntimeEnv(pip=["numpy"]).pip_uri()
    assert not env.has_uv()
    assert env.uv_config() == {}
    assert env.uv_uri() is env.py_executable() is None
    assert RuntimeEnv(uv=["six"]).has_uv()
    assert RuntimeEnv(uv=["six"]).uv_uri().startswith("uv://")
    assert RuntimeEnv(py_executable="python3 -X dev").py_executable() == "python3 -X dev"


def test_an_environment_has_nothing_of_what_hoplo_has_not() -> None:
    env = RuntimeEnv()
    assert not env.has_conda()
    assert not env.has_py_container()
    for name in (
        "conda_uri", "conda_config", "conda_env_name", "image_uri", "nsight", "rocprof_sys",
        "virtualenv_name", "py_container_image", "py_container_run_options",
        "py_container_worker_path", "working_dir_uri", "pip_uri", "uv_uri",
    ):  # fmt: skip
        assert getattr(env, name)() is None
    assert env.plugins() == env.plugin_uris() == env.java_jars() == env.py_modules() == []
    assert {env.get_extension(name) for name in env.extensions_fields} == {None}
    assert not env.known_fields & env.extensions_fields
    with pytest.raises(ValueError, match=r"one of _inject_current_ray, .*, not 'pip'"):
        env.get_extension("pip")
    assert env.working_dir() == ""
    assert env == env.to_dict() == env.env_vars() == {}


def test_what_an_environment_is_given_later_is_checked_like_what_it_is_made_of() -> None:
    env = RuntimeEnv(env_vars={"A": "1"})
    env["pip"] = ["six"]
    env.set("env_vars", {"B": "2"})
    assert env == RuntimeEnv(env_vars={"B": "2"}, pip=["six"])
    with pytest.raises(TypeError, match="pip"):
        env["pip"] = 3
    with pytest.raises(ValueError, match="conda"):
        env.set("conda", "base")
    assert env.has_pip()


def test_an_environment_is_sent_as_json_and_as_a_pickle(tmp_path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    config = RuntimeEnvConfig(setup_timeout_seconds=60)
    env = RuntimeEnv(pip=["six"], config=config, working_dir=str(folder))
    folder.rmdir()
    for same in (
        RuntimeEnv.deserialize(env.serialize()),
        pickle.loads(pickle.dumps(env)),
        copy.deepcopy(env),
    ):
        assert same == env
        assert type(same) is RuntimeEnv
    plain = env.to_dict()
    assert type(plain) is dict
    plain["pip"]["packages"].append("numpy")
    assert env.pip_config()["packages"] == ["six"]
    with pytest.raises(ValueError, match="Expecting value"):
        RuntimeEnv.deserialize("no JSON")


def test_a_task_reads_its_environment() -> None:
    @ray.remote(runtime_env=RuntimeEnv(env_vars={"LEVEL": "debug"}))
    def level() -> str:
        text = ray.get_runtime_context().get_runtime_env_string()
        return RuntimeEnv.deserialize(text).env_vars()["LEVEL"]

    assert ray.get(level.remote()) == "debug"


def test_how_long_an_environment_may_take_is_read_from_a_dict() -> None:
    parse = RuntimeEnvConfig.parse_and_validate_runtime_env_config
    config = parse({"setup_timeout_seconds": 5, "other": 1})
    assert config.to_dict() == {
        "setup_timeout_seconds": 5,
        "eager_install": True,
        "log_files": [],
    }
    assert RuntimeEnvConfig.default_config()["setup_timeout_seconds"] == 600


def test_a_job_is_described_step_by_step() -> None:
    job = JobConfig(metadata={"a": "1"}, default_actor_lifetime="non_detached")
    job.set_metadata("b", "2")
    job.set_ray_namespace("shop")
    job.set_runtime_env({"env_vars": {"A": "1"}}, validate=True)
    job.ensure_logging_config({"encoding": "JSON"})
    job.ensure_logging_config(ray.LoggingConfig(log_level="WARNING"))
    assert (job.metadata, job.ray_namespace) == ({"a": "1", "b": "2"}, "shop")
    assert job.runtime_env == RuntimeEnv(env_vars={"A": "1"})
    assert job.py_logging_config == ray.LoggingConfig("JSON")
    read = JobConfig.from_json({"metadata": {"a": "1"}, "runtime_env": {"pip": ["six"]}})
    assert (read.metadata, read.runtime_env) == ({"a": "1"}, {"pip": ["six"]})


def test_a_job_refuses_what_hoplo_has_not() -> None:
    with pytest.raises(ValueError, match="give each of these actors lifetime='detached'"):
        JobConfig(default_actor_lifetime="detached")
    with pytest.raises(ValueError, match="must be 'non_detached', not 'long'"):
        JobConfig().set_default_actor_lifetime("long")
    with pytest.raises(TypeError, match="code_search_path must be a list"):
        JobConfig(code_search_path="/here")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="logging_config must be"):
        JobConfig().ensure_logging_config("JSON")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="conda"):
        JobConfig().set_runtime_env({"conda": "base"}, validate=True)


def test_the_logging_of_a_job_config_is_that_of_init() -> None:
    from hoplo.ray import _init

    job = JobConfig(ray_namespace="shop")
    job.set_py_logging_config(ray.LoggingConfig("JSON"))
    options: dict[str, object] = {"job_config": job}
    _init._take_job_config(options)
    assert options == {"namespace": "shop", "logging_config": ray.LoggingConfig("JSON")}


# ------------------------------------------------------------------------------- ids and errors


@ray.remote
def fail() -> None:
    raise KeyError("lost")


@ray.remote(num_cpus=0)
class Counter:
    def ids(self) -> tuple[ray.TaskID, ray.ActorID]:
        context = ray.get_runtime_context()
        return context.task_id, context.actor_id


def test_ids_say_of_which_job_they_are() -> None:
    job = ray.get_runtime_context().job_id
    counter = Counter.remote()
    task_id, actor_id = ray.get(counter.ids.remote())
    assert task_id.job_id() == actor_id.job_id == counter._actor_id.job_id == job
    assert ray.put(1).task_id().job_id() == job
    assert ray.TaskID.nil().job_id().is_nil()
    assert ray.ActorID.nil().job_id.is_nil()


def test_what_no_id_knows_says_where_it_is_known() -> None:
    from hoplo.util import state

    counter = Counter.remote()
    task_id, actor_id = ray.get(counter.ids.remote())
    with pytest.raises(NotImplementedError, match=r"util\.state\.get_task\(id\)\.actor_id knows"):
        task_id.actor_id()
    assert state.get_task(task_id.hex()).actor_id == actor_id.hex()
    for make in (ray.ActorID.of, ray.TaskID.for_driver_task, ray.TaskID.for_normal_task):
        with pytest.raises(NotImplementedError, match="ids are made where tasks"):
            make(task_id.job_id(), task_id, 1)


def test_an_error_is_kept_as_bytes() -> None:
    with pytest.raises(RayTaskError) as caught:
        ray.get(fail.remote())
    same = RayError.from_bytes(caught.value.to_bytes())
    assert isinstance(same, KeyError)
    assert isinstance(same, RayTaskError)
    assert same.function_name == "fail"
    assert "lost" in str(same)


class Unreadable(RayError):
    def __reduce__(self) -> object:
        return int, ("no number",)


def test_an_error_that_cannot_be_read_keeps_its_text() -> None:
    same = RayError.from_bytes(Unreadable("what went wrong").to_bytes())
    assert isinstance(same, UnserializableException)
    assert "what went wrong" in str(same)


def test_all_errors_are_in_one_list() -> None:
    kinds = ray.exceptions.RAY_EXCEPTION_TYPES
    assert {RayError, RayTaskError, ray.exceptions.OutOfMemoryError} < set(kinds)
    assert all(issubclass(kind, RayError) for kind in kinds)


# ------------------------------------------------------------------------------- util


def test_steps_of_an_iterator_count() -> None:
    def count(item: int) -> int:
        metrics = LocalIterator.get_metrics()
        metrics.counters["items"] += 1
        metrics.info["last"] = item
        with metrics.timers["step"]:
            return item * 2

    it = LocalIterator(lambda: range(5), "five").for_each(count)
    more = it.batch(2).flatten().for_each(lambda item: LocalIterator.get_metrics())
    (metrics, *_) = more.take(5)
    assert metrics.counters == {"items": 5}
    assert metrics.info == {"last": 4}
    assert metrics.timers["step"].count == 5
    assert metrics is it.shared_metrics.get()
    with pytest.raises(ValueError, match="for functions that the steps"):
        LocalIterator.get_metrics()


def test_iterators_of_a_union_count_together() -> None:
    def count(item: int) -> int:
        metrics = LocalIterator.get_metrics()
        metrics.counters["items"] += 1
        return metrics.counters["items"]

    one, two = (LocalIterator(lambda: range(3), "three").for_each(count) for _ in range(2))
    both = one.union(two).for_each(lambda seen: (seen, LocalIterator.get_metrics()))
    read = both.take(6)
    assert [seen for seen, _ in read] == [1, 2, 3, 4, 5, 6]
    assert read[0][1] is one.shared_metrics.get() is two.shared_metrics.get()


def test_a_step_knows_which_actor_made_the_item() -> None:
    it = ray.util.iter.from_range(4, num_shards=2).gather_sync()
    pairs = it.for_each(lambda item: (LocalIterator.get_metrics().current_actor, item)).take(4)
    assert [item for _, item in pairs] == [0, 2, 1, 3]
    assert len({actor._actor_id for actor, _ in pairs}) == 2


def test_metrics_are_saved_and_taken_back() -> None:
    metrics, other = MetricsContext(), MetricsContext()
    metrics.counters["a"] += 3
    metrics.info["b"] = 1
    other.counters["c"] += 1
    other.restore(pickle.loads(pickle.dumps(metrics.save())))
    assert (other.counters, other.info) == ({"a": 3}, {"b": 1})
    parent = SharedMetrics()
    SharedMetrics(metrics, [parent])
    assert parent.get() is metrics


def test_a_timer_keeps_its_last_times() -> None:
    timer = Timer(window_size=2)
    assert timer.mean == timer.mean_throughput == timer.mean_units_processed == 0.0
    for seconds in (100.0, 1.0, 3.0):
        timer.push(seconds)
        timer.push_units_processed(8)
    assert (timer.count, timer.mean, timer.mean_throughput) == (3, 2.0, 4.0)
    assert timer.has_units_processed()
    assert timer.mean_units_processed == 8.0
    with pytest.raises(RuntimeError, match="runs already"), timer, timer:
        pass


def test_accelerators_have_the_names_of_rays() -> None:
    from hoplo.ray.util.accelerators.accelerators import AMD_INSTINCT_MI300x

    assert AMD_INSTINCT_MI300x is accelerators.AMD_INSTINCT_MI300x
    assert accelerators.GOOGLE_TPU_V5P == "TPU-V5P"
    assert accelerators.NVIDIA_H200 == "H200"
    with pytest.raises(AttributeError, match="name TPUs as resources"):
        accelerators.tpu


def test_a_placement_group_takes_the_newest_arguments() -> None:
    for given in (
        {"strategy": None},
        {"topology_strategy": {"ray.io/node-id": "STRICT_PACK"}},
        {"bundle_label_selector": [{"zone": "!far"}]},
    ):
        group = ray.util.placement_group([{"CPU": 0.1}], **given)
        assert group.wait(20)
        table = ray.util.placement_group_table(group)
        assert table["strategy"] == ("STRICT_PACK" if "topology_strategy" in given else "PACK")
        ray.util.remove_placement_group(group)
    with pytest.raises(ValueError, match="not both"):
        placement_group([{"CPU": 1}], "PACK", topology_strategy={"ray.io/node-id": "PACK"})
    with pytest.raises(ValueError, match=r"not by 'ray\.io/gpu-domain'.*bundle_label_selector"):
        placement_group([{"CPU": 1}], topology_strategy={"ray.io/gpu-domain": "PACK"})
    with pytest.raises(ValueError, match="strategy must be one of"):
        placement_group([{"CPU": 1}], topology_strategy={"ray.io/node-id": "FAR"})
    assert "SPREAD" in VALID_PLACEMENT_GROUP_STRATEGIES


def test_what_was_said_once_is_said_once_more() -> None:
    from hoplo.ray.util.debug import log_once, reset_log_once

    assert [log_once("k"), log_once("k")] == [True, False]
    reset_log_once("k")
    assert log_once("k")
    reset_log_once()
    assert log_once("k")
    assert hoplo.ray.actor.ActorClassInheritanceException
