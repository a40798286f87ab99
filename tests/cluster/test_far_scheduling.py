"""Where tasks and actors go that may go to several nodes, and what waits when none has room."""

from __future__ import annotations

import json
import os
from collections import Counter as Counts
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from far import MIB, Counter, busy, count_bytes, echo, here, ones, where
from machines import CommandError, until

import hoplo
from hoplo.exceptions import (
    ActorUnschedulableError,
    GetTimeoutError,
    HoploError,
    TaskCancelledError,
    TaskPlacementGroupRemoved,
    TaskUnschedulableError,
)
from hoplo.util.placement_group import placement_group, remove_placement_group
from hoplo.util.scheduling_strategies import NodeAffinitySchedulingStrategy


def flags(**more: Any) -> list[str]:
    found = []
    for name in ("labels", "resources"):
        if name in more:
            found += [f"--{name}", json.dumps(more[name])]
    return found


@pytest.fixture(scope="module")
def shared_far() -> Any:
    """Nodes that differ: one has a licence, two are in zone b, one of them with a label more."""
    from far import cluster

    each = [
        flags(labels={"zone": "a"}),
        flags(labels={"zone": "b", "disk": "ssd"}, resources={"licence": 2}),
        flags(labels={"zone": "b"}),
    ]
    with cluster(flags=each) as far:
        yield far


# ------------------------------------------------------------------------------- it cannot


@pytest.mark.parametrize(
    "options",
    [
        {"resources": {"unicorn": 1}},
        {"num_cpus": 3},
        {"resources": {"licence": 3}},
        {"label_selector": {"zone": "nowhere"}},
    ],
    ids=["no such resource", "too many CPUs", "too much of it", "no such label"],
)
def test_what_no_node_can_ever_run_waits_and_says_so(
    far: Any, options: dict[str, Any], capfd: Any
) -> None:
    ref = where.options(**options).remote()
    [word] = [str(next(iter(v))) if isinstance(v, dict) else "CPU" for v in options.values()]
    with pytest.raises(GetTimeoutError, match=word):
        hoplo.get(ref, timeout=1)
    until(lambda: word in capfd.readouterr().err, what="the driver is warned")
    # What can run does, meanwhile.
    assert hoplo.get(echo.remote(1), timeout=20) == 1
    hoplo.cancel(ref)
    with pytest.raises(TaskCancelledError):
        hoplo.get(ref, timeout=20)


def test_a_node_that_is_not_there_is_not_replaced_if_the_affinity_is_hard(far: Any) -> None:
    strategy = NodeAffinitySchedulingStrategy("ffffff", soft=False)
    ref = where.options(scheduling_strategy=strategy).remote()
    with pytest.raises(HoploError):
        hoplo.get(ref, timeout=2)
    hoplo.cancel(ref)


def test_a_node_that_is_not_there_is_replaced_if_the_affinity_is_soft(far: Any) -> None:
    strategy = NodeAffinitySchedulingStrategy("ffffff", soft=True)
    ref = where.options(scheduling_strategy=strategy).remote()
    assert hoplo.get(ref, timeout=20) in far.ids


# ------------------------------------------------------------------------------- it can, there


def test_a_resource_of_another_node_is_found(far: Any) -> None:
    refs = [where.options(resources={"licence": 1}).remote() for _ in range(10)]
    assert set(hoplo.get(refs, timeout=20)) == {far.ids[1]}


def test_labels_choose_the_node(far: Any) -> None:
    for _ in range(5):
        assert hoplo.get(where.options(label_selector={"zone": "a"}).remote()) == far.ids[0]
        assert hoplo.get(where.options(label_selector={"disk": "ssd"}).remote()) == far.ids[1]
        found = hoplo.get(where.options(label_selector={"zone": "b"}).remote(), timeout=20)
        assert found in far.ids[1:]


def test_labels_choose_the_node_of_an_actor(far: Any) -> None:
    for label, value, number in (("zone", "a", 0), ("disk", "ssd", 1)):
        actor = Counter.options(label_selector={label: value}, num_cpus=0).remote()
        assert hoplo.get(actor.where.remote(), timeout=20) == far.ids[number]


