"""What is put on several nodes outlives any one of them.

Node 0 has the driver, node 1 is where things are put, and dies.
"""

from __future__ import annotations

import resource
from typing import Any

import numpy as np
import pytest
from far import MIB, Keeper, count_bytes, ones
from machines import until

import hoplo
from hoplo.exceptions import ObjectLostError
from hoplo.experimental import object_locations, wait_for_copies

ENDS = pytest.mark.parametrize("ends", ["node", "daemon"])
"""All of its processes at once, or the daemon alone."""

SIZES = pytest.mark.parametrize("nbytes", [10, MIB], ids=["small", "large"])
"""A small value would lie in its owner and in messages, if it were not put with copies."""


@hoplo.remote
def puts(nbytes: int, copies: int) -> list[hoplo.ObjectRef]:
    return [hoplo.put(np.ones(nbytes, np.uint8), copies=copies)]


@hoplo.remote
def puts_box(boxed: list[hoplo.ObjectRef]) -> list[hoplo.ObjectRef]:
    return [hoplo.put({"inside": boxed}, copies=2)]


def put_at(far: Any, number: int, task: Any, *args: Any) -> hoplo.ObjectRef:
    there = task.options(scheduling_strategy=far.on(number))
    (ref,) = hoplo.get(there.remote(*args), timeout=20)
    return ref


def at(far: Any, ref: hoplo.ObjectRef) -> set[int]:
    return {far.number(node) for node in object_locations([ref])[ref]["node_ids"]}


def several(ref: hoplo.ObjectRef) -> tuple[int | None, int | None]:
    found = object_locations([ref])[ref]
    return found["copies_wanted"], found["copies_had"]


def dies(far: Any, number: int, ends: str = "node") -> None:
    """The head knows it; its copies are being made anew."""
    (far.kill_node if ends == "node" else far.kill_daemon)(number)
    dead = lambda: len(far.machines[0].states()) - far.machines[0].states().count("ALIVE")  # noqa: E731
    until(lambda: dead() == len(far.killed), what="its death is known")


def stores_are_empty(far: Any) -> None:
    far.until_no_objects()
    for number, machine in enumerate(far.machines):
        if number not in far.killed:
            store = machine.status()["store"]
            assert store["objects"] == store["spilled_objects"] == 0, store


@ENDS
@SIZES
def test_what_has_two_copies_is_there_after_its_node_died(
    make_far: Any, nbytes: int, ends: str
) -> None:
    far = make_far(3)
    ref = put_at(far, 1, puts, nbytes, 2)
    assert wait_for_copies([ref], timeout=20)
    assert several(ref) == (2, 2)
    assert 1 in at(far, ref)
    dies(far, 1, ends)
    assert hoplo.get(ref, timeout=20).sum() == nbytes
    there = count_bytes.options(scheduling_strategy=far.on(2))
    assert hoplo.get(there.remote(ref), timeout=20) == nbytes
    del ref
    stores_are_empty(far)


def test_what_has_one_copy_is_lost_and_the_error_says_how_it_would_not_be(make_far: Any) -> None:
    far = make_far(3)
    ref = put_at(far, 1, puts, MIB, 1)
    dies(far, 1)
    with pytest.raises(ObjectLostError, match=r"hoplo\.put\(value, copies=2\)"):
        hoplo.get(ref, timeout=20)


def test_copies_are_made_again_while_one_is_left(make_far: Any) -> None:
    """Of four nodes three die, one after the other."""
    far = make_far(4)
    ref = put_at(far, 1, puts, MIB, 2)
    assert wait_for_copies([ref], timeout=20)
    dies(far, 1)
    assert wait_for_copies([ref], timeout=20)
    dies(far, max(at(far, ref)))
    assert wait_for_copies([ref], timeout=20)
    assert 0 in at(far, ref), "two nodes are left"
    dies(far, max(at(far, ref)))
    assert several(ref) == (2, 1)
    assert not wait_for_copies([ref], timeout=0)
    assert hoplo.get(ref, timeout=20).sum() == MIB
    del ref
    stores_are_empty(far)


def test_a_node_that_joins_gets_the_copies_that_nobody_could_have(make_far: Any) -> None:
    far = make_far(1)
    ref = hoplo.put("alone", copies=2)
    assert not wait_for_copies([ref], timeout=0)
    assert several(ref) == (2, 1)
    number = far.add()
    assert wait_for_copies([ref], timeout=20)
    assert at(far, ref) == {0, number}
    rows = [row for row in far.machines[0].objects() if row["object_id"] == ref.hex()]
    numbers = {far.number(row["node"]): (row["copies_wanted"], row["copies_had"]) for row in rows}
    assert numbers == {0: (2, 2), number: (None, None)}
    why = far.machines[0].hoplo("why", ref.hex()).stdout
    assert "put with 2 copies, of which 2 nodes have one" in why, why
    dies(far, number)
    assert several(ref) == (2, 1)
    del ref
    stores_are_empty(far)


