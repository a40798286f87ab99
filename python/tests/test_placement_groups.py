"""Placement groups: reserved together, used by tasks and actors, given back."""

from __future__ import annotations

import os
import pickle

import pytest
from conftest import command, eventually, ready
from processes import listed

import hoplo
from hoplo import _core
from hoplo.exceptions import (
    ActorDiedError,
    ActorPlacementGroupRemoved,
    GetTimeoutError,
    HoploError,
    TaskPlacementGroupRemoved,
    WorkerCrashedError,
)
from hoplo.util.placement_group import (
    PlacementGroup,
    get_current_placement_group,
    get_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from hoplo.util.scheduling_strategies import PlacementGroupSchedulingStrategy

NODE = {"num_cpus": 4, "num_gpus": 2, "resources": {"disk": 2}}
CPUS = NODE["num_cpus"]


@pytest.fixture(autouse=True)
def nothing_stays_reserved():
    yield
    for row in listed("placement_groups"):
        if row["state"] != "REMOVED":
            remove_placement_group(get_by_id(row["placement_group_id"]))
    eventually(lambda: hoplo.available_resources().get("CPU") == CPUS, what="all CPUs are free")
    eventually(lambda: hoplo.available_resources().get("GPU") == 2, what="all GPUs are free")


def get_by_id(group):
    from hoplo.util.placement_group import PlacementGroupID

    return PlacementGroup(PlacementGroupID(group))


def inside(group, index=-1, capture=None):
    return PlacementGroupSchedulingStrategy(group, index, capture)


def state(group):
    return placement_group_table(group)["state"]


@hoplo.remote
def where():
    return hoplo.get_runtime_context().get_placement_group_id()


@hoplo.remote
def parent(**options):
    return hoplo.get(where.options(**options).remote())


@hoplo.remote
def assigned():
    return hoplo.get_runtime_context().get_assigned_resources(), hoplo.get_gpu_ids()


@hoplo.remote
def passes(gate):
    gate.wait()
    return 1


@hoplo.remote
class Actor:
    def pid(self):
        return os.getpid()

    def where(self):
        return hoplo.get_runtime_context().get_placement_group_id()

    def child(self):
        return hoplo.get(where.remote())

    def gpus(self):
        return hoplo.get_gpu_ids()


def test_a_bundle_may_name_what_it_does_not_need():
    group = placement_group([{"CPU": 1, "GPU": 0, "memory": 0}])
    assert group.bundle_specs == [{"CPU": 1.0}]
    assert group.wait(20)
    remove_placement_group(group)


# ------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"bundles": []}, ValueError, "must not be empty"),
        ({"bundles": "CPU"}, TypeError, "a list of dicts"),
        ({"bundles": [{}]}, ValueError, r"bundles\[0\] needs nothing"),
        (
            {"bundles": [{"CPU": 1}, {"CPU": 0}]},
            ValueError,
            r"bundles\[1\] needs nothing",
        ),
        ({"bundles": [{"CPU": -1}]}, ValueError, "0 or more"),
        ({"bundles": [{"GPU": 1.5}]}, ValueError, "whole"),
        ({"bundles": [{1: 1}]}, TypeError, "names of resources"),
        ({"bundles": [{"CPU": 1}], "strategy": "NEAR"}, ValueError, "STRICT_PACK"),
        ({"bundles": [{"CPU": 1}], "lifetime": "long"}, ValueError, "detached"),
        (
            {"bundles": [{"CPU": 1}], "bundle_label_selector": []},
            ValueError,
            "one dict for each of the 1 bundles",
        ),
    ],
)
def test_what_nobody_can_want_is_refused_at_once(arguments, error, says):
    with pytest.raises(error, match=says):
        placement_group(**arguments)
    assert not [row for row in listed("placement_groups") if row["state"] != "REMOVED"]


def test_a_task_that_fits_no_bundle_is_refused_where_it_is_made():
    group = placement_group([{"CPU": 1}, {"CPU": 2}])
    with pytest.raises(ValueError, match="does not fit into bundle 0"):
        where.options(num_cpus=2, scheduling_strategy=inside(group, 0))
    with pytest.raises(ValueError, match="does not fit into any bundle"):
        where.options(num_gpus=1, scheduling_strategy=inside(group))
    with pytest.raises(ValueError, match="the bundles 0 to 1"):
        where.options(scheduling_strategy=inside(group, 2))
    with pytest.raises(ValueError, match="-1 or more"):
        inside(group, -2)
    with pytest.raises(TypeError, match="must be a PlacementGroup"):
        inside("mine")
    with pytest.raises(ValueError, match="leave one out"):
        where.options(placement_group=group, scheduling_strategy="SPREAD")
    with pytest.raises(ValueError, match="is of a placement group"):
        where.options(resources={f"CPU_group_{group.id.hex()}": 1})


