"""Reduces over several nodes: members are folded on their way, and sums are right."""

from __future__ import annotations

import functools
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from far import Far, cluster
from machines import until

import hoplo
from hoplo import _core
from hoplo.util.state import list_tasks

ELEMENTS = 300_000


@pytest.fixture(scope="module")
def far() -> Iterator[Far]:
    with cluster(nodes=4) as far:
        yield far


@pytest.fixture(autouse=True)
def nothing_left(far: Far) -> Iterator[None]:
    yield
    far.until_no_objects()


@hoplo.remote
def made(value: Any) -> Any:
    return value


@hoplo.remote
def filled(number: float, dtype: Any = "f8", elements: int = ELEMENTS) -> Any:
    return (np.arange(elements) % 5 + number).astype(dtype)


@hoplo.remote
def filled_in_the_store(number: float) -> Any:
    array = hoplo.empty(ELEMENTS)
    array[:] = number
    return array


@hoplo.remote
def after(gate: Any, value: Any) -> Any:
    return gate.wait(value)


@hoplo.remote
def failing() -> None:
    raise LookupError("broken")


def folded(op: str, refs: list[Any]) -> Any:
    made = _core.fold_members(op, refs, False)
    assert isinstance(made, _core.Folded), made
    return made.put()


def refused(refs: list[Any]) -> str:
    """Why nodes never fold these. One behind that which found it out may be heard first, and says
    that another try may help."""
    for _ in range(20):
        made = _core.fold_members("sum", refs, False)
        assert isinstance(made, tuple), made
        why, again, _ = made
        if not again:
            return why
    raise AssertionError(f"each time another try was to help: {why}")


def on(far: Far, node: int, function: Any) -> Any:
    return function.options(scheduling_strategy=far.on(node))


def members(far: Far, nodes: list[int], **more: Any) -> list[Any]:
    """One at each of these nodes."""
    refs = [on(far, node, filled).remote(at, **more) for at, node in enumerate(nodes)]
    hoplo.wait(refs, num_returns=len(refs), fetch_local=False)
    return refs


def sums(nodes: list[int], dtype: Any = "f8", ufunc: Any = np.add, elements: int = ELEMENTS) -> Any:
    arrays = [(np.arange(elements) % 5 + at).astype(dtype) for at in range(len(nodes))]
    return functools.reduce(ufunc, arrays)


CHAINS = [[1, 2, 3], [0, 1, 2, 3], [1, 0], [1, 1, 2, 2, 3, 3], [2, 2], [3], [0, 0, 2, 2, 2]]


@pytest.mark.parametrize("nodes", CHAINS, ids=str)
def test_members_of_these_nodes_are_folded_on_their_way(far: Far, nodes: list[int]) -> None:
    total = folded("sum", members(far, nodes))
    np.testing.assert_array_equal(hoplo.get(total), sums(nodes))


BFLOAT16 = ml_dtypes.bfloat16


@pytest.mark.parametrize(
    "dtype", ["?", "i1", "u2", "i4", "u8", "f2", BFLOAT16, "f4", "f8", "c8", "c16"]
)
def test_each_dtype_is_summed_as_numpy_does_it(far: Far, dtype: Any) -> None:
    nodes = [1, 2, 2, 0]
    total = folded("sum", members(far, nodes, dtype=dtype))
    np.testing.assert_array_equal(hoplo.get(total), sums(nodes, dtype))
    assert hoplo.get(total).dtype == np.dtype(dtype)


@pytest.mark.parametrize("dtype", ["i4", "f2", BFLOAT16, "f4", "f8", "c8", "c16"])
def test_means_are_those_of_numpy(far: Far, dtype: Any) -> None:
    nodes = [1, 2, 3]
    mean = hoplo.get(hoplo.reduce(members(far, nodes, dtype=dtype), "mean"))
    want = np.true_divide(sums(nodes, dtype), 3)
    assert mean.dtype == (np.dtype(dtype) if dtype != "i4" else np.dtype("f8"))
    np.testing.assert_array_equal(mean, want.astype(mean.dtype))