def test_what_is_inside_is_held_and_needs_copies_of_its_own(make_far: Any) -> None:
    far = make_far(3)
    lost = put_at(far, 1, puts, MIB, 1)
    kept = put_at(far, 1, puts, MIB, 2)
    box = put_at(far, 1, puts_box, [lost, kept])
    assert wait_for_copies([kept, box], timeout=20)
    del lost, kept
    dies(far, 1)
    lost, kept = hoplo.get(box, timeout=20)["inside"]
    assert hoplo.get(kept, timeout=20).sum() == MIB
    with pytest.raises(ObjectLostError, match="no other node has a copy"):
        hoplo.get(lost, timeout=20)
    del lost, kept, box
    stores_are_empty(far)


def test_who_keeps_a_ref_at_a_third_node_reads_it_after_the_death(make_far: Any) -> None:
    far = make_far(3)
    keeper = Keeper.options(scheduling_strategy=far.on(2), num_cpus=0).remote()
    ref = put_at(far, 1, puts, MIB, 3)
    hoplo.get(keeper.keep.remote([ref]), timeout=20)
    assert wait_for_copies([ref], timeout=20)
    assert at(far, ref) == {0, 1, 2}
    del ref
    dies(far, 1)
    assert hoplo.get(keeper.read.remote(), timeout=20).sum() == MIB
    hoplo.get(keeper.drop.remote(), timeout=20)
    stores_are_empty(far)


def test_a_node_that_is_drained_leaves_no_object_with_a_copy_less(make_far: Any) -> None:
    far = make_far(3)
    refs = [hoplo.put(np.ones(MIB, np.uint8), copies=2) for _ in range(5)]
    assert wait_for_copies(refs, timeout=20)
    drained = max(at(far, refs[0]))
    assert "it was drained" in far.machines[0].hoplo("drain", far.ids[drained], seconds=60).stdout
    far.killed.add(drained)
    assert wait_for_copies(refs, timeout=20)
    assert all(at(far, ref) == {0, 3 - drained} for ref in refs)
    del refs
    stores_are_empty(far)


# ------------------------------------------------------------------------------- a full store

STORE = 64 * MIB


def test_copies_at_a_node_whose_memory_is_full_go_to_its_disk(make_far: Any) -> None:
    """There is one other node, and it has room for 64 MiB."""
    far = make_far(flags=[(), ("--object-store-memory", str(STORE))])
    there = ones.options(scheduling_strategy=far.on(1))
    made = [there.remote(20 * MIB) for _ in range(3)]
    hoplo.wait(made, num_returns=3, timeout=60, fetch_local=False)
    refs = [hoplo.put(np.full(20 * MIB, n, np.uint8), copies=2) for n in range(3)]
    assert wait_for_copies(refs, timeout=60)
    # More comes, and drops what readers fetched; what is kept stays.
    more = [hoplo.put(np.ones(20 * MIB, np.uint8)) for _ in range(6)]
    read = count_bytes.options(scheduling_strategy=far.on(1))
    assert hoplo.get([read.remote(ref) for ref in more], timeout=60) == [20 * MIB] * 6
    assert [several(ref) for ref in refs] == [(2, 2)] * 3
    assert all(at(far, ref) == {0, 1} for ref in refs)
    assert hoplo.get([read.remote(ref) for ref in refs], timeout=60) == [0, 20 * MIB, 40 * MIB]
    del refs, made, more
    stores_are_empty(far)


def limit_files(machine: Any, nbytes: int) -> None:
    """Lets the daemon write no file beyond this size: its disk is as good as full."""
    hard = resource.prlimit(machine.pid, resource.RLIMIT_FSIZE)[1]
    resource.prlimit(machine.pid, resource.RLIMIT_FSIZE, (nbytes, hard))


def test_a_node_whose_disk_is_full_too_is_passed_over_until_it_has_room(make_far: Any) -> None:
    """What is larger than the stores of the others goes to their disks, of which none has room."""
    far = make_far(flags=[(), *[("--object-store-memory", str(STORE))] * 2])
    for machine in far.machines[1:]:
        limit_files(machine, MIB)
    ref = hoplo.put(np.ones(STORE + MIB, np.uint8), copies=2)
    small = hoplo.put("small", copies=2)
    assert wait_for_copies([small], timeout=60), "who has no room for one may have it for another"
    assert not wait_for_copies([ref], timeout=0)
    assert (several(ref), at(far, ref)) == ((2, 1), {0})
    limit_files(far.machines[2], resource.RLIM_INFINITY)
    assert wait_for_copies([ref], timeout=60)
    assert at(far, ref) == {0, 2}
    limit_files(far.machines[1], resource.RLIM_INFINITY)
    del ref, small
    stores_are_empty(far)


# ------------------------------------------------------------------------------- waiting for them


def test_to_wait_for_copies_of_what_has_none_is_an_error_and_not_for_ever(
    far: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hoplo.experimental, "_UNKNOWN_S", 0)
    for ref in (hoplo.put("small"), hoplo.put(np.ones(MIB, np.uint8))):
        with pytest.raises(ValueError, match="was not put with copies, or is lost"):
            wait_for_copies([ref])
    with pytest.raises(TypeError, match="wait_for_copies takes a list of refs"):
        wait_for_copies(ref)
    with pytest.raises(ValueError, match="timeout must be 0 or more seconds"):
        wait_for_copies([ref], timeout=-1)
    assert wait_for_copies([])
    assert several(ref) == (None, None)
