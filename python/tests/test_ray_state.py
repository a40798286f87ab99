"""`ray.util.state.common` and `StateApiClient`: what listings are asked with and made of."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

import pytest

import hoplo.ray as ray
from hoplo.ray.util import state
from hoplo.ray.util.state import StateApiClient
from hoplo.ray.util.state.common import (
    AVAILABLE_STATES,
    ActorState,
    ActorSummaries,
    GetApiOptions,
    Humanify,
    JobState,
    ListApiOptions,
    NodeState,
    ObjectState,
    ObjectSummaries,
    StateResource,
    StateSchema,
    SummaryApiOptions,
    SummaryResource,
    TaskState,
    TaskSummaries,
    WorkerState,
    dict_to_state,
    filter_fields,
    resource_to_schema,
    state_column,
)
from hoplo.ray.util.state.exception import RayStateApiException, ServerUnavailable


@ray.remote
def double(x: int) -> int:
    return 2 * x


@ray.remote(num_cpus=0)
class Counter:
    def ready(self) -> bool:
        return True


def test_rows_of_nodes_lacked_the_label_that_those_of_nodes_have() -> None:
    named = {row["NodeID"]: row["Labels"]["ray.io/node-id"] for row in ray.nodes()}
    rows = state.list_nodes()
    assert {row.node_id for row in rows} == set(named)
    client = StateApiClient()
    assert client.list(StateResource.NODES) == rows
    for row in rows:
        assert row.labels is not None
        assert row.labels["ray.io/node-id"] == named[row.node_id] == row.node_id
        assert state.get_node(row.node_id) == client.get(StateResource.NODES, row.node_id) == row


def test_rows_lacked_rays_names_of_what_hoplo_knows_under_others() -> None:
    counter = Counter.remote()
    ray.get([double.remote(1), counter.ready.remote()])
    [called] = state.list_tasks(filters=[("func_or_class_name", "=", "Counter.ready")])
    assert called.func_or_class_name == called["func_or_class_name"] == called.name
    others = state.list_tasks(filters=[("func_or_class_name", "!=", "Counter.ready")])
    assert {row.func_or_class_name for row in others} == {row.name for row in others}
    address_of = {node.node_id: node.node_ip for node in state.list_nodes()}
    ref = ray.put(b"x" * 1_000_000)
    [stored] = state.get_objects(ref.hex())
    workers = state.list_workers(filters=[("ip", "=", stored.ip)])
    for row in [stored, *workers]:
        assert row.ip == address_of[row.node_id]


# ------------------------------------------------------------------------------- the client


def test_a_client_lists_what_its_options_choose() -> None:
    ray.get([double.options(name="chosen").remote(x) for x in range(3)])
    client = StateApiClient()
    options = ListApiOptions(filters=[("name", "=", "chosen"), ("state", "=", "FINISHED")])
    rows = client.list(StateResource.TASKS, options=options, raise_on_missing_output=True)
    assert [row.name for row in rows] == ["chosen"] * 3
    assert all(isinstance(row, TaskState) for row in rows)
    options.limit = 2
    assert len(client.list(StateResource.TASKS, options, True)) == 2
    assert {row.state for row in client.list(StateResource.NODES)} == {"ALIVE"}
    one = client.get(StateResource.TASKS, rows[0].task_id, GetApiOptions(timeout=20))
    assert one == rows[0]
    with pytest.raises(RayStateApiException, match=r"tasks have no 'nam': did you mean 'name'"):
        client.list(StateResource.TASKS, ListApiOptions(filters=[("nam", "=", 1)]))


def test_a_client_finds_each_kind_of_thing_by_its_id() -> None:
    counter = Counter.remote()
    ray.get(counter.ready.remote())
    group = ray.util.placement_group([{"CPU": 1}])
    ref = ray.put(bytes(1_000_000))
    context, client = ray.get_runtime_context(), StateApiClient()
    for resource, id in {
        StateResource.ACTORS: counter._actor_id,
        StateResource.PLACEMENT_GROUPS: group.id,
        StateResource.NODES: context.get_node_id(),
        StateResource.WORKERS: context.get_worker_id(),
        StateResource.JOBS: context.get_job_id(),
    }.items():
        row = client.get(resource, id, GetApiOptions())
        assert isinstance(row, resource_to_schema(resource))
        assert id in row.values()
    assert [row.object_id for row in client.get(StateResource.OBJECTS, ref.hex())] == [ref.hex()]
    assert client.get(StateResource.ACTORS, "ab" * 16) is None
    ray.util.remove_placement_group(group)


def test_a_client_counts_as_the_functions_do_and_what_filters_choose() -> None:
    counter = Counter.remote()
    ray.get([counter.ready.remote(), double.options(name="counted").remote(1)])
    ref, client = ray.put(bytes(2_000_000)), StateApiClient()
    tasks = client.summary(SummaryResource.TASKS, options=SummaryApiOptions())
    assert tasks == state.summarize_tasks()
    chosen = SummaryApiOptions(filters=[("name", "=", "counted")], summary_by="func_name")
    counted = client.summary(SummaryResource.TASKS, options=chosen, raise_on_missing_output=True)
    assert counted["cluster"]["total_tasks"] == 1
    assert list(counted["cluster"]["summary"]) == ["counted"]
    alive = SummaryApiOptions(filters=[("state", "=", "ALIVE"), ("class_name", "=", "Counter")])
    actors = client.summary(SummaryResource.ACTORS, options=alive)["cluster"]
    assert set(actors["summary"]["Counter"]["state_counts"]) == {"ALIVE"}
    assert client.summary(SummaryResource.OBJECTS)["cluster"]["total_size_mb"] >= 2
    with pytest.raises(NotImplementedError, match="tasks are summed by func_name, and not by"):
        client.summary(SummaryResource.TASKS, options=SummaryApiOptions(summary_by="lineage"))
    del ref


@pytest.mark.parametrize(
    ("resource", "remedy"),
    [(StateResource.RUNTIME_ENVS, "what is being built"), (StateResource.CLUSTER_EVENTS, "events")],
)
def test_a_client_says_what_to_use_for_what_hoplo_does_not_list(resource, remedy) -> None:
    said = rf"ray\.util\.state\.list_{resource.value} is not in hoplo; .*{remedy}"
    with pytest.raises(RayStateApiException, match=said):
        StateApiClient().list(resource, ListApiOptions())
    with pytest.raises(RayStateApiException, match=said):
        StateApiClient().get(resource, "1")


def test_a_client_of_another_cluster_is_refused_where_there_is_a_session() -> None:
    with pytest.raises(RayStateApiException, match="this process has a session"):
        StateApiClient("127.0.0.1:1").list(StateResource.NODES)
    assert issubclass(ServerUnavailable, ConnectionError), "what joining a cluster raises"


@pytest.mark.parametrize("options", [ListApiOptions, SummaryApiOptions])
def test_options_refuse_filters_that_are_none(options) -> None:
    for wrong in [("state", "<", 3)], [("state", "=")]:
        with pytest.raises(ValueError, match="a filter is"):
            options(filters=wrong)
    assert options(filters=None).filters == []


def test_filters_of_which_no_row_passes_both_conflict() -> None:
    for others, conflict in {
        (): False,
        ("=", "RUNNING"): False,
        ("!=", "FAILED"): False,
        ("=", "FAILED"): True,
    }.items():
        filters = [("state", "=", "RUNNING"), ("name", "=", "f")]
        filters += [("state", *others)] if others else []
        assert ListApiOptions(filters=filters).has_conflicting_filters() is conflict


# ------------------------------------------------------------------------------- rows


def test_each_kind_of_row_tells_its_columns() -> None:
    for kind in AVAILABLE_STATES:
        names = kind.list_columns()
        assert kind.columns() == kind.base_columns() == kind.detail_columns() == set(names)
        assert kind.filterable_columns() == set(names)
    assert "job_id" in ActorState.columns() & WorkerState.columns()
    assert {resource_to_schema(r) for r in list(StateResource)[:7]} == set(AVAILABLE_STATES)


def test_a_schema_of_the_programs_own_says_which_columns_are_details() -> None:
    @dataclass
    class Disk(StateSchema):
        path: str
        used: int = state_column(filterable=False, format_fn=Humanify.memory)
        inodes: int | None = state_column(filterable=True, detail=True)

    assert Disk.list_columns() == ["path", "used", "inodes"]
    assert Disk.base_columns() == {"path", "used"}
    assert Disk.filterable_columns() == {"path", "inodes"}
    disk = Disk("/", 5 << 30)
    assert disk["inodes"] is None
    assert Disk.humanify(disk.asdict()) == {"path": "/", "used": "5.000 GiB", "inodes": None}
    assert filter_fields({**disk, "more": 1}, Disk, detail=False) == {"path": "/", "used": 5 << 30}
    assert filter_fields({"path": "/"}, Disk, True) == {"path": "/", "used": None, "inodes": None}


def test_rows_are_shown_to_people_with_times_and_sizes_as_text() -> None:
    task = TaskState("ab" * 16, 0, "f", "FINISHED", "NORMAL_TASK", start_time_ms=1_500)
    shown = TaskState.humanify(task)
    assert shown["start_time_ms"] == str(datetime.datetime.fromtimestamp(1.5))
    assert shown["end_time_ms"] is None
    assert shown["name"] == "f"
    assert task.start_time_ms == 1_500, "the row stays as it is"
    assert ObjectState.humanify({"object_size": 1536})["object_size"] == "1.500 KiB"
    assert NodeState.humanify({"resources_total": {"CPU": 2.0, "memory": 2**31}}) == {
        "resources_total": {"CPU": 2.0, "memory": "2.000 GiB"}
    }
    sizes = {0: "0.000 B", 1023: "1023.000 B", 1 << 20: "1.000 MiB", 1 << 41: "2048.000 GiB"}
    assert {x: Humanify.memory(x) for x in sizes} == sizes


def test_a_dict_is_a_row_if_its_fields_are() -> None:
    row = JobState(job_id="7", type="DRIVER", status="RUNNING")
    assert dict_to_state(dict(row), StateResource.JOBS) == row
    with pytest.raises(RayStateApiException, match=r"not those of jobs: .*'nope'"):
        dict_to_state({**row, "nope": 1}, StateResource.JOBS)
    with pytest.raises(RayStateApiException, match="list_runtime_envs is not in hoplo"):
        dict_to_state({}, StateResource.RUNTIME_ENVS)


# ------------------------------------------------------------------------------- sums


def test_sums_are_made_of_rows() -> None:
    kinds = ["NORMAL_TASK", "ACTOR_TASK", "ACTOR_CREATION_TASK", "NORMAL_TASK"]
    tasks = [
        TaskState(f"{at:032x}", 0, f"f{at % 2}", "FINISHED" if at else "FAILED", kind)
        for at, kind in enumerate(kinds)
    ]
    of_tasks = TaskSummaries.to_summary_by_func_name(tasks=tasks)
    assert of_tasks.summary["f0"].state_counts == {"FAILED": 1, "FINISHED": 1}
    assert (of_tasks.total_tasks, of_tasks.total_actor_tasks) == (2, 1)
    assert of_tasks.total_actor_scheduled == 1
    with pytest.raises(NotImplementedError, match="parent_task_id"):
        TaskSummaries.to_summary_by_lineage(tasks=tasks, actors=[])
    actors = [{"class_name": "A", "state": state} for state in ("ALIVE", "DEAD", "DEAD")]
    of_actors = ActorSummaries.to_summary(actors=actors)
    assert (of_actors.total_actors, of_actors.summary["A"].class_name) == (3, "A")
    assert of_actors.summary["A"].state_counts == {"ALIVE": 1, "DEAD": 2}
    owners = [f"{owner:02x}" * 20 for owner in (1, 1, 2)]
    objects = [
        ObjectState(id, object_size=size, state="stored", node_id=node)
        for id, size, node in zip(owners, (1_000_000, None, 500_000), ("a", "b", "b"))
    ]
    of_objects = ObjectSummaries.to_summary(objects=objects)
    (of_all,) = of_objects.summary.values()
    assert (of_all.total_objects, of_all.total_size_mb) == (3, 1.5)
    assert (of_all.total_num_workers, of_all.total_num_nodes) == (2, 2)
    assert of_all.state_counts == {"stored": 3}