@pytest.mark.parametrize("number", [np.uint8(200), np.bool_(True), np.float16(40000)])
@pytest.mark.parametrize("nodes", [[1, 2, 3], [0, 1, 2, 3], [1, 1, 2, 2], [3, 3]], ids=str)
def test_means_whose_sums_would_be_too_large_are_right(
    far: Far, nodes: list[int], number: Any
) -> None:
    array = np.full(ELEMENTS, number)
    refs = [on(far, node, made).remote({"w": array, "x": array[:3]}) for node in nodes]
    hoplo.wait(refs, num_returns=len(refs), fetch_local=False)
    want = np.mean([array], axis=0)
    for mean in (
        hoplo.get(hoplo.reduce(refs, "mean")),
        hoplo.get(hoplo.reduce(refs, "mean", deterministic=True)),
        *read_at_all(far, hoplo.allreduce(refs, "mean")),
    ):
        np.testing.assert_array_equal(mean["w"], want, strict=True)
        np.testing.assert_array_equal(mean["x"], want[:3], strict=True)


@pytest.mark.parametrize("number", [np.uint8(200), np.float16(40000), np.float32(2.5)])
def test_a_mean_whose_last_member_comes_late_is_right(far: Far, number: Any, gate: Any) -> None:
    array = np.full(ELEMENTS, number)
    refs = [on(far, node, made).remote(array) for node in (2, 1)]
    refs.append(on(far, 3, after).remote(gate, array))
    total = hoplo.allreduce(refs, "mean")
    # Longer than members wait for each other.
    assert hoplo.wait([total], timeout=0.2) == ([], [total])
    gate.open()
    want = np.mean([array], axis=0)
    for mean in read_at_all(far, total):
        np.testing.assert_array_equal(mean, want, strict=True)


def test_what_was_folded_is_put_once(far: Far) -> None:
    made = _core.fold_members("mean", members(far, [1, 2]), False)
    assert isinstance(made, _core.Folded)
    total = made.put()
    with pytest.raises(ValueError, match="an object already"):
        made.put()
    np.testing.assert_array_equal(hoplo.get(total), sums([1, 2]) / 2)
    # One that nobody wants gives its room back: see `nothing_left`.
    _core.fold_members("sum", members(far, [1, 2]), False)


@pytest.mark.parametrize(
    ("op", "ufunc"), [("prod", np.multiply), ("min", np.minimum), ("max", np.maximum)]
)
@pytest.mark.parametrize("dtype", ["i4", BFLOAT16, "f4"])
def test_each_op_is_that_of_numpy(far: Far, op: str, ufunc: Any, dtype: Any) -> None:
    nodes = [1, 2, 3]
    total = folded(op, members(far, nodes, dtype=dtype))
    np.testing.assert_array_equal(hoplo.get(total), sums(nodes, dtype, ufunc))


def test_what_is_no_number_stays_none(far: Far) -> None:
    arrays = [np.full(ELEMENTS, 1.0) for _ in range(3)]
    arrays[1][7] = np.nan
    refs = [
        on(far, node, made).remote(array) for node, array in zip((1, 2, 3), arrays, strict=True)
    ]
    got = hoplo.get(hoplo.reduce(refs, "max"))
    assert np.isnan(got[7])
    assert np.isnan(got).sum() == 1


def test_it_does_not_matter_how_members_came_into_their_stores(far: Far) -> None:
    refs = [hoplo.put(np.full(ELEMENTS, 1.0))]
    refs += [on(far, 1, filled_in_the_store).remote(2.0)]
    refs += [on(far, node, made).remote(np.full(ELEMENTS, 4.0)) for node in (2, 3)]
    hoplo.wait(refs, num_returns=4, fetch_local=False)
    for taken, want in ((refs, 11), (refs[1:], 10), (refs[::-1], 11)):
        assert (hoplo.get(folded("sum", taken)) == want).all()
        assert (hoplo.get(hoplo.allreduce(taken)) == want).all()


def test_parameters_of_a_model_keep_their_structure(far: Far) -> None:
    def model(x: float) -> Any:
        layers = [(np.full((300, 700), x), np.full(3, x, "f4")) for _ in range(2)]
        return {"layers": layers, "bias": np.full(7, x)}

    refs = [on(far, node, made).remote(model(x)) for node, x in ((1, 1.0), (2, 2.0), (3, 4.0))]
    hoplo.wait(refs, num_returns=3, fetch_local=False)
    assert isinstance(_core.fold_members("sum", refs, False), _core.Folded)
    means = [
        hoplo.get(hoplo.reduce(refs, "mean")),
        *read_at_all(far, hoplo.allreduce(refs, "mean")),
    ]
    for got in means:
        assert (got["layers"][1][0] == 7 / 3).all()
        assert (got["layers"][0][1] == np.float32(7) / 3).all()
        assert got["bias"].tolist() == [7 / 3] * 7


