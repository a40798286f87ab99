"""Bytes that move between nodes: of every size, to many at once, and when there is no room."""

from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np
import pytest
from far import MIB, count_bytes, echo, ones
from machines import until

import hoplo

SIZES = {"1 KB": 1000, "200 KB": 200_000, "10 MB": 10_000_000, "200 MB": 200_000_000}


def pattern(nbytes: int) -> Any:
    """No two pages alike: a page that is missing, or comes twice, shows."""
    return np.arange(-(-nbytes // 8), dtype=np.uint64).view(np.uint8)[:nbytes]


@hoplo.remote
def makes(nbytes: int) -> Any:
    return pattern(nbytes)


@hoplo.remote
def is_right(array: Any) -> bool:
    return bool(np.array_equal(array, pattern(array.nbytes)))


@pytest.mark.parametrize("nbytes", SIZES.values(), ids=SIZES)
def test_bytes_made_there_are_read_here(far: Any, nbytes: int) -> None:
    ref = makes.options(scheduling_strategy=far.on(1)).remote(nbytes)
    assert np.array_equal(hoplo.get(ref, timeout=60), pattern(nbytes))


@pytest.mark.parametrize("nbytes", SIZES.values(), ids=SIZES)
def test_bytes_put_here_are_read_there(far: Any, nbytes: int) -> None:
    ref = hoplo.put(pattern(nbytes))
    assert hoplo.get(is_right.options(scheduling_strategy=far.on(1)).remote(ref), timeout=60)


@pytest.mark.parametrize("nbytes", SIZES.values(), ids=SIZES)
def test_bytes_of_one_node_are_read_on_another_one(far: Any, nbytes: int) -> None:
    ref = makes.options(scheduling_strategy=far.on(1)).remote(nbytes)
    assert hoplo.get(is_right.options(scheduling_strategy=far.on(2)).remote(ref), timeout=60)


@pytest.mark.parametrize("nbytes", [0, 1, 4095, 4096, 4097, 65535, 65536, 65537, 131071, 1 << 20])
def test_sizes_around_the_edges(far: Any, nbytes: int) -> None:
    blob = os.urandom(nbytes)
    assert hoplo.get(echo.options(scheduling_strategy=far.on(1)).remote(blob), timeout=20) == blob


def test_a_value_that_is_bytes_and_arrays_and_text(far: Any) -> None:
    value = {"a": np.arange(50_000), "b": b"x" * 300_000, "c": ["text" * 1000] * 10, "d": [None]}
    got = hoplo.get(echo.options(scheduling_strategy=far.on(2)).remote(value), timeout=20)
    np.testing.assert_array_equal(got.pop("a"), value.pop("a"))
    assert got == value


def test_a_second_read_at_the_same_node_moves_nothing(make_lab: Any) -> None:
    lab = make_lab(nodes=2)
    lab.cluster()
    source = """
    import numpy as np
    from far import count_bytes
    from hoplo.util.scheduling_strategies import NodeAffinitySchedulingStrategy
    hoplo.init(address="auto")
    [there] = [n["NodeID"] for n in hoplo.nodes() if n["NodeManagerAddress"] != "10.199.0.1"]
    task = count_bytes.options(scheduling_strategy=NodeAffinitySchedulingStrategy(there))
    ref = hoplo.put(np.ones(10_000_000, np.uint8))
    for _ in range(3):
        say(hoplo.get(task.remote(ref)))
        heard()
    """
    program = lab[1].program(source, PYTHONPATH=os.path.dirname(os.path.abspath(__file__)))
    seen = []
    for _ in range(3):
        assert program.heard() == 10_000_000
        seen.append(lab.moved(2)["rx_bytes"])
        program.tell()
    program.end()
    assert 10_000_000 < seen[0] < 13_000_000
    assert seen[2] - seen[0] < 200_000


def test_one_object_is_read_by_all_nodes_at_once(far: Any) -> None:
    ref = hoplo.put(pattern(20 * MIB))
    refs = [is_right.options(scheduling_strategy=far.on(n % 3)).remote(ref) for n in range(6)]
    assert all(hoplo.get(refs, timeout=60))


def test_many_objects_at_once_from_both_sides(far: Any) -> None:
    made = [makes.options(scheduling_strategy=far.on(1 + n % 2)).remote(MIB) for n in range(40)]
    checked = [
        is_right.options(scheduling_strategy=far.on(2 - n % 2)).remote(ref)
        for n, ref in enumerate(made)
    ]
    assert all(hoplo.get(checked, timeout=60))
    for array in hoplo.get(made, timeout=60):
        np.testing.assert_array_equal(array, pattern(MIB))


def test_a_shuffle(far: Any) -> None:
    """Every node makes parts for every node: what one task gave is read in three places."""

    @hoplo.remote(num_returns=3)
    def split(seed: int) -> Any:
        numbers = np.random.default_rng(seed).integers(0, 3, 300_000).astype(np.uint8)
        return tuple(numbers[numbers == part] for part in range(3))

    @hoplo.remote
    def merge(*parts: Any) -> tuple[set[int], int]:
        whole = np.concatenate(parts)
        return {int(n) for n in np.unique(whole)}, len(whole)

    rows = [split.options(scheduling_strategy=far.on(seed % 3)).remote(seed) for seed in range(6)]
    merged = [
        merge.options(scheduling_strategy=far.on(part)).remote(*(row[part] for row in rows))
        for part in range(3)
    ]
    results = hoplo.get(merged, timeout=60)
    assert [kinds for kinds, _ in results] == [{0}, {1}, {2}]
    assert sum(count for _, count in results) == 6 * 300_000


def test_an_argument_that_does_not_come_holds_up_no_other(make_far: Any) -> None:
    """Fetched one by one, in a shuffle one node sent to two and another one to nobody."""
    far = make_far(flags=[(), (), ()])

    @hoplo.remote
    def lengths(*arrays: Any) -> list[int]:
        return [len(array) for array in arrays]

    refs = [makes.options(scheduling_strategy=far.on(number)).remote(MIB) for number in (1, 2)]
    hoplo.wait(refs, num_returns=2, timeout=30, fetch_local=False)
    here = lengths.options(scheduling_strategy=far.on(0))
    assert hoplo.get(here.remote(), timeout=30) == []
    silent = far.machines[1].pid
    os.kill(silent, signal.SIGSTOP)
    try:
        reading = here.remote(*refs)
        until(lambda: nodes_of(far, refs[1]) == {0, 2})
        assert nodes_of(far, refs[0]) != {0, 1}
    finally:
        os.kill(silent, signal.SIGCONT)
    del reading  # if this took long, a node that is silent is dead, and what it has is lost


# ------------------------------------------------------------------------------- no room

STORE = 64 * MIB


@pytest.fixture
def small(make_far: Any) -> Any:
    """The far node's store holds 64 MiB."""
    return make_far(flags=[(), ("--object-store-memory", str(STORE))])


def test_an_object_larger_than_the_store_of_its_reader(small: Any) -> None:
    ref = hoplo.put(pattern(100 * MIB))
    assert hoplo.get(is_right.options(scheduling_strategy=small.on(1)).remote(ref), timeout=60)


def test_what_is_folded_on_its_way_is_the_result_where_it_lies(small: Any) -> None:
    """Of a copy of 40 MiB one half would have to go to the disk of that node."""
    members = [hoplo.put(np.full(5 * MIB, float(number))) for number in (1, 2)]
    total = hoplo.reduce(members, on=small.ids[1])
    hoplo.wait([total], timeout=60, fetch_local=False)
    store = small.machines[1].status()["store"]
    assert (store["objects"], store["spilled_objects"]) == (1, 0), store
    assert (hoplo.get(total, timeout=60) == 3).all()


def test_an_object_larger_than_the_store_of_its_maker(small: Any) -> None:
    ref = makes.options(scheduling_strategy=small.on(1)).remote(100 * MIB)
    np.testing.assert_array_equal(hoplo.get(ref, timeout=60), pattern(100 * MIB))


def test_more_than_the_store_holds_one_after_the_other(small: Any) -> None:
    refs = [hoplo.put(pattern(20 * MIB)) for _ in range(8)]
    task = is_right.options(scheduling_strategy=small.on(1))
    assert all(hoplo.get([task.remote(ref) for ref in refs], timeout=60))
    made = [makes.options(scheduling_strategy=small.on(1)).remote(20 * MIB) for _ in range(8)]
    for ref in made:
        assert np.array_equal(hoplo.get(ref, timeout=60), pattern(20 * MIB))


def test_what_was_spilled_is_read_from_elsewhere(small: Any) -> None:
    """The first ones went to disk when the others came."""
    made = [makes.options(scheduling_strategy=small.on(1)).remote(20 * MIB) for _ in range(6)]
    hoplo.wait(made, num_returns=len(made), timeout=60)
    until(lambda: small.machines[1].status()["store"]["spilled_objects"] > 0)
    for ref in made:
        assert np.array_equal(hoplo.get(ref, timeout=60), pattern(20 * MIB))


# ------------------------------------------------------------------------------- interrupted


def test_a_get_with_a_timeout_gives_up_and_a_later_one_has_it(far: Any) -> None:
    ref = ones.options(scheduling_strategy=far.on(1)).remote(100 * MIB)
    hoplo.wait([ref], timeout=20)
    try:
        hoplo.get(ref, timeout=0.001)
    except TimeoutError:
        pass
    assert hoplo.get(ref, timeout=60).nbytes == 100 * MIB


def test_the_reader_is_killed_while_it_reads_and_the_next_one_reads_all(far: Any) -> None:
    ref = hoplo.put(pattern(100 * MIB))

    @hoplo.remote(max_retries=0)
    def dies_reading(boxed: Any) -> None:
        import threading

        threading.Timer(0.005, os.kill, (os.getpid(), 9)).start()
        while True:
            hoplo.get(boxed[0])

    failed = dies_reading.options(scheduling_strategy=far.on(1)).remote([ref])
    with pytest.raises(hoplo.exceptions.WorkerCrashedError):
        hoplo.get(failed, timeout=30)
    assert hoplo.get(is_right.options(scheduling_strategy=far.on(1)).remote(ref), timeout=60)
    assert hoplo.get(count_bytes.options(scheduling_strategy=far.on(2)).remote(ref), timeout=60)


def test_a_link_that_breaks_while_bytes_move_costs_nothing(make_lab: Any) -> None:
    """A cut of 300 ms in the middle of 50 MB at 400 Mbit/s."""
    import time

    lab = make_lab(nodes=2, rate=400e6)
    lab.cluster()
    source = """
    import numpy as np
    from far import count_bytes
    from hoplo.util.scheduling_strategies import NodeAffinitySchedulingStrategy
    hoplo.init(address="auto")
    [there] = [n["NodeID"] for n in hoplo.nodes() if n["NodeManagerAddress"] != "10.199.0.1"]
    task = count_bytes.options(scheduling_strategy=NodeAffinitySchedulingStrategy(there))
    say(hoplo.get(task.remote(np.ones(10, np.uint8))))
    say(hoplo.get(task.remote(hoplo.put(np.ones(50_000_000, np.uint8)))))
    """
    program = lab[1].program(source, PYTHONPATH=os.path.dirname(os.path.abspath(__file__)))
    assert program.heard() == 10
    before = lab.moved(2)["rx_bytes"]
    until(lambda: lab.moved(2)["rx_bytes"] - before > 10_000_000)
    with lab.without(2):
        time.sleep(0.3)  # the length of the cut is what is tried
    assert program.heard() == 50_000_000
    program.end()
    assert lab[1].states() == ["ALIVE", "ALIVE"]


# ------------------------------------------------------------------------------- where they are


def locations(refs: list[Any]) -> list[Any]:
    found = hoplo.experimental.object_locations(refs)
    return [found[ref] for ref in refs]


def nodes_of(far: Any, ref: Any) -> set[int]:
    [found] = locations([ref])
    return {far.number(node) for node in found["node_ids"]}


def test_where_objects_are_is_known(far: Any) -> None:
    made = makes.options(scheduling_strategy=far.on(1)).remote(2 * MIB)
    put, small = hoplo.put(pattern(MIB)), hoplo.put(1)
    hoplo.wait([made], fetch_local=False, timeout=30)
    assert (nodes_of(far, made), nodes_of(far, put)) == ({1}, {0})
    assert hoplo.get(is_right.options(scheduling_strategy=far.on(2)).remote(put), timeout=30)
    until(lambda: nodes_of(far, put) == {0, 2})
    hoplo.get(made, timeout=30)
    until(lambda: nodes_of(far, made) == {0, 1})
    sizes = [found["object_size"] for found in locations([made, put, small])]
    assert sizes[0] >= 2 * MIB > sizes[1] >= MIB
    assert sizes[2] is None
    assert locations([small])[0]["node_ids"] == []
    with pytest.raises(TypeError, match="list of refs"):
        hoplo.experimental.object_locations(made)


def test_what_went_to_disk_is_known(small: Any) -> None:
    made = [makes.options(scheduling_strategy=small.on(1)).remote(20 * MIB) for _ in range(6)]
    hoplo.wait(made, num_returns=len(made), timeout=60, fetch_local=False)
    until(lambda: any(found["did_spill"] for found in locations(made)))


def test_wait_fetches_unless_it_is_told_not_to(far: Any) -> None:
    ref = makes.options(scheduling_strategy=far.on(1)).remote(4 * MIB)
    assert hoplo.wait([ref], timeout=30, fetch_local=False) == ([ref], [])
    assert nodes_of(far, ref) == {1}
    assert hoplo.wait([ref], timeout=30) == ([ref], [])
    assert nodes_of(far, ref) == {0, 1}


def test_wait_for_some_of_many_fetches_them(far: Any) -> None:
    refs = [makes.options(scheduling_strategy=far.on(1 + n % 2)).remote(MIB) for n in range(6)]
    ready, rest = hoplo.wait(refs, num_returns=4, timeout=30)
    assert (len(ready), len(rest)) == (4, 2)
    assert all(0 in nodes_of(far, ref) for ref in ready)


def test_a_borrower_waits_for_a_word_or_for_the_bytes(far: Any) -> None:
    """It did not make the object, and is told of it by the object's home only."""

    @hoplo.remote
    def waits(boxed: list[Any], fetch_local: bool) -> Any:
        ready, _ = hoplo.wait(boxed, timeout=30, fetch_local=fetch_local)
        here = hoplo.get_runtime_context().get_node_id()
        [found] = hoplo.experimental.object_locations(boxed).values()
        return len(ready), here in found["node_ids"]

    ref = hoplo.put(pattern(4 * MIB))
    there = waits.options(scheduling_strategy=far.on(1))
    assert hoplo.get(there.remote([ref], False), timeout=60) == (1, False)
    assert hoplo.get(there.remote([ref], True), timeout=60) == (1, True)


def test_a_borrower_waits_for_what_is_not_made_yet(far: Any, gate: Any) -> None:
    @hoplo.remote
    def made_later(gate: Any) -> Any:
        gate.wait()
        return pattern(4 * MIB)

    @hoplo.remote
    def waits(boxed: list[Any], gate: Any) -> Any:
        before = hoplo.wait(boxed, timeout=0, fetch_local=False)[0]
        gate.open()
        after = hoplo.wait(boxed, timeout=30, fetch_local=False)[0]
        return len(before), len(after), hoplo.get(boxed[0], timeout=30).nbytes

    ref = made_later.options(scheduling_strategy=far.on(2)).remote(gate)
    there = waits.options(scheduling_strategy=far.on(1))
    assert hoplo.get(there.remote([ref], gate), timeout=60) == (0, 1, 4 * MIB)


# ------------------------------------------------------------------------------- copies


def test_copies_go_first_when_memory_is_short_and_nothing_is_written(small: Any) -> None:
    """Their home still has them: they are fetched again when somebody reads them again."""
    refs = [hoplo.put(pattern(20 * MIB)) for _ in range(6)]
    task = is_right.options(scheduling_strategy=small.on(1))
    for ref in [*refs, *refs]:
        assert hoplo.get(task.remote(ref), timeout=60)
    store = small.machines[1].status()["store"]
    assert store["evictions"] >= 6
    assert store["spilled_objects"] == 0
    until(lambda: sum(1 in nodes_of(small, ref) for ref in refs) <= STORE // (20 * MIB))