def test_a_name_is_that_of_one_group():
    group = placement_group([{"CPU": 1}], name="mine")
    with pytest.raises(ValueError, match=r"mine.*is taken"):
        placement_group([{"CPU": 1}], name="mine")
    assert get_placement_group("mine") == group
    assert get_placement_group("mine").bundle_specs == [{"CPU": 1}]
    remove_placement_group(group)
    with pytest.raises(ValueError, match="there is no placement group 'mine'"):
        get_placement_group("mine")
    assert placement_group([{"CPU": 1}], name="mine").wait(10)


def test_without_the_word_of_a_head_no_group_is_said_to_be_missing(monkeypatch):
    """As long as nobody answers for the head, who looks for a group waits, and then hears that."""
    group = placement_group([{"CPU": 1}], name="mine")
    query, silences = _core.query, ["the head (10.0.0.1:6379) has not answered for 8 s"]

    def silent_once(kind, arg=None, missing=None):
        if silences and kind == "placement_groups":
            missing.append(silences.pop())
            return "[]"
        return query(kind, arg, missing)

    monkeypatch.setattr(_core, "query", silent_once)
    assert get_placement_group("mine") == group
    monkeypatch.setattr(_core, "NAME_PATIENCE", 0.0)
    for look in (
        lambda: get_placement_group("mine"),
        lambda: placement_group_table(group),
        placement_group_table,
    ):
        silences.append("the head (10.0.0.1:6379) has not answered for 15 s")
        with pytest.raises(HoploError, match="has not answered for 15 s") as raised:
            look()
        assert type(raised.value) is HoploError


# ------------------------------------------------------------------------------------ what it is


@pytest.mark.near
@pytest.mark.parametrize("strategy", ["PACK", "SPREAD", "STRICT_PACK"])
def test_a_group_is_reserved_at_once_and_given_back(strategy):
    group = placement_group([{"CPU": 1}, {"CPU": 2, "disk": 1}], strategy=strategy)
    assert hoplo.get(group.ready(), timeout=20) == group
    assert group.wait(10)
    assert hoplo.available_resources()["CPU"] == CPUS - 3
    assert hoplo.cluster_resources()["CPU"] == CPUS
    names = {*hoplo.available_resources(), *hoplo.cluster_resources()}
    assert not [name for name in names if "group" in name]
    table = placement_group_table(group)
    assert (table["state"], table["strategy"]) == ("CREATED", strategy)
    assert table["bundles"] == {0: {"CPU": 1}, 1: {"CPU": 2, "disk": 1}}
    here = hoplo.get_runtime_context().get_node_id()
    assert table["bundles_to_node_id"] == {0: here, 1: here}
    assert placement_group_table()[group.id.hex()]["state"] == "CREATED"
    remove_placement_group(group)
    assert state(group) == "REMOVED"
    eventually(lambda: hoplo.available_resources()["CPU"] == CPUS)
    assert not group.wait(10)


def test_a_group_can_be_sent_and_stands_for_the_same():
    group = placement_group([{"CPU": 1}], name="sent")
    again = pickle.loads(pickle.dumps(group))
    assert (again, hash(again), again.bundle_specs) == (group, hash(group), [{"CPU": 1}])
    assert (group.bundle_count, group.is_empty) == (1, False)
    assert PlacementGroup.empty().is_empty

    @hoplo.remote
    def waits(group):
        return group.wait(10), get_placement_group("sent") == group

    assert hoplo.get(waits.remote(group)) == (True, True)


def test_two_bundles_on_nodes_of_their_own_wait_on_one_node(capfd):
    group = placement_group([{"CPU": 1}] * 2, strategy="STRICT_SPREAD")
    assert not group.wait(0.2)
    assert "can never be placed as it is: 2 bundles need a node each" in capfd.readouterr().err
    assert state(group) == "PENDING"


def test_what_a_group_waits_for_is_told(capfd):
    group = placement_group([{"CPU": 1}, {"CPU": 9}])
    assert capfd.readouterr().err.count("bundle 1 needs CPU 9, nearest node has 4") == 1
    ref = group.ready()
    says = "waits: bundle 1 needs CPU 9, nearest node has 4"
    with pytest.raises(GetTimeoutError, match=says):
        hoplo.get(ref, timeout=0.5)
    assert says in command("why", ref.hex()).stdout
    assert not ready(where.options(scheduling_strategy=inside(group, 0)).remote(), timeout=0.1)
    assert "CPU 9, nearest node has 4" in command("list", "placement-groups").stdout
    assert "1 waiting" in command("status").stdout
    assert capfd.readouterr().err == ""  # one warning