def test_a_reduce_of_reduces_at_a_node_of_its_own(far: Far) -> None:
    halves = [
        hoplo.reduce(members(far, nodes), on=far.ids[node])
        for nodes, node in (([1, 2], 2), ([3, 0], 3))
    ]
    total = hoplo.reduce(halves, on=far.ids[1])
    want = 2 * sums([1, 2])
    assert (hoplo.get(total) == want).all()
    assert (hoplo.get(on(far, 2, made).remote(total)) == want).all()


def test_the_first_n_are_folded(far: Far) -> None:
    refs = members(far, [1, 2, 3])
    total, taken = hoplo.reduce(refs, n=2, with_members=True)
    want = sum(hoplo.get(refs[at]) for at in hoplo.get(taken))
    assert len(hoplo.get(taken)) == 2
    np.testing.assert_array_equal(hoplo.get(total), want)


def test_members_of_all_nodes_and_sizes_are_reduced(far: Far) -> None:
    for elements in (3, ELEMENTS):
        refs = members(far, [0, 1, 2, 3, 1, 1], elements=elements)
        want = sums([0] * 6, elements=elements)
        np.testing.assert_array_equal(hoplo.get(hoplo.reduce(refs)), want)
        np.testing.assert_array_equal(hoplo.get(hoplo.reduce(refs, deterministic=True)), want)
        readers = [on(far, node, made).remote(hoplo.allreduce(refs)) for node in range(4)]
        for got in hoplo.get(readers):
            np.testing.assert_array_equal(got, want)


def read_at_all(far: Far, ref: Any) -> list[Any]:
    return hoplo.get([on(far, node, made).remote(ref) for node in range(4)])


@pytest.mark.parametrize("nodes", [[0, 1], [0, 1, 2, 3], [3, 1], [0, 0, 2, 3, 3]], ids=str)
@pytest.mark.parametrize("op", ["sum", "mean", "max"])
def test_what_goes_round_is_the_same_at_each_node(far: Far, nodes: list[int], op: str) -> None:
    arrays = [np.arange(ELEMENTS) % 5 + at for at in range(len(nodes))]
    want = {"sum": np.sum, "mean": np.mean, "max": np.max}[op](arrays, axis=0)
    for got in read_at_all(far, hoplo.allreduce(members(far, nodes), op)):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", ["i4", "f2", BFLOAT16, "f4", "c8"])
def test_means_that_go_round_are_those_of_numpy(far: Far, dtype: Any) -> None:
    nodes = [0, 1, 2]
    want = np.true_divide(sums(nodes, dtype), 3)
    for mean in read_at_all(far, hoplo.allreduce(members(far, nodes, dtype=dtype), "mean")):
        assert mean.dtype == (np.dtype(dtype) if dtype != "i4" else np.dtype("f8"))
        np.testing.assert_array_equal(mean, want.astype(mean.dtype))


def test_many_go_round_at_once(far: Far) -> None:
    """More than may be under way at once, and than there are places for pulls."""
    refs = members(far, [0, 1, 2, 3])
    totals = [hoplo.allreduce(refs) for _ in range(24)]
    want = sums([0] * 4)
    for total in totals:
        np.testing.assert_array_equal(hoplo.get(total), want)
    for got in read_at_all(far, totals[7]):
        np.testing.assert_array_equal(got, want)


# ---- what nodes do not fold ----


