"""Actors whose home dies: another node is in charge of them.

Node 0 has the driver. Node 1, at home to what its processes create, dies.
"""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from far import Counter, Keeper
from machines import alive, until

import hoplo
from hoplo.exceptions import ActorDiedError, ActorUnavailableError

ENDS = pytest.mark.parametrize("ends", ["node", "daemon"])
"""All of its processes at once, or the daemon alone."""


@hoplo.remote(num_cpus=0)
class Parent:
    """Creates actors, whose home is its node."""

    def make(self, cls: Any, options: dict[str, Any], *args: Any) -> Any:
        self.child = cls.options(num_cpus=0, **options).remote(*args)
        return self.child

    def forget(self) -> None:
        del self.child


def parent(far: Any) -> Any:
    return Parent.options(scheduling_strategy=far.on(1)).remote()


def child(
    far: Any, at: int, soft: bool = False, cls: Any = Counter, *args: Any, **more: Any
) -> Any:
    options = {"scheduling_strategy": far.on(at, soft=soft), **more}
    return hoplo.get(parent(far).make.remote(cls, options, *args), timeout=20)


def dies(far: Any, ends: str = "node") -> None:
    (far.kill_node if ends == "node" else far.kill_daemon)(1)


def value(call: Any) -> Any:
    """Its result, as soon as the actor is there."""
    answers: list[Any] = []

    def is_there() -> bool:
        try:
            answers.append(hoplo.get(call(), timeout=20))
        except ActorUnavailableError:
            return False
        return True

    until(is_there, 20, "it is available")
    return answers[0]


@ENDS
def test_an_actor_on_another_node_goes_on(make_far: Any, ends: str) -> None:
    far = make_far(3)
    counter = child(far, 2)
    pid = hoplo.get(counter.pid.remote(), timeout=20)
    assert hoplo.get(counter.add.remote(), timeout=20) == 1
    dies(far, ends)
    for count in range(2, 200):
        assert hoplo.get(counter.add.remote(), timeout=20) == count
    assert hoplo.get(counter.pid.remote(), timeout=20) == pid
    # Its heir ends it when nobody can reach it.
    del counter
    until(lambda: not alive(pid), 20, "it ends")
    far.until_no_objects()


def test_calls_under_way_are_answered(make_far: Any) -> None:
    far = make_far(3)
    counter = child(far, 2)
    assert hoplo.get(counter.add.remote(), timeout=20) == 1
    refs = [counter.add.remote() for _ in range(2_000)]
    dies(far)
    refs += [counter.add.remote() for _ in range(2_000)]
    assert hoplo.get(refs, timeout=30) == list(range(2, 4_002))


def test_it_is_killed_and_restarts_under_its_heir(make_far: Any) -> None:
    far = make_far(3)
    counter = child(far, 2, max_restarts=1, max_task_retries=-1)
    assert hoplo.get(counter.add.remote(), timeout=20) == 1
    dies(far)
    until(lambda: far.machines[0].states().count("DEAD") == 1)
    os.kill(hoplo.get(counter.pid.remote(), timeout=20), signal.SIGKILL)
    assert hoplo.get(counter.add.remote(), timeout=20) == 1, "it begins anew"
    hoplo.kill(counter)
    with pytest.raises(ActorDiedError, match="kill"):
        hoplo.get(counter.add.remote(), timeout=20)


def test_one_that_lived_there_starts_again_with_its_arguments(make_far: Any) -> None:
    far = make_far(3)
    counter = child(far, 1, True, Counter, 100, max_restarts=1, max_task_retries=-1)
    assert hoplo.get(counter.where.remote(), timeout=20) == far.ids[1]
    assert hoplo.get(counter.add.remote(), timeout=20) == 101
    dies(far)
    assert hoplo.get(counter.add.remote(), timeout=20) == 101
    assert hoplo.get(counter.where.remote(), timeout=20) in (far.ids[0], far.ids[2])


def test_one_that_lived_there_and_may_not_restart_is_dead(make_far: Any) -> None:
    far = make_far(3)
    counter = child(far, 1)
    assert hoplo.get(counter.add.remote(), timeout=20) == 1
    dies(far)

    def is_dead() -> bool:
        try:
            hoplo.get(counter.add.remote(), timeout=20)
        except ActorUnavailableError:
            return False
        except ActorDiedError as error:
            return "node" in str(error)
        return False

    until(is_dead, 20, "it is dead")


def test_a_ref_among_its_arguments_is_held_for_the_restart(make_far: Any) -> None:
    far = make_far(3)
    boxed = [hoplo.put("kept for it")]
    keeper = child(far, 1, True, Filled, boxed, max_restarts=1, max_task_retries=-1)
    assert hoplo.get(keeper.read.remote(), timeout=20) == "kept for it"
    del boxed
    dies(far)
    assert hoplo.get(keeper.read.remote(), timeout=20) == "kept for it"
    del keeper
    far.until_no_objects(20)


@hoplo.remote
class Filled:
    def __init__(self, boxed: list[Any]) -> None:
        self.boxed = boxed

    def read(self) -> Any:
        return hoplo.get(self.boxed[0])


DETACHED = """
from far import Counter
from hoplo.util.scheduling_strategies import NodeAffinitySchedulingStrategy
with hoplo.init(address="auto", namespace="kept"):
    for name, node in (("here", sys.argv[1]), ("there", sys.argv[2])):
        strategy = NodeAffinitySchedulingStrategy(node, soft=True)
        options = dict(name=name, lifetime="detached", num_cpus=0, max_restarts=-1)
        counter = Counter.options(scheduling_strategy=strategy, **options).remote()
        hoplo.get(counter.add.remote())
    say(1)
"""
"""Makes `here` at the first node that it is told, and `there` at the second one."""


