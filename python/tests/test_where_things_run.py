"""Strategies and labels, on one node: what it meets runs, what it does not waits and says why."""

from __future__ import annotations

import pytest
from conftest import command, eventually
from processes import listed

import hoplo
from hoplo.exceptions import ActorUnschedulableError, GetTimeoutError, TaskUnschedulableError
from hoplo.util.scheduling_strategies import (
    DoesNotExist,
    Exists,
    In,
    NodeAffinitySchedulingStrategy,
    NodeLabelSchedulingStrategy,
    NotIn,
)

NODE = {"num_cpus": 2, "labels": {"zone": "b", "disk": "ssd"}}


@hoplo.remote
def work():
    return 1


@hoplo.remote
class Actor:
    def work(self):
        return 2


def here() -> str:
    return hoplo.get_runtime_context().get_node_id()


MET = [
    {"label_selector": {"zone": "b"}},
    {"label_selector": {"zone": "!a"}},
    {"label_selector": {"zone": "in(a, b)", "disk": "!in(hdd,tape)"}},
    {"label_selector": {"rack": "!7"}},
    {"label_selector": {"zone": "a"}, "fallback_strategy": [{"label_selector": {"zone": "b"}}]},
    {"label_selector": {"zone": "a"}, "fallback_strategy": [{"label_selector": {}}]},
    {"scheduling_strategy": NodeLabelSchedulingStrategy({"zone": In("a", "b")})},
    {"scheduling_strategy": NodeLabelSchedulingStrategy({"disk": Exists(), "tpu": DoesNotExist()})},
    {"scheduling_strategy": NodeLabelSchedulingStrategy({}, soft={"zone": In("a")})},
    {"scheduling_strategy": NodeAffinitySchedulingStrategy("0000aa", soft=True)},
    {"scheduling_strategy": "SPREAD"},
]


@pytest.mark.parametrize("options", MET, ids=str)
def test_what_the_node_meets_runs(options):
    assert hoplo.get(work.options(**options).remote(), timeout=10) == 1
    actor = Actor.options(**options).remote()
    assert hoplo.get(actor.work.remote(), timeout=10) == 2


@pytest.mark.near
@pytest.mark.parametrize("key", ["hoplo.io/node-id", "ray.io/node-id"])
def test_the_id_of_a_node_is_a_label(key):
    assert hoplo.get(work.options(label_selector={key: here()}).remote(), timeout=10) == 1
    strategy = NodeAffinitySchedulingStrategy(here(), soft=False)
    assert hoplo.get(work.options(scheduling_strategy=strategy).remote(), timeout=10) == 1


UNMET = {
    "value": ({"label_selector": {"zone": "a"}}, "needs label zone=a, node has b"),
    "values": ({"label_selector": {"zone": "in(a,c)"}}, "needs label zone in (a,c), node has b"),
    "other": ({"label_selector": {"zone": "!b"}}, "needs label zone other than b, node has b"),
    "none": ({"label_selector": {"rack": "7"}}, "needs label rack=7, node has none"),
    "exists": (
        {"scheduling_strategy": NodeLabelSchedulingStrategy({"tpu": Exists()})},
        "needs label tpu, node has none",
    ),
    "absent": (
        {"scheduling_strategy": NodeLabelSchedulingStrategy({"disk": DoesNotExist()})},
        "needs label no disk, node has ssd",
    ),
    "not in": (
        {"scheduling_strategy": NodeLabelSchedulingStrategy({"zone": NotIn("a", "b")})},
        "needs label zone not in (a,b), node has b",
    ),
    "fallback": (
        {
            "label_selector": {"zone": "a"},
            "fallback_strategy": [{"label_selector": {"zone": "c"}}],
        },
        "needs label zone=a, node has b",
    ),
}


@pytest.mark.parametrize(("options", "lack"), UNMET.values(), ids=UNMET)
def test_what_the_node_does_not_meet_waits_and_says_so_once(options, lack, capfd):
    ref = work.options(name="far", **options).remote()
    with pytest.raises(GetTimeoutError) as caught:
        hoplo.get(ref, timeout=0.5)
    assert f"of far is queued: {lack}" in str(caught.value)
    assert lack in command("why", ref.hex()).stdout
    error = capfd.readouterr().err
    assert error.count(lack) == 1, error
    # Others of the same resources go on.
    assert hoplo.get(work.remote(), timeout=10) == 1
    hoplo.cancel(ref)


def test_what_must_run_on_a_node_that_never_was_fails_instead_of_waiting_for_ever():
    nowhere = NodeAffinitySchedulingStrategy("0000aa")
    lack = "needs node 0000aa, which is not in this cluster; name another node"
    ref = work.options(scheduling_strategy=nowhere).remote()
    with pytest.raises(TaskUnschedulableError, match=lack):
        hoplo.get(ref, timeout=20)
    actor = Actor.options(scheduling_strategy=nowhere, max_restarts=3).remote()
    with pytest.raises(ActorUnschedulableError, match=lack):
        hoplo.get(actor.work.remote(), timeout=20)


def test_an_actor_that_may_not_run_here_holds_up_no_other():
    far = Actor.options(label_selector={"zone": "a"}).remote()
    near = Actor.remote()
    assert hoplo.get(near.work.remote(), timeout=10) == 2
    with pytest.raises(GetTimeoutError, match="needs label zone=a, node has b"):
        hoplo.get(far.work.remote(), timeout=0.5)
    lack = "needs label zone=a, node has b"
    eventually(lambda: any(lack in str(row) for row in listed("actors")))


def test_shapes_that_differ_in_their_place_share_no_lease():
    refs = [work.options(label_selector={"zone": zone}).remote() for zone in "ab" * 20]
    assert hoplo.get(refs[1::2], timeout=10) == [1] * 20
    for ref in refs[::2]:
        hoplo.cancel(ref)


def test_conditions_are_checked():
    for wrong, error, text in [
        (lambda: In(), ValueError, "In needs at least one value"),
        (lambda: In(3), TypeError, "In: a value must be a str"),
        (lambda: NodeLabelSchedulingStrategy(), ValueError, "give hard or soft conditions"),
        (lambda: NodeLabelSchedulingStrategy({"a": "b"}), TypeError, r"hard\['a'\] must be In"),
        (lambda: NodeLabelSchedulingStrategy({"": In("b")}), ValueError, "an empty label"),
        (lambda: NodeLabelSchedulingStrategy({1: In("b")}), TypeError, "names of labels"),
        (lambda: NodeLabelSchedulingStrategy([]), ValueError, "give hard or soft"),
        (lambda: NodeLabelSchedulingStrategy({}, soft=[1]), TypeError, "soft must be a dict"),
        (lambda: NodeAffinitySchedulingStrategy("ab" * 16), ValueError, "six hexadecimal digits"),
        (lambda: NodeAffinitySchedulingStrategy(""), ValueError, "six hexadecimal digits"),
        (lambda: NodeAffinitySchedulingStrategy(3), TypeError, "must be the id of a node"),
        (lambda: NodeAffinitySchedulingStrategy("0000aa", 1), TypeError, "soft must be True or"),
    ]:
        with pytest.raises(error, match=text):
            wrong()
    assert In("b", "a") == In("a", "b") != NotIn("a", "b")
    assert repr(In("b", "a")) == "In('a', 'b')"