def test_members_that_differ_are_told_with_both(far: Far) -> None:
    one = on(far, 1, made).remote(np.zeros((ELEMENTS, 2)))
    other = on(far, 2, made).remote(np.zeros((2, ELEMENTS)))
    hoplo.wait([one, other], num_returns=2, fetch_local=False)
    assert "differ in structure" in refused([one, other])
    with pytest.raises(ValueError, match=rf"\(2, {ELEMENTS}\), and member 0 .*\({ELEMENTS}, 2\)"):
        hoplo.get(hoplo.reduce([one, other], deterministic=True))
    for reduce in (hoplo.reduce, hoplo.allreduce):
        with pytest.raises(ValueError, match="need equal dtypes and shapes"):
            hoplo.get(reduce([one, other]))
    ints = on(far, 3, made).remote(np.zeros((ELEMENTS, 2), int))
    with pytest.raises(ValueError, match="int64"):
        hoplo.get(hoplo.reduce([one, ints]))


def test_a_value_that_nodes_cannot_look_into_is_told(far: Far) -> None:
    values = [np.zeros(ELEMENTS, "m8[s]"), [np.zeros(ELEMENTS), "text"], np.zeros(ELEMENTS, ">f8")]
    for value in values:
        refs = [on(far, node, made).remote(value) for node in (1, 2)]
        hoplo.wait(refs, num_returns=2, fetch_local=False)
        assert refused(refs)
    swapped = [on(far, node, made).remote(np.ones(ELEMENTS, ">f8")) for node in (1, 2)]
    assert (hoplo.get(hoplo.reduce(swapped)) == 2).all()
    text = [on(far, node, made).remote([np.zeros(ELEMENTS), "text"]) for node in (1, 2)]
    with pytest.raises(TypeError, match=r"at \[1\] is of type str"):
        hoplo.get(hoplo.reduce(text))


def test_what_lies_in_no_store_or_only_here_is_for_tasks(far: Far) -> None:
    small = members(far, [1, 2], elements=3)
    assert _core.fold_members("sum", small, False)[0] == "a member is in no store"
    why = refused(members(far, [0, 0]))
    assert why == "all members are at this node, or one is at none"
    mixed = [*members(far, [1]), *members(far, [2], elements=ELEMENTS + 1)]
    assert "differ in structure" in refused(mixed)


def test_what_a_member_raised_is_raised_by_the_reduce(far: Far) -> None:
    refs = [*members(far, [1, 2]), on(far, 3, failing).remote()]
    with pytest.raises(LookupError, match="broken"):
        hoplo.get(hoplo.reduce(refs))
    total, taken = hoplo.reduce(refs, n=2, with_members=True)
    assert hoplo.get(taken) == [0, 1]
    np.testing.assert_array_equal(hoplo.get(total), sums([0, 1]))


@pytest.mark.parametrize("elements", [25_000, 500_000])
def test_each_list_of_all_to_all_is_made_where_the_member_of_its_place_lies(
    far: Far, elements: int
) -> None:
    """A node that has no worker soon is passed by, so a busy machine needs several tries."""
    nodes = [3, 2, 1]

    def parts(at: int) -> list[Any]:
        return [np.full(elements, 10.0 * at + to) for to in range(len(nodes))]

    dealer, tried = hoplo.remote(parts), []
    for _ in range(20):
        rows = [on(far, node, dealer).remote(at) for at, node in enumerate(nodes)]
        hoplo.wait(rows, num_returns=len(rows), fetch_local=False)
        lists = hoplo.all_to_all(rows)
        hoplo.wait(lists, num_returns=len(lists), fetch_local=False)
        places = hoplo.experimental.object_locations(lists)
        tried.append([places[made]["node_ids"] for made in lists])
        for to, made in enumerate(lists):
            assert [part[-1] for part in hoplo.get(made)] == [10.0 * at + to for at in range(3)]
        if tried[-1] == [[far.ids[node]] for node in nodes]:
            return
    raise AssertionError(f"{tried} of {far.ids}")


