"""Actors with checkpoints whose node dies go on elsewhere, and each call takes effect once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from far import MIB, Ledger, here
from machines import until

import hoplo
from hoplo.exceptions import ActorDiedError


def ledger(far: Any, number: int, **options: Any) -> Any:
    strategy = far.on(number, soft=True)
    return Ledger.options(
        num_cpus=0, max_restarts=-1, scheduling_strategy=strategy, **options
    ).remote()


@hoplo.remote(num_cpus=0, max_retries=0)
def adds(actor: Any, name: Any, count: int) -> list[int]:
    return [hoplo.get(actor.add.remote((name, one))) for one in range(count)]


def agrees(entries: list[Any], replies: dict[Any, list[int]]) -> None:
    """Each reply says at which place its call stands, and there it stands, and nowhere else."""
    for name, places in replies.items():
        assert [entries[place - 1] for place in places] == [(name, n) for n in range(len(places))]
    assert len(entries) == sum(len(places) for places in replies.values())


# ------------------------------------------------------------------------------- errors


@hoplo.remote(num_cpus=0)
class Parent:
    """Creates a ledger, whose home is its node."""

    def make(self, strategy: Any, **options: Any) -> Any:
        given = {"num_cpus": 0, "max_restarts": -1, "scheduling_strategy": strategy}
        self.child = Ledger.options(**given | options).remote()
        assert hoplo.get(self.child.add.remote("first")) == 1
        return self.child


def child(far: Any, number: int) -> Any:
    parent = Parent.options(scheduling_strategy=far.on(1)).remote()
    made = hoplo.get(parent.make.remote(far.on(number, soft=True)), timeout=20)
    assert hoplo.get(made.where.remote(), timeout=20) == far.ids[number]
    return made


def test_one_that_has_no_restarts_left_is_lost_with_its_home(make_far: Any) -> None:
    far = make_far(3)
    parent = Parent.options(scheduling_strategy=far.on(1)).remote()
    strategy = far.on(1, soft=True)
    ran_there = hoplo.get(parent.make.remote(strategy, max_restarts=0), timeout=20)
    far.kill_node(1)
    with pytest.raises(ActorDiedError, match="home node"):
        hoplo.get(ran_there.add.remote("second"), timeout=20)


# ------------------------------------------------------------------------------- its home dies


def test_its_home_dies_while_calls_come_from_two_nodes(make_far: Any) -> None:
    far = make_far(4)
    ran_elsewhere = child(far, 2)
    far_calls = adds.options(scheduling_strategy=far.on(3)).remote(ran_elsewhere, "far", 300)
    near = [ran_elsewhere.add.remote(("near", number)) for number in range(150)]
    far.kill_node(1)
    near += [ran_elsewhere.add.remote(("near", number)) for number in range(150, 300)]
    replies = {"near": hoplo.get(near, timeout=60), "far": hoplo.get(far_calls, timeout=60)}
    # The heir has the whole log: from it another process becomes what this one was.
    os.kill(hoplo.get(ran_elsewhere.pid.remote(), timeout=20), signal.SIGKILL)
    entries = hoplo.get(ran_elsewhere.all.remote(), timeout=30)
    assert entries.index("first") == 0
    agrees(entries[1:], {name: [at - 1 for at in places] for name, places in replies.items()})


def nothing() -> None:
    pass


def goes_on_without_home(far: Any, actor: Any, before: Callable[[], Any]) -> None:
    """The driver and node 2 call it while `before` happens, and then node 1, its home, dies."""
    far_calls = adds.options(scheduling_strategy=far.on(2)).remote(actor, "far", 300)
    near = [actor.add.remote(("near", number)) for number in range(150)]
    hoplo.get(near[20], timeout=20)
    before()
    near += [actor.add.remote(("near", number)) for number in range(150, 300)]
    hoplo.get(near[40], timeout=20)
    far.kill_node(1)
    near += [actor.add.remote(("near", number)) for number in range(300, 350)]
    replies = {"near": hoplo.get(near, timeout=60), "far": hoplo.get(far_calls, timeout=60)}
    entries = hoplo.get(actor.all.remote(), timeout=30)
    assert entries.index("first") == 0
    agrees(entries[1:], {name: [at - 1 for at in places] for name, places in replies.items()})


def test_it_ran_at_its_home_which_dies(make_far: Any) -> None:
    far = make_far(4)
    goes_on_without_home(far, child(far, 1), nothing)


def test_it_started_again_at_its_home_which_dies(make_far: Any) -> None:
    far = make_far(4)
    ran_there = child(far, 1)
    pid = hoplo.get(ran_there.pid.remote(), timeout=20)
    goes_on_without_home(far, ran_there, lambda: os.kill(pid, signal.SIGKILL))


@pytest.mark.parametrize("other", [3, 4])
def test_another_node_dies_and_then_its_home(make_far: Any, other: int) -> None:
    """One of the two has the log. Replies wait until another one has it in its place."""
    far = make_far(5)
    ran_at_home = child(far, 1)

    def dies() -> None:
        far.kill_node(other)
        hoplo.get(ran_at_home.length.remote(), timeout=20)

    goes_on_without_home(far, ran_at_home, dies)


def test_it_goes_on_at_its_home_which_dies(make_far: Any) -> None:
    """Its node and its home had its log. When its node dies, another one is told it."""
    far = make_far(4)
    ran_elsewhere = child(far, 3)

    def its_node_dies() -> None:
        far.kill_node(3)
        hoplo.get(ran_elsewhere.where.remote(), timeout=20)

    goes_on_without_home(far, ran_elsewhere, its_node_dies)


WRITE = """
    import sys
    from far import Ledger
    hoplo.init(address="auto", namespace="kept")
    options = {"name": "it", "lifetime": "detached", "num_cpus": 0, "max_restarts": -1}
    it = Ledger.options(get_if_exists=True, **options).remote()
    first = int(sys.argv[1])
    for number in range(first, first + 25):
        assert hoplo.get(it.add.remote(number), timeout=30) == number + 1
    say(*hoplo.get(it.all.remote(), timeout=30))