def all_idle(far: Any) -> None:
    def free() -> bool:
        return hoplo.available_resources().get("CPU", 0) == 2 * len(far.ids)

    until(free, what="what ran before has given all CPUs back")


def test_spread_uses_all_nodes(far: Any) -> None:
    refs = [busy.options(scheduling_strategy="SPREAD").remote(0.05) for _ in range(30)]
    counts = Counts(hoplo.get(refs, timeout=30))
    assert set(counts) == set(far.ids)
    assert min(counts.values()) >= 4, counts


def test_spread_uses_all_nodes_for_tiny_tasks(far: Any) -> None:
    """The first worker that came did all of them before the others were there."""
    spread = where.options(scheduling_strategy="SPREAD")

    def even() -> bool:
        all_idle(far)
        counts = Counts(hoplo.get([spread.remote() for _ in range(400)], timeout=30))
        return set(counts) == set(far.ids) and min(counts.values()) >= 20

    until(even, what="each node does some of 400 tiny tasks")


def test_spread_puts_actors_on_all_nodes(far: Any) -> None:
    made = Counter.options(scheduling_strategy="SPREAD", num_cpus=1)
    actors = [made.remote() for _ in range(6)]
    counts = Counts(hoplo.get([actor.where.remote() for actor in actors], timeout=30))
    assert set(counts.values()) == {2}, counts


def test_what_does_not_fit_here_goes_elsewhere(far: Any, gate: Any) -> None:
    @hoplo.remote(num_cpus=1)
    def held() -> Any:
        return gate.wait(here())

    refs = [held.remote() for _ in range(6)]
    until(lambda: gate.arrived() == 6, what="all six CPUs of the cluster are used")
    gate.open()
    assert Counts(hoplo.get(refs, timeout=20)) == dict.fromkeys(far.ids, 2)


def test_short_work_that_fits_here_stays_here(far: Any) -> None:
    all_idle(far)
    places = {hoplo.get(where.remote(), timeout=20) for _ in range(100)}
    assert places == {far.ids[0]}


def test_short_work_comes_home_when_there_is_room_again(far: Any, gate: Any) -> None:
    """A loop of single calls stayed at a worker elsewhere that it got while its node was full."""
    all_idle(far)

    @hoplo.remote(num_cpus=2)
    def held() -> None:
        gate.wait()

    holding = held.options(scheduling_strategy=far.on(0)).remote()
    until(lambda: gate.arrived() == 1)
    assert hoplo.get(where.remote(), timeout=20) in far.ids[1:]
    gate.open()
    hoplo.get(holding, timeout=20)
    until(lambda: hoplo.get(where.remote(), timeout=20) == far.ids[0], what="it comes home")


def test_a_hard_affinity_waits_for_its_node_though_others_are_free(far: Any, gate: Any) -> None:
    @hoplo.remote(num_cpus=2)
    def held() -> None:
        gate.wait()

    holding = held.options(scheduling_strategy=far.on(1)).remote()
    until(lambda: gate.arrived() == 1)
    waits = where.options(scheduling_strategy=far.on(1)).remote()
    assert hoplo.wait([waits], timeout=0.3)[0] == []
    gate.open()
    assert hoplo.get([waits, holding], timeout=20) == [far.ids[1], None]


def test_resources_in_use_there_are_given_back(far: Any) -> None:
    def licences() -> float:
        return hoplo.available_resources().get("licence", 0)

    until(lambda: licences() == 2)
    made = Counter.options(resources={"licence": 2}, num_cpus=0)
    actor = made.remote()
    assert hoplo.get(actor.where.remote(), timeout=20) == far.ids[1]
    until(lambda: licences() == 0)
    second = made.remote()
    waiting = second.add.remote()
    assert hoplo.wait([waiting], timeout=0.3)[0] == []
    hoplo.kill(actor)
    assert hoplo.get(waiting, timeout=20) == 1
    hoplo.kill(second)
    until(lambda: licences() == 2)