def test_a_detached_actor_outlives_the_node_that_created_it(make_far: Any) -> None:
    far = make_far(3)
    path = os.path.dirname(os.path.abspath(__file__))
    assert far.machines[1].run(DETACHED, far.ids[1], far.ids[2], PYTHONPATH=path) == 1
    there = hoplo.get_actor("there", namespace="kept")
    assert hoplo.get(there.add.remote(), timeout=20) == 2
    dies(far)
    assert hoplo.get(there.add.remote(), timeout=20) == 3
    here = hoplo.get_actor("here", namespace="kept")
    assert value(here.add.remote) == 1, "it has started again"
    # Also from a node that never heard of it, and the name is taken.
    assert hoplo.get_actor("there", namespace="kept") == there
    with pytest.raises(ValueError, match="exists"):
        Counter.options(name="here", namespace="kept", num_cpus=0).remote()
    rows = {row["name"]: row["state"] for row in far.machines[0].listed("actors")}
    assert rows["here"] == rows["there"] == "ALIVE", rows
    for actor in (here, there):
        hoplo.kill(actor)
    until(lambda: name_is_free("here"), what="its name is free")


def test_a_detached_actor_outlives_the_head_that_created_it(make_far: Any) -> None:
    far = make_far(3)
    path = os.path.dirname(os.path.abspath(__file__))
    assert far.machines[0].run(DETACHED, far.ids[0], far.ids[1], PYTHONPATH=path) == 1
    far.kill_daemon(0)
    far.head_again()
    until(lambda: far.machines[2].states().count("ALIVE") == 3, what="a head is there again")
    found = """
    from hoplo.exceptions import ActorUnavailableError
    hoplo.init(address="auto", namespace="kept")
    there, here = hoplo.get_actor("there"), hoplo.get_actor("here")
    counts = [hoplo.get(there.add.remote(), timeout=20)]
    while len(counts) < 2:
        try:
            counts.append(hoplo.get(here.add.remote(), timeout=20))
        except ActorUnavailableError:
            pass
    say(*counts)
    """
    assert far.machines[2].run(found, PYTHONPATH=path) == [2, 1]


def name_is_free(name: str) -> bool:
    try:
        hoplo.get_actor(name, namespace="kept")
    except ValueError:
        return True
    return False


@hoplo.remote(num_cpus=0)
def makes(cls: Any, options: dict[str, Any]) -> Any:
    return cls.options(num_cpus=0, **options).remote()


def test_a_node_that_is_drained_does_not_wait_for_an_actor_that_a_task_there_made(
    make_far: Any,
) -> None:
    far = make_far(3)
    options = {"scheduling_strategy": far.on(2)}
    there = makes.options(scheduling_strategy=far.on(1))
    counter = hoplo.get(there.remote(Counter, options), timeout=20)
    assert hoplo.get(counter.add.remote(), timeout=20) == 1
    far.killed.add(1)
    far.machines[0].hoplo("drain", far.ids[1])
    until(lambda: far.machines[0].states().count("DEAD") == 1, 20, "it has left")
    assert hoplo.get(counter.add.remote(), timeout=20) == 2


def test_two_homes_die_one_after_the_other(make_far: Any) -> None:
    far = make_far(4)
    counter = child(far, 3, max_restarts=2, max_task_retries=-1)
    assert hoplo.get(counter.add.remote(), timeout=20) == 1
    far.kill_node(1)
    assert hoplo.get(counter.add.remote(), timeout=20) == 2
    far.kill_node(2)
    assert hoplo.get(counter.add.remote(), timeout=20) == 3
    until(lambda: far.machines[0].states().count("DEAD") == 2)
    os.kill(hoplo.get(counter.pid.remote(), timeout=20), signal.SIGKILL)
    assert hoplo.get(counter.add.remote(), timeout=20) == 1


def test_home_and_node_die_at_once(make_far: Any) -> None:
    far = make_far(4)
    # Detached, since node 2 may be the keeper of node 1: then only the row knows it.
    options = {"max_restarts": 1, "max_task_retries": -1, "lifetime": "detached"}
    counter = child(far, 2, True, **options)
    assert hoplo.get(counter.where.remote(), timeout=20) == far.ids[2]
    far.kill_node(1)
    far.kill_node(2)
    assert hoplo.get(counter.add.remote(), timeout=30) == 1
    assert hoplo.get(counter.where.remote(), timeout=20) in (far.ids[0], far.ids[3])


def test_what_ends_with_its_driver_ends(make_far: Any) -> None:
    far = make_far(3)
    keeper = Keeper.options(scheduling_strategy=far.on(2), num_cpus=0).remote()
    source = """
    from far import Counter
    from hoplo.util.scheduling_strategies import NodeAffinitySchedulingStrategy
    hoplo.init(address="auto")
    strategy = NodeAffinitySchedulingStrategy(sys.argv[1])
    counter = Counter.options(scheduling_strategy=strategy, num_cpus=0).remote()
    say(hoplo.get(counter.pid.remote()))
    heard()
    """
    path = os.path.dirname(os.path.abspath(__file__))
    pid = far.machines[1].program(source, far.ids[2], PYTHONPATH=path).heard()
    assert alive(pid)
    dies(far)
    until(lambda: not alive(pid), 20, "it ended with its job")
    assert hoplo.get(keeper.drop.remote(), timeout=20) is None