"""


def test_a_detached_one_that_ran_at_the_head_outlives_it(make_far: Any) -> None:
    far = make_far(2)
    path = os.path.dirname(os.path.abspath(__file__))
    for first in (0, 25, 50):
        said = far.machines[0].run(WRITE, str(first), PYTHONPATH=path)
        assert said == list(range(first + 25))
        if first < 50:
            far.kill_daemon(0)
            far.head_again()


# ------------------------------------------------------------------------------- its process dies


def test_its_process_dies_on_another_node(far: Any) -> None:
    actor = ledger(far, 1, checkpoint_every=7)
    assert hoplo.get(actor.where.remote(), timeout=20) == far.ids[1]
    refs = [actor.add.remote(("here", number)) for number in range(50)]
    os.kill(hoplo.get(actor.pid.remote(), timeout=20), signal.SIGKILL)
    refs += [actor.add.remote(("here", number)) for number in range(50, 100)]
    os.kill(hoplo.get(actor.pid.remote(), timeout=20), signal.SIGKILL)
    agrees(hoplo.get(actor.all.remote(), timeout=20), {"here": hoplo.get(refs, timeout=20)})


# ------------------------------------------------------------------------------- its node dies


def test_its_node_dies_under_calls_of_several_nodes(make_far: Any) -> None:
    far = make_far(3)
    actor = ledger(far, 1, checkpoint_every=10)
    assert hoplo.get(actor.where.remote(), timeout=20) == far.ids[1]
    places = (0, 2, 2)
    callers = [
        adds.options(scheduling_strategy=far.on(number)).remote(actor, name, 400)
        for name, number in enumerate(places)
    ]
    until(lambda: hoplo.get(actor.length.remote(), timeout=20) > 150, what="it has work")
    far.kill_node(1)
    replies = dict(enumerate(hoplo.get(callers, timeout=60)))
    assert hoplo.get(actor.where.remote(), timeout=20) != far.ids[1]
    agrees(hoplo.get(actor.all.remote(), timeout=20), replies)


def test_its_node_dies_while_the_driver_sends_many_calls(make_far: Any) -> None:
    far = make_far(2)
    actor = ledger(far, 1, checkpoint_every=25)
    assert hoplo.get(actor.where.remote(), timeout=20) == far.ids[1]
    refs = [actor.add.remote(("many", number)) for number in range(2000)]
    hoplo.get(refs[300], timeout=20)
    far.kill_node(1)
    replies = {"many": hoplo.get(refs, timeout=60)}
    agrees(hoplo.get(actor.all.remote(), timeout=20), replies)


def test_calls_of_a_node_that_died_stay_in_its_state(make_far: Any) -> None:
    far = make_far(3)
    actor = ledger(far, 1, checkpoint_every=1000)
    caller = adds.options(scheduling_strategy=far.on(2)).remote(actor, "gone", 50)
    places = hoplo.get(caller, timeout=20)
    far.kill_node(2)
    os.kill(hoplo.get(actor.pid.remote(), timeout=20), signal.SIGKILL)
    agrees(hoplo.get(actor.all.remote(), timeout=20), {"gone": places})
    far.kill_node(1)
    agrees(hoplo.get(actor.all.remote(), timeout=20), {"gone": places})


def test_a_large_state_is_at_home_when_its_node_dies(make_far: Any) -> None:
    far = make_far(2)
    actor = ledger(far, 1, checkpoint_every=2)
    refs = [actor.fill.remote(number, 4 * MIB) for number in range(9)]
    hoplo.get(refs, timeout=30)
    far.kill_node(1)
    assert hoplo.get(actor.length.remote(), timeout=60) == 9
    assert hoplo.get(actor.sizes.remote(), timeout=30) == [4 * MIB] * 9


def test_large_arguments_that_lie_elsewhere_are_replayed(make_far: Any) -> None:
    far = make_far(3)
    actor = ledger(far, 1, checkpoint_every=1000)
    arrays = [np.full(100_000, float(number)) for number in range(4)]
    for number, array in enumerate(arrays):
        ref = hoplo.put(array)
        boxed = {"ref": hoplo.put(array + 1)}
        hoplo.get(actor.add.remote((number, boxed)), timeout=20)
        hoplo.get(actor.add_sum.remote(ref), timeout=20)
        del ref, boxed
    far.kill_node(1)
    entries = hoplo.get(actor.all.remote(), timeout=30)
    assert [entry for entry in entries if isinstance(entry, float)] == [
        100_000.0 * number for number in range(4)
    ]
    boxes = [entry for entry in entries if isinstance(entry, tuple)]
    for number, boxed in boxes:
        assert hoplo.get(boxed["ref"], timeout=20)[0] == number + 1


def test_nothing_of_a_log_stays_when_the_actor_is_gone(far: Any) -> None:
    actor = ledger(far, 1, checkpoint_every=4)
    for number in range(10):
        boxed = {"ref": hoplo.put(np.full(100_000, float(number)))}
        hoplo.get(actor.add.remote(boxed), timeout=20)
        del boxed
    del actor
    far.until_no_objects()


def test_a_drained_node_gives_its_actors_away_with_their_state(make_far: Any) -> None:
    far = make_far(3)
    actor = ledger(far, 1, checkpoint_every=10)
    refs = [actor.add.remote(("drain", number)) for number in range(55)]
    hoplo.get(refs, timeout=20)
    more: list[Any] = []
    sends = threading.Thread(
        target=lambda: more.extend(actor.add.remote(("drain", n)) for n in range(55, 300))
    )
    sends.start()
    far.machines[0].hoplo("drain", far.ids[1])
    sends.join()
    replies = {"drain": hoplo.get(refs + more, timeout=30)}
    assert hoplo.get(actor.where.remote(), timeout=20) != far.ids[1]
    agrees(hoplo.get(actor.all.remote(), timeout=20), replies)
    assert here() == far.ids[0]


def test_calls_since_the_last_checkpoint_ran_again_when_their_node_was_drained(
    make_far: Any,
) -> None:
    far = make_far(3)
    actor = ledger(far, 1)
    hoplo.get([actor.add.remote(number) for number in range(30)], timeout=20)
    far.machines[0].hoplo("drain", far.ids[1])
    assert hoplo.get(actor.where.remote(), timeout=20) != far.ids[1]
    assert hoplo.get(actor.runs_here.remote(), timeout=20) == 0
    assert hoplo.get(actor.all.remote(), timeout=20) == list(range(30))