def test_what_the_cluster_has_is_the_sum_of_its_nodes(far: Any) -> None:
    told = hoplo.cluster_resources()
    assert told["CPU"] == 6
    assert told["licence"] == 2
    until(lambda: hoplo.available_resources()["CPU"] == 6)


def test_a_far_task_that_waits_for_another_one_gives_its_cpu_away(far: Any) -> None:
    """Two CPUs there, and a chain of calls four deep: who waits holds none."""

    @hoplo.remote(num_cpus=1)
    def deeper(depth: int, strategy: Any) -> int:
        if depth == 0:
            return 0
        call = deeper.options(scheduling_strategy=strategy)
        return 1 + sum(hoplo.get([call.remote(depth - 1, strategy) for _ in range(2)]))

    strategy = far.on(2)
    call = deeper.options(scheduling_strategy=strategy)
    assert hoplo.get(call.remote(3, strategy), timeout=30) == 1 + 2 + 4


# ------------------------------------------------------------------------------- large arguments


@hoplo.remote
def boxed(nbytes: int) -> list[Any]:
    """A ref that its reader borrows."""
    return [hoplo.put(np.ones(nbytes, np.uint8))]


def made_at(far: Any, number: int, nbytes: int) -> Any:
    ref = ones.options(scheduling_strategy=far.on(number)).remote(nbytes)
    assert hoplo.wait([ref], timeout=20, fetch_local=False)[0]
    return ref


@pytest.mark.parametrize("borrowed", [False, True], ids=["own", "borrowed"])
def test_a_task_runs_where_its_large_argument_lies(far: Any, borrowed: bool) -> None:
    for number in (1, 2, 0):
        if borrowed:
            made = boxed.options(scheduling_strategy=far.on(number)).remote(16 * MIB)
            [ref] = hoplo.get(made, timeout=20)
        else:
            ref = made_at(far, number, 16 * MIB)
        for _ in range(3):
            assert far.number(hoplo.get(where.remote(ref), timeout=20)) == number
        stored = [row for row in far.objects() if row["state"] in ("stored", "mapped")]
        nodes = {row["node"] for row in stored if row["object_id"] == ref.hex()}
        assert nodes == {far.ids[number]}, "nobody fetched it"


def test_the_largest_part_of_several_arguments_draws_a_task(far: Any) -> None:
    little = [made_at(far, 0, 900_000) for _ in range(9)]
    one, two = made_at(far, 1, 8 * MIB), made_at(far, 2, 16 * MIB)
    assert hoplo.get(where.remote(one, two, *little), timeout=20) == far.ids[2]
    other = made_at(far, 1, 16 * MIB)
    assert hoplo.get(where.remote(one, two, other), timeout=20) == far.ids[1]
    here = hoplo.put(np.ones(48 * MIB, np.uint8))
    assert hoplo.get(where.remote(one, two, other, here), timeout=20) == far.ids[0]
    assert hoplo.get(where.remote(*little), timeout=20) == far.ids[0]


def test_a_task_whose_argument_lies_at_a_full_node_runs_elsewhere_after_a_while(
    far: Any, gate: Any
) -> None:
    ref = made_at(far, 1, 16 * MIB)

    @hoplo.remote(num_cpus=2)
    def held() -> None:
        gate.wait()

    holding = held.options(scheduling_strategy=far.on(1)).remote()
    until(lambda: gate.arrived() == 1)
    refs = [where.remote(ref) for _ in range(5)]
    assert set(hoplo.get(refs, timeout=20)) <= {far.ids[0], far.ids[2]}
    gate.open()
    hoplo.get(holding, timeout=20)


def test_what_the_user_says_about_the_place_comes_before_large_arguments(far: Any) -> None:
    ref = made_at(far, 1, 16 * MIB)
    for strategy in (far.on(2), far.on(0), far.on(2, soft=True)):
        told = where.options(scheduling_strategy=strategy).remote(ref)
        assert hoplo.get(told, timeout=20) == hoplo.get(
            where.options(scheduling_strategy=strategy).remote(), timeout=20
        )
    assert hoplo.get(where.options(label_selector={"zone": "a"}).remote(ref)) == far.ids[0]

    @hoplo.remote
    def spread(_: Any) -> str:
        return str(hoplo.get(busy.options(num_cpus=0).remote(0.05)) and here())

    refs = [spread.options(scheduling_strategy="SPREAD").remote(ref) for _ in range(30)]
    assert set(hoplo.get(refs, timeout=30)) == set(far.ids)