def test_a_group_waits_for_what_runs_and_is_placed_when_it_ends(gate):
    running = [passes.options(num_cpus=2).remote(gate) for _ in range(2)]
    eventually(lambda: gate.arrived() == 2)
    group = placement_group([{"CPU": 2}])
    assert not group.wait(0.1)
    assert "free" in placement_group_table(group)["reason"]
    gate.open()
    assert group.wait(20)
    assert hoplo.get(running, timeout=20) == [1, 1]


def test_the_command_shows_groups_apart_from_resources():
    group = placement_group([{"CPU": 1, "disk": 1}], name="shown")
    assert group.wait(10)
    status = command("status").stdout
    assert "1 placed (CPU 1, disk 1), 0 waiting" in status
    assert "_group_" not in status
    row = command("list", "placement-groups").stdout
    assert all(word in row for word in ("shown", "CREATED", "PACK")), row


# ------------------------------------------------------------------------------------ tasks


def test_tasks_run_in_their_group_and_take_nothing_else():
    group = placement_group([{"CPU": 1}, {"CPU": 2}])
    refs = [where.options(scheduling_strategy=inside(group, at)).remote() for at in (-1, 0, 1, -1)]
    assert hoplo.get(refs, timeout=20) == [group.id.hex()] * 4
    assert hoplo.get(where.remote()) is None
    got, _ = hoplo.get(assigned.options(num_cpus=2, scheduling_strategy=inside(group)).remote())
    assert got == {"CPU": 2}
    assert get_current_placement_group() is None


@pytest.mark.near
def test_a_bundle_runs_so_many_tasks_as_it_has_room_for(gate):
    group = placement_group([{"CPU": 1}])
    refs = [passes.options(scheduling_strategy=inside(group)).remote(gate) for _ in range(2)]
    with pytest.raises(GetTimeoutError):
        hoplo.get(refs, timeout=1)
    (row,) = [row for row in listed("tasks") if row["state"] == "queued"]
    assert "CPU of group:" in row["reason"], row
    assert "1 of 1 in use" in row["reason"], row
    # What is not reserved is everybody's.
    assert hoplo.get([where.remote() for _ in range(10)]) == [None] * 10
    gate.open()
    assert hoplo.get(refs, timeout=20) == [1, 1]


def test_children_run_in_the_group_only_if_they_are_captured():
    group = placement_group([{"CPU": 2}])
    ours = group.id.hex()

    def child(capture, **options):
        return hoplo.get(
            parent.options(scheduling_strategy=inside(group, 0, capture)).remote(**options),
            timeout=20,
        )

    assert child(None) is None
    assert child(False) is None
    assert child(True) == ours
    assert child(True, scheduling_strategy=inside(None)) is None
    assert child(True, scheduling_strategy="DEFAULT") is None
    assert child(True, placement_group=None) is None
    other = placement_group([{"CPU": 1}])
    assert child(True, scheduling_strategy=inside(other)) == other.id.hex()


def test_children_that_are_captured_run_while_their_parent_waits_for_them():
    group = placement_group([{"CPU": 1}])

    @hoplo.remote
    def down(depth):
        here = hoplo.get_runtime_context()
        assert here.should_capture_child_tasks_in_placement_group
        assert here.get_placement_group_id() == group.id.hex()
        assert get_current_placement_group() == group
        return 0 if depth == 0 else 1 + hoplo.get(down.remote(depth - 1))

    ref = down.options(scheduling_strategy=inside(group, 0, True)).remote(3)
    assert hoplo.get(ref, timeout=30) == 3


def test_the_older_options_do_the_same():
    group = placement_group([{"CPU": 1}, {"CPU": 1}])
    ours = group.id.hex()
    assert hoplo.get(where.options(placement_group=group).remote(), timeout=20) == ours
    options = {"placement_group": group, "placement_group_bundle_index": 1}
    captured = parent.options(**options, placement_group_capture_child_tasks=True)
    assert hoplo.get(captured.remote(), timeout=20) == ours
    with pytest.raises(ValueError, match="needs placement_group="):
        where.options(placement_group_bundle_index=1)
    in_none = where.options(placement_group=None)
    assert hoplo.get(in_none.remote()) is None