def rows_of_kinds(at: int) -> list[Any]:
    """What comes as parts of its member, and what does not."""
    n = ELEMENTS
    return [
        np.arange(n, dtype="i4") + at,
        np.full((n // 100, 100), at, ml_dtypes.bfloat16),
        np.zeros(0),
        np.full(5, at, "f8"),
        np.full((1000, 300), float(at), order="F"),
        np.array(["text"] * (n // 4)) if at == 2 else np.full(n, at % 2 == 1),
    ]


def test_items_of_all_to_all_may_be_of_any_kind_and_two_members_at_one_node(far: Far) -> None:
    """Of member 2 something is no array of numbers, so its items are objects of their own."""
    nodes = [0, 1, 2, 2, 3, 1]
    rows = [on(far, node, hoplo.remote(rows_of_kinds)).remote(at) for at, node in enumerate(nodes)]
    hoplo.wait(rows, num_returns=len(rows), fetch_local=False)
    columns = hoplo.get(hoplo.all_to_all(rows))
    for to, column in enumerate(columns):
        assert isinstance(column, list)
        for at, item in enumerate(column):
            want = rows_of_kinds(at)[to]
            assert (item.dtype, item.shape) == (want.dtype, want.shape), (at, to)
            assert not item.flags.writeable or item.nbytes < 1000
            np.testing.assert_array_equal(item, want)


def assembled(refs: list[Any], node: int | None, start: int, broken: bool = False) -> Any:
    """In a task: an array and a text, of which the array is a part of the object of `refs`."""
    array = np.empty(ELEMENTS // 2, "f8")
    address = array.__array_interface__["data"][0]
    nodes = _core.this_node() if node is None else node
    if broken:
        address += 8
    made = _core.assemble(["text", array], [(address, array.nbytes, refs[0], nodes, start)])
    return "it cannot be had so" if made is None else made


def places(refs: list[Any]) -> Any:
    hoplo.get(refs)
    return _core.this_node(), _core.places_of(refs[0])


def test_a_part_of_an_object_is_fetched_to_its_place_or_it_cannot_be_had_so(far: Far) -> None:
    [ref] = members(far, [2])
    node, [(start, size)] = hoplo.get(on(far, 2, hoplo.remote(places)).remote([ref]))
    assert size == 8 * ELEMENTS
    assembles = on(far, 1, hoplo.remote(assembled))
    half = start + size // 2
    text, array = hoplo.get(assembles.remote([ref], node, half))
    assert text == "text"
    np.testing.assert_array_equal(array, hoplo.get(ref)[ELEMENTS // 2 :])
    no = "it cannot be had so"
    assert hoplo.get(assembles.remote([ref], node + 1000, half)) == no, "there is no such node"
    assert hoplo.get(assembles.remote([ref], None, half)) == no, "it is not here"
    assert hoplo.get(assembles.remote([ref], node, start + size)) == no, "it is not so long"
    broken = assembles.remote([ref], node, half, broken=True)
    assert hoplo.get(broken) == no, "it is none of the items' arrays"
    del ref, array


def value_of_kind(kind: int) -> Any:
    n = ELEMENTS
    kinds: list[Any] = [
        np.arange(n, dtype="i4"),
        {"a": np.full(n, 1.0), "b": [np.zeros(3), np.full(n, 2.0), np.zeros((0, 4))], "c": {}},
        (np.full((n, 2), 3, ml_dtypes.bfloat16), np.full(n, 4.0)),
        [np.full((1000, 300), 5.0, order="F"), np.full(n, 6.0)],
        {1: np.full(n, 7.0), "a": "text"},
        "x" * 300_000,
        8,
    ]
    return kinds[kind]


def gathered(far: Far, nodes: list[int], kinds: list[int], at: int | None) -> tuple[Any, Any]:
    """The values, which must be right, and at which nodes their members are then."""
    make = hoplo.remote(value_of_kind)
    rows = [on(far, node, make).remote(kind) for node, kind in zip(nodes, kinds, strict=True)]
    hoplo.wait(rows, num_returns=len(rows), fetch_local=False)
    values = hoplo.get(hoplo.gather([*rows, rows[0]], on=None if at is None else far.ids[at]))
    np.testing.assert_equal(values, [value_of_kind(kind) for kind in [*kinds, kinds[0]]])
    places = hoplo.experimental.object_locations(rows)
    return values, [[far.number(node) for node in places[row]["node_ids"]] for row in rows]


@pytest.mark.parametrize("at", [None, 0, 2])
def test_arrays_that_are_gathered_come_to_their_places(far: Far, at: int | None) -> None:
    nodes = [1, 2, 3, 1]
    values, places = gathered(far, nodes, [0, 1, 2, 3], at)
    assert [type(value) for value in values] == [np.ndarray, dict, tuple, list, np.ndarray]
    assert not values[0].flags.writeable
    assert places == [[node] for node in nodes], "no other node has one whole"


@pytest.mark.parametrize("at", [None, 3])
def test_values_of_any_kind_are_gathered(far: Far, at: int | None) -> None:
    nodes, kinds = [1, 2, 3, 1, 2, 3, 1, 0, 0], [4, 1, 2, 3, 0, 5, 6, 1, 5]
    gathered(far, nodes, kinds, at)


def large_row(at: int) -> list[Any]:
    return [np.full(2_000_000, 10.0 * at + to) for to in range(3)]


def fresh_pages(far: Far, node: int) -> int:
    """So many did the node's daemon touch for the first time."""
    line = Path(f"/proc/{far.machines[node].pid}/stat").read_text()
    return int(line.rpartition(")")[2].split()[7])


def test_room_that_came_free_was_kept_from_the_next_one(far: Far) -> None:
    """The worker that had been given it kept it for objects of its own. So each list came into
    fresh memory, which took nodes 40% of their time."""
    nodes = [1, 2, 3]
    rows = [on(far, node, hoplo.remote(large_row)).remote(at) for at, node in enumerate(nodes)]
    hoplo.wait(rows, num_returns=3, fetch_local=False)
    gc.collect()
    before = len(far.objects())
    pages = []
    for _ in range(3):
        touched = fresh_pages(far, 2)
        lists = hoplo.all_to_all(rows)
        hoplo.wait(lists, num_returns=3, fetch_local=False)
        pages.append(fresh_pages(far, 2) - touched)
        del lists
        until(lambda: len(far.objects()) == before, what="the lists are freed")
    comes = 2 * 16_000_000 / 4096
    assert min(pages[1:]) < comes / 10, pages


@pytest.mark.parametrize("late", [False, True], ids=["at-once", "half-way"])
def test_all_to_all_goes_on_when_a_node_dies(make_far: Any, late: bool) -> None:
    """Its member is made again, and so are the lists that had none of it yet."""
    far = make_far(4)
    make = hoplo.remote(large_row)
    rows = [
        make.options(scheduling_strategy=far.on(node, soft=True)).remote(at)
        for at, node in enumerate([1, 2, 3])
    ]
    hoplo.wait(rows, num_returns=3, fetch_local=False)
    lists = hoplo.all_to_all(rows)
    if late:
        hoplo.wait(lists, num_returns=1, fetch_local=False)
    far.kill_node(3)
    for to, made in enumerate(lists):
        column = hoplo.get(made, timeout=60)
        assert [(part[0], part[-1]) for part in column] == [
            (10.0 * at + to,) * 2 for at in range(3)
        ]


def test_all_to_all_of_more_than_a_store_holds(make_far: Any) -> None:
    """Where there is no room in memory, members come whole, and the lists go to disk."""
    far = make_far(flags=[("--object-store-memory", str(160 << 20))] * 3)
    make = hoplo.remote(lambda at: [np.full(7_000_000, 10.0 * at + to) for to in range(2)])
    rows = [on(far, node, make).remote(at) for at, node in enumerate([1, 2])]
    hoplo.wait(rows, num_returns=2, fetch_local=False)
    for to, made in enumerate(hoplo.all_to_all(rows)):
        column = hoplo.get(made, timeout=120)
        assert [(part[0], part[-1]) for part in column] == [
            (10.0 * at + to,) * 2 for at in range(2)
        ]


@pytest.mark.parametrize("late", [False, True], ids=["at-once", "half-way"])
def test_a_gather_goes_on_when_a_node_dies(make_far: Any, late: bool) -> None:
    far = make_far(4)
    make = hoplo.remote(large_row)
    rows = [
        make.options(scheduling_strategy=far.on(node, soft=True)).remote(node) for node in (1, 2, 3)
    ]
    hoplo.wait(rows, num_returns=3, fetch_local=False)
    made = hoplo.gather(rows)
    if late:
        # Three tasks have told where its arrays lie, and the fourth one fetches them.
        until(
            lambda: (
                len(list_tasks(filters=[("name", "=", "hoplo.gather"), ("state", "=", "FINISHED")]))
                >= 3
            )
        )
    far.kill_node(3)
    for at, row in enumerate(hoplo.get(made, timeout=60), 1):
        assert [(part[0], part[-1]) for part in row] == [(10.0 * at + to,) * 2 for to in range(3)]