UNDRAWN = """
from far import here, ones, where
from hoplo.util.scheduling_strategies import NodeAffinitySchedulingStrategy
hoplo.init(address="auto")
there = NodeAffinitySchedulingStrategy(sys.argv[1], soft=False)
ref = ones.options(scheduling_strategy=there).remote(16 << 20)
hoplo.wait([ref], fetch_local=False)
say(hoplo.get(where.remote(ref)) == here())
"""


def test_a_program_can_switch_off_that_arguments_draw_its_tasks(far: Any) -> None:
    path = str(Path(__file__).parent)

    def runs_here(switch: str) -> bool:
        variables = {"PYTHONPATH": path, "HOPLO_LOCALITY": switch}
        return bool(far.machines[0].run(UNDRAWN, far.ids[1], **variables))

    assert [runs_here(switch) for switch in ("on", "off")] == [False, True]
    with pytest.raises(CommandError, match="HOPLO_LOCALITY is 'maybe': set it to on or off"):
        runs_here("maybe")


def test_a_task_whose_argument_lay_at_a_dead_node_runs_elsewhere(make_far: Any) -> None:
    far = make_far(3)
    ref = made_at(far, 1, 16 * MIB)
    # The driver knows of the place where it was made alone.
    copied = count_bytes.options(scheduling_strategy=far.on(2)).remote(ref)
    assert hoplo.get(copied, timeout=20) == 16 * MIB
    assert hoplo.get(where.remote(ref), timeout=20) == far.ids[1]
    far.kill_node(1)
    found = hoplo.get([where.remote(ref), count_bytes.remote(ref)], timeout=20)
    assert found[0] != far.ids[1]
    assert found[1] == 16 * MIB


# ------------------------------------------------------------------------------- nodes that come


def test_a_node_that_joins_while_work_waits_gets_it(make_far: Any) -> None:
    far = make_far(1)
    refs = [where.options(resources={"crane": 1}).remote() for _ in range(5)]
    assert hoplo.wait(refs, timeout=0.3)[0] == []
    number = far.add("--resources", '{"crane": 1}')
    assert hoplo.get(refs, timeout=20) == [far.ids[number]] * 5


def test_an_actor_that_waits_for_a_label_is_made_where_a_node_brings_it(make_far: Any) -> None:
    far = make_far(1)
    actor = Counter.options(label_selector={"zone": "new"}, num_cpus=0).remote()
    place = actor.where.remote()
    assert hoplo.wait([place], timeout=0.3)[0] == []
    number = far.add("--labels", '{"zone": "new"}')
    assert hoplo.get(place, timeout=20) == far.ids[number]


def test_each_nodes_gpus_are_counted_and_given_to_tasks_there(make_far: Any) -> None:
    far = make_far(1)
    type_of_card = json.dumps({"accelerator_type:A100": 1})
    numbers = [far.add("--num-gpus", "1"), far.add("--num-gpus", "2", "--resources", type_of_card)]
    assert hoplo.cluster_resources()["GPU"] == 3

    @hoplo.remote(num_gpus=1, num_cpus=0)
    class Card:
        def seen(self) -> tuple[str, str]:
            node = hoplo.get_runtime_context().get_node_id()
            return node, os.environ["CUDA_VISIBLE_DEVICES"]

    cards = [Card.remote() for _ in range(3)]
    seen = hoplo.get([card.seen.remote() for card in cards], timeout=20)
    first, second = (far.ids[number] for number in numbers)
    assert sorted(seen) == sorted([(first, "0"), (second, "0"), (second, "1")])
    fourth = Card.remote().seen.remote()
    assert hoplo.wait([fourth], timeout=0.3)[0] == []
    typed = where.options(accelerator_type="A100", num_cpus=0).remote()
    assert hoplo.get(typed, timeout=20) == second