def test_gpus_are_the_bundles_own():
    group = placement_group([{"CPU": 1, "GPU": 1}, {"CPU": 1, "GPU": 1}])
    asks = assigned.options(num_gpus=1, scheduling_strategy=inside(group, 0))
    first = hoplo.get([asks.remote() for _ in range(3)], timeout=30)
    second = assigned.options(num_gpus=1, scheduling_strategy=inside(group, 1))
    other = hoplo.get(second.remote(), timeout=30)
    assert len({tuple(gpus) for _, gpus in first}) == 1
    assert sorted([first[0][1][0], other[1][0]]) == [0, 1]
    assert first[0][0] == {"CPU": 1, "GPU": 1}


# ------------------------------------------------------------------------------------ actors


def test_actors_live_in_their_group():
    group = placement_group([{"CPU": 2, "GPU": 1}])
    ours = group.id.hex()
    plain = Actor.options(scheduling_strategy=inside(group)).remote()
    wide = Actor.options(
        num_cpus=1, num_gpus=1, scheduling_strategy=inside(group, 0, True)
    ).remote()
    assert hoplo.get([plain.where.remote(), wide.where.remote()], timeout=20) == [ours, ours]
    assert hoplo.get(plain.child.remote(), timeout=20) is None
    assert hoplo.get(wide.child.remote(), timeout=20) == ours
    assert len(hoplo.get(wide.gpus.remote())) == 1
    # The lease of the child that ran outside comes back.
    eventually(lambda: hoplo.available_resources()["CPU"] == CPUS - 2)


def test_an_actor_that_dies_starts_again_in_its_bundle():
    group = placement_group([{"CPU": 1}])
    actor = Actor.options(num_cpus=1, max_restarts=1, scheduling_strategy=inside(group)).remote()
    pid = hoplo.get(actor.pid.remote(), timeout=20)
    hoplo.kill(actor, no_restart=False)
    eventually(lambda: hoplo.get(actor.pid.remote(), timeout=20) != pid, timeout=20)
    assert hoplo.get(actor.where.remote()) == group.id.hex()


# ------------------------------------------------------------------------------------ its end


def error_of(actor, kind):
    """The text of the error that a call of the actor ends with; None if it is another one."""
    try:
        hoplo.get(actor.pid.remote(), timeout=20)
    except hoplo.exceptions.HoploError as error:
        return str(error) if type(error) is kind else None
    return None


def test_a_group_that_is_removed_ends_what_runs_in_it(gate):
    group = placement_group([{"CPU": 1}, {"CPU": 1}])
    assert group.wait(10)
    retried = passes.options(scheduling_strategy=inside(group, 0)).remote(gate)
    once = passes.options(max_retries=0, scheduling_strategy=inside(group, 1)).remote(gate)
    queued = passes.options(scheduling_strategy=inside(group, 1)).remote(gate)
    eventually(lambda: gate.arrived() == 2)
    remove_placement_group(group)
    for ref in (retried, queued):
        with pytest.raises(TaskPlacementGroupRemoved, match="removed by remove_placement_group"):
            hoplo.get(ref, timeout=20)
    with pytest.raises((WorkerCrashedError, TaskPlacementGroupRemoved), match="no more"):
        hoplo.get(once, timeout=20)
    with pytest.raises(TaskPlacementGroupRemoved):
        hoplo.get(where.options(scheduling_strategy=inside(group)).remote(), timeout=20)


def test_actors_of_a_group_that_is_removed_end_with_it():
    group = placement_group([{"CPU": 2}])
    once = Actor.options(scheduling_strategy=inside(group)).remote()
    again = Actor.options(max_restarts=-1, scheduling_strategy=inside(group)).remote()
    hoplo.get([once.pid.remote(), again.pid.remote()], timeout=20)
    remove_placement_group(group)

    # What is called before the daemon hears of the end may be answered.
    assert "is no more" in eventually(lambda: error_of(once, ActorDiedError))
    assert "removed by" in eventually(lambda: error_of(again, ActorPlacementGroupRemoved))
    late = Actor.options(scheduling_strategy=inside(group)).remote()
    with pytest.raises(ActorPlacementGroupRemoved):
        hoplo.get(late.pid.remote(), timeout=20)


def test_who_waits_for_a_group_that_is_removed_hears_it():
    group = placement_group([{"CPU": 9}])
    ref = group.ready()
    assert not ready(ref, timeout=0.1)
    remove_placement_group(group)
    assert not group.wait(-1)
    with pytest.raises(TaskPlacementGroupRemoved, match="removed by remove_placement_group"):
        hoplo.get(ref, timeout=20)