def test_a_node_that_joins_under_load_takes_part_of_it(make_far: Any) -> None:
    far = make_far(1, cpus=1)
    refs = [busy.options(num_cpus=1).remote(0.1) for _ in range(40)]
    far.add(cpus=1)
    counts = Counts(hoplo.get(refs, timeout=30))
    assert set(counts) == set(far.ids)
    assert counts[far.ids[1]] >= 5, counts


def test_a_node_that_leaves_in_order_is_used_no_more(make_far: Any) -> None:
    far = make_far(2)
    assert hoplo.get(where.options(scheduling_strategy=far.on(1)).remote(), timeout=20)
    far.machines[1].leave()
    far.killed.add(1)
    until(lambda: far.machines[0].states() == ["ALIVE", "DEAD"])
    refs = [where.options(scheduling_strategy="SPREAD").remote() for _ in range(10)]
    assert set(hoplo.get(refs, timeout=20)) == {far.ids[0]}


@hoplo.remote(num_cpus=0)
def get_inside(refs: list[Any]) -> Any:
    return hoplo.get(refs[0])


@hoplo.remote(num_cpus=0)
def itself(value: Any) -> Any:
    return value


def test_a_ref_that_says_when_a_group_is_there_is_read_on_other_nodes(far: Any) -> None:
    bundles = [{"CPU": 1}] * 3
    group = placement_group(bundles, strategy="STRICT_SPREAD")
    assert hoplo.get(group.ready(), timeout=20) == group
    waits = placement_group([{"CPU": 2}] * 3, strategy="STRICT_SPREAD")
    ready = waits.ready()
    inside = get_inside.options(scheduling_strategy=far.on(1)).remote([ready])
    given = itself.options(scheduling_strategy=far.on(2)).remote(ready)
    assert not hoplo.wait([inside, given], timeout=0.2)[0]
    remove_placement_group(group)
    assert hoplo.get([ready, inside, given], timeout=20) == [waits] * 3
    never = placement_group([{"CPU": 99}])
    inside = get_inside.options(scheduling_strategy=far.on(1)).remote([never.ready()])
    remove_placement_group(never)
    with pytest.raises(TaskPlacementGroupRemoved, match="removed by remove_placement_group"):
        hoplo.get(inside, timeout=20)
    remove_placement_group(waits)


def test_what_must_run_on_a_node_that_died_waited_for_it_for_ever(
    make_far: Any, notes: Any
) -> None:
    far = make_far(nodes=2)
    hard, soft = far.on(1), far.on(1, soft=True)

    @hoplo.remote(num_cpus=0, max_retries=5)
    def runs(path: str, place: str) -> str:
        import processes

        here = hoplo.get_runtime_context().get_node_id()
        if here == place:
            processes.Notes(path).add(os.getpid())
            processes.forever()
        return here

    running = runs.options(scheduling_strategy=hard).remote(notes.path, far.ids[1])
    moves = runs.options(scheduling_strategy=soft).remote(notes.path, far.ids[1])
    actor = Counter.options(scheduling_strategy=hard, num_cpus=0, max_restarts=-1).remote()
    assert hoplo.get(actor.add.remote(), timeout=20) == 1
    until(lambda: len(notes.pids()) == 2)
    far.kill_node(1)
    assert hoplo.get(moves, timeout=20) == far.ids[0]
    later = itself.options(scheduling_strategy=hard).remote(1)
    for ref in (running, later):
        with pytest.raises(TaskUnschedulableError, match="which is dead; name another node"):
            hoplo.get(ref, timeout=20)
    until(lambda: isinstance(failure_of(actor.add.remote()), ActorUnschedulableError))
    made = Counter.options(scheduling_strategy=hard, num_cpus=0).remote()
    with pytest.raises(ActorUnschedulableError, match="which is dead; name another node"):
        hoplo.get(made.add.remote(), timeout=20)
    assert hoplo.get(itself.options(scheduling_strategy=soft).remote(2), timeout=20) == 2


def failure_of(ref: Any) -> Exception | None:
    try:
        hoplo.get(ref, timeout=20)
    except Exception as error:
        return error
    return None
