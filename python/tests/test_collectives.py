"""reduce, allreduce, gather, scatter, all_to_all: values, composition, and every error."""

import functools
import itertools
import operator
import re
import warnings
from collections import namedtuple

import ml_dtypes
import numpy as np
import pytest
from conftest import eventually

import hoplo
from hoplo import _parts
from hoplo._folding import NAMED_OPS, Fold

LARGE = 300_000
"""Elements of an array that lies in the store, whatever they are."""


@hoplo.remote
def made(value):
    return value


@hoplo.remote
def after(gate, value):
    gate.wait()
    return value


@hoplo.remote
def failing(text="broken"):
    raise LookupError(text)


def value_of(refs, *args, **options):
    return hoplo.get(hoplo.reduce(refs, *args, **options))


# ---- reduce: values ----


@pytest.mark.parametrize("elements", [5, LARGE])
@pytest.mark.parametrize("op", ["sum", "min", "max", "prod", "mean"])
def test_each_op_is_that_of_numpy(op, elements):
    arrays = [np.random.default_rng(seed).standard_normal(elements) for seed in range(4)]
    got = value_of([hoplo.put(array) for array in arrays], op)
    np.testing.assert_allclose(got, getattr(np, op)(arrays, axis=0), rtol=1e-12)
    assert got.dtype == np.float64


@pytest.mark.parametrize(
    "dtype", ["f2", "f4", "f8", "i1", "u2", "i4", "i8", "u8", "c8", "c16", ">f4", "?"]
)
@pytest.mark.parametrize("elements", [7, LARGE])
def test_a_sum_keeps_its_dtype(dtype, elements):
    arrays = [(np.arange(elements) % 3 + seed).astype(dtype) for seed in range(3)]
    got = value_of([hoplo.put(array) for array in arrays])
    want = functools.reduce(np.add, arrays)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("elements", [3, LARGE])
@pytest.mark.parametrize("call", [hoplo.reduce, hoplo.allreduce], ids=["reduce", "allreduce"])
def test_members_may_differ_in_byte_order_and_the_result_is_native(call, elements):
    for dtype in ("f8", "i4", "m8[s]"):
        foreign, native = (np.arange(elements).astype(order + dtype) for order in "><")
        for op in ("sum", "mean", lambda a, b: a + b):
            for arrays in ([foreign], [foreign, foreign], [foreign, native], [native, foreign]):
                refs = [hoplo.put(array) for array in arrays]
                got = hoplo.get(call(refs, op, deterministic=True))
                made = np.mean(arrays, axis=0) if op == "mean" else functools.reduce(np.add, arrays)
                want = made.astype(made.dtype.newbyteorder("="))
                np.testing.assert_array_equal(got, want, strict=True)
            half = call([hoplo.put(foreign)] * 2)
            whole = hoplo.get(call([half, hoplo.put(foreign)]))
            np.testing.assert_array_equal(whole, 3 * native, strict=True)


@pytest.mark.parametrize("elements", [3, LARGE])
@pytest.mark.parametrize(("op", "want"), [("sum", 9), ("mean", 3), ("min", 1.5), ("prod", 20.25)])
def test_bfloat16_of_another_package(op, want, elements):
    members = [np.full(elements, x, ml_dtypes.bfloat16) for x in (1.5, 4.5, 3)]
    got = value_of([hoplo.put(member) for member in members], op)
    assert got.dtype == ml_dtypes.bfloat16
    assert (got == want).all()


def test_the_mean_of_whole_numbers_is_a_float_and_of_others_keeps_its_dtype():
    refs = [hoplo.put(np.array([1, 2])), hoplo.put(np.array([2, 2]))]
    assert value_of(refs, "mean").tolist() == [1.5, 2.0]
    refs = [hoplo.put(np.array([1, 2], "f4")), hoplo.put(np.array([2, 2], "f4"))]
    assert value_of(refs, "mean").dtype == np.float32


LARGEST = {
    "?": True, "i1": 127, "u1": 255, "u2": 65535, "i4": 2**31 - 1, "i8": 2**63 - 1,
    "u8": 2**64 - 1, ">u2": 65535, "f2": 65504,
}  # fmt: skip


@pytest.mark.parametrize("dtype", LARGEST)
@pytest.mark.parametrize("elements", [3, LARGE])
@pytest.mark.parametrize("collective", ["reduce", "allreduce", "in order"])
def test_a_mean_whose_sum_would_be_too_large_is_that_of_numpy(collective, elements, dtype):
    first, second = (np.full(elements, LARGEST[dtype], dtype), np.ones(elements, dtype))
    arrays = [first, first, first, second, first]
    call = hoplo.allreduce if collective == "allreduce" else hoplo.reduce
    refs = [hoplo.put({"w": [array], "x": array[0]}) for array in arrays]
    got = hoplo.get(call(refs, "mean", deterministic=collective == "in order"))
    want = np.mean(arrays, axis=0)
    assert (got["w"][0].dtype, got["x"].dtype) == (want.dtype, want.dtype)
    np.testing.assert_allclose(got["w"][0], want, rtol=1e-15)
    np.testing.assert_allclose(got["x"], want[0], rtol=1e-15)


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", ml_dtypes.bfloat16])
@pytest.mark.parametrize("elements", [3, LARGE])
def test_a_mean_of_other_dtypes_overflows_where_its_sum_does(elements, dtype):
    largest = ml_dtypes.finfo(dtype).max if dtype is ml_dtypes.bfloat16 else np.finfo(dtype).max
    member = np.full(elements, largest, dtype)
    got = value_of([hoplo.put(member)] * 2, "mean")
    assert got.dtype == member.dtype
    assert np.isinf(got.real).all()


@pytest.mark.parametrize(
    ("dtype", "number", "want"),
    [("bfloat16", 1, 1), ("float8_e4m3fn", 448, 448), ("float8_e5m2", 57344, 57344)],
)
@pytest.mark.parametrize("elements", [3, LARGE])
def test_a_mean_of_short_floats_of_another_package_is_not_rounded_on_its_way(
    elements, dtype, number, want
):
    member = np.full(elements, number, getattr(ml_dtypes, dtype))
    # Between 256 and 512 each second whole number is a bfloat16.
    got = value_of([hoplo.put(member)] * 300, "mean")
    assert got.dtype == member.dtype
    assert (got == want).all()


def test_a_mean_of_short_whole_numbers_of_another_package_is_float64():
    member = np.full(3, 7, ml_dtypes.int4)
    got = value_of([hoplo.put(member), hoplo.put(member - member), hoplo.put(member)], "mean")
    assert got.dtype == np.float64
    assert (got == 14 / 3).all()


@pytest.mark.parametrize("elements", [3, LARGE])
def test_times_are_folded_as_numpy_does_it(elements):
    times = [np.full(elements, at, "M8[s]") for at in (5, 9, 7)]
    for op in ("min", "max"):
        got = value_of([hoplo.put(one) for one in times], op)
        np.testing.assert_array_equal(got, getattr(np, op)(times, axis=0), strict=True)
    spans = [np.full(elements, span, "m8[ms]") for span in (5, 9, 8)]
    for op in ("sum", "min", "max", "mean"):
        got = value_of([hoplo.put(one) for one in spans], op)
        np.testing.assert_array_equal(got, getattr(np, op)(spans, axis=0), strict=True)


@pytest.mark.parametrize(
    ("dtype", "op", "text"),
    [
        ("M8[s]", "sum", r"datetime64\[s\]: of these op may be 'min', 'max', not 'sum'"),
        ("M8[s]", "mean", "'min', 'max', not 'mean'"),
        ("m8[s]", "prod", "'sum', 'min', 'max', 'mean', not 'prod'"),
    ],
)
def test_what_cannot_be_made_of_times_is_told(dtype, op, text):
    members = [hoplo.put({"at": np.zeros(3, dtype)}) for _ in range(2)]
    with pytest.raises(TypeError, match=rf"member \d at \['at'\] is an array of .*{text}"):
        value_of(members, op)


@pytest.mark.parametrize(
    ("op", "dtype"),
    [
        *itertools.product(NAMED_OPS, ["f2", "f4", "f8", "c16", ml_dtypes.bfloat16]),
        *itertools.product(["sum", "min", "max", "mean"], ["m8[s]"]),
    ],
)
def test_an_op_with_a_name_does_not_warn_of_what_is_in_the_members(op, dtype):
    odd = np.array(["nat"] * 4 if dtype == "m8[s]" else [np.nan, np.inf, -np.inf, 6e4], dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fold = Fold(op)
        for number, member in enumerate((odd, odd[::-1].copy(), odd)):
            fold.add(number, member)
        got = fold.value()
    ufunc = {"min": np.minimum, "max": np.maximum, "prod": np.multiply}.get(op, np.add)
    if op != "mean":
        with np.errstate(all="ignore"):
            want = ufunc(ufunc(odd, odd[::-1]), odd)
        assert got.tobytes() == want.tobytes()


def test_an_op_of_ones_own_warns_as_it_does_elsewhere():
    fold = Fold(np.add)
    fold.add(0, np.array([np.inf]))
    with pytest.warns(RuntimeWarning, match="invalid value"):
        fold.add(1, np.array([-np.inf]))


@pytest.mark.parametrize("op", ["min", "max"])
def test_an_op_that_is_not_there_for_a_dtype_is_told_by_its_name(op):
    members = [hoplo.put({"w": np.ones(3, ml_dtypes.int4)}) for _ in range(2)]
    text = (
        rf"member \d at \['w'\] is an array of int4, and {op} of int4 is not possible: op may be "
        r"'sum', 'prod', 'mean', or put the arrays in a dtype of numpy"
    )
    with pytest.raises(TypeError, match=text):
        value_of(members, op)
    assert value_of(members, "prod")["w"].dtype == ml_dtypes.int4


def test_a_ufunc_and_a_function_of_two_arrays_are_ops():
    refs = [hoplo.put(np.array(it)) for it in ([1, 8], [5, 2])]
    assert value_of(refs, np.bitwise_or).tolist() == [5, 10]
    assert value_of(refs, lambda a, b: np.where(a > b, a, b)).tolist() == [5, 8]
    assert value_of(refs, operator.add).tolist() == [6, 10]


def test_arrays_may_be_nested_and_keep_their_structure():
    def parameters(x):
        layers = [(np.full((2, 3), x), np.full(3, x, "f4")), np.float32(x)]
        return {"layers": layers, "bias": np.full(LARGE, x)}

    got = value_of([hoplo.put(parameters(x)) for x in (1.0, 2.0, 4.0)])
    assert list(got) == ["layers", "bias"]
    (weights, bias), scalar = got["layers"]
    assert isinstance(got["layers"][0], tuple)
    assert weights.shape == (2, 3)
    assert bias.dtype == np.float32
    assert isinstance(scalar, np.float32)
    assert (weights == 7).all()
    assert (bias == 7).all()
    assert scalar == 7
    assert (got["bias"] == 7).all()


Pair = namedtuple("Pair", "left right")


def test_a_named_tuple_stays_one():
    got = value_of([hoplo.put(Pair(np.ones(2), np.zeros(2)))] * 2)
    assert type(got).__name__ == "Pair"
    assert got.left.tolist() == [2, 2]


def test_keys_of_a_dict_may_come_in_any_order():
    refs = [hoplo.put({"a": np.ones(1), "b": np.zeros(1)})]
    refs.append(hoplo.put({"b": np.ones(1), "a": np.zeros(1)}))
    got = value_of(refs)
    assert list(got) == ["a", "b"]
    assert (got["a"], got["b"]) == (1, 1)


def test_one_member_is_its_own_sum():
    array = np.arange(LARGE)
    np.testing.assert_array_equal(value_of([hoplo.put(array)]), array)
    assert value_of([hoplo.put(np.arange(3))], "mean").tolist() == [0.0, 1.0, 2.0]


def test_a_ref_that_is_given_twice_counts_twice():
    ref = hoplo.put(np.array([1]))
    assert value_of([ref, ref, ref]).tolist() == [3]
    assert value_of([ref, ref, ref], n=2).tolist() == [2]


def test_fortran_order_and_views_are_summed_by_element():
    plain = np.arange(12.0).reshape(3, 4)
    refs = [hoplo.put(np.asfortranarray(plain)), hoplo.put(plain), hoplo.put(plain[::-1][::-1])]
    np.testing.assert_array_equal(value_of(refs), 3 * plain)


def test_members_that_are_not_made_yet_are_awaited(gate):
    refs = [made.remote(np.ones(2)), after.remote(gate, np.ones(2))]
    total = hoplo.reduce(refs)
    assert hoplo.wait([total], timeout=0.1) == ([], [total])
    gate.open()
    assert hoplo.get(total).tolist() == [2, 2]


def test_reduces_compose_with_reduces_and_tasks():
    halves = [
        hoplo.reduce([made.remote(np.full(LARGE, x)) for x in pair]) for pair in ((1, 2), (3, 4))
    ]
    total = made.remote(hoplo.reduce(halves))
    assert (hoplo.get(total) == 10).all()


def test_in_the_order_of_the_refs_the_sum_is_always_the_same():
    arrays = [np.array([x], "f4") for x in (1e8, 1.0, -1e8, 1.0)]
    refs = [made.remote(array) for array in arrays]
    want = functools.reduce(np.add, arrays)
    assert all(value_of(refs, deterministic=True) == want for _ in range(5))


# ---- reduce: the first n ----


def test_the_first_n_that_come_are_taken_and_told(gate):
    refs = [after.remote(gate, np.array([100]))]
    refs += [made.remote(np.array([x])) for x in (1, 2)]
    total, members = hoplo.reduce(refs, n=2, with_members=True)
    assert hoplo.get(total).tolist() == [3]
    assert hoplo.get(members) == [1, 2]
    total, members = hoplo.reduce(refs, n=2, with_members=True, deterministic=True)
    assert (hoplo.get(total).tolist(), hoplo.get(members)) == ([3], [1, 2])
    gate.open()
    total, members = hoplo.reduce(refs, with_members=True)
    assert (hoplo.get(total).tolist(), hoplo.get(members)) == ([103], [0, 1, 2])


def test_members_that_fail_are_passed_over_while_enough_are_left():
    refs = [failing.remote(), made.remote(np.array([1])), made.remote(np.array([2]))]
    hoplo.wait(refs, num_returns=3)
    total, members = hoplo.reduce(refs, n=2, with_members=True)
    assert (hoplo.get(total).tolist(), hoplo.get(members)) == ([3], [1, 2])
    with pytest.raises(LookupError, match="broken"):
        value_of([*refs, failing.remote()], n=3)


# ---- reduce: errors ----


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        (hoplo.put, TypeError, "takes a list of refs"),
        (7, TypeError, "takes a list of refs, not 7"),
        ([], ValueError, "the list is empty"),
        ([np.ones(3)], TypeError, "not an ObjectRef"),
    ],
)
@pytest.mark.parametrize("name", ["reduce", "allreduce", "gather", "all_to_all"])
def test_what_is_no_list_of_refs_is_told_at_the_call(name, given, error, text):
    with pytest.raises(error, match=text):
        getattr(hoplo, name)(given)


def test_a_ref_alone_is_told_how_to_write_it():
    with pytest.raises(TypeError, match=r"write hoplo.reduce\(\[ref\]\)"):
        hoplo.reduce(hoplo.put(1))
    with pytest.raises(TypeError, match=r"not an ObjectRef: call it first: made\.remote"):
        hoplo.gather([made])


@pytest.mark.parametrize(
    ("op", "error", "text"),
    [
        ("average", ValueError, "op must be 'sum', 'min', 'max', 'prod', 'mean', a ufunc"),
        (3, TypeError, "op must be a name such as 'sum'"),
        (float, TypeError, "op must be a name such as 'sum'"),
        (np.negative, ValueError, "negative makes 1 of 1"),
        (np.divmod, ValueError, "divmod makes 2 of 2"),
    ],
)
def test_a_wrong_op_is_told_at_the_call(op, error, text):
    with pytest.raises(error, match=text):
        hoplo.reduce([hoplo.put(np.ones(1))], op)


def test_a_wrong_n_is_told_at_the_call():
    refs = [hoplo.put(np.ones(1))]
    for n in (0, 2, -1):
        with pytest.raises(ValueError, match=f"from 1 to the number of refs, 1, not {n}"):
            hoplo.reduce(refs, n=n)
    for n in (1.0, True, np.float64(1), np.True_, "1", [1]):
        with pytest.raises(TypeError, match=f"whole number or None, not {re.escape(repr(n))}"):
            hoplo.reduce(refs, n=n)


def test_n_may_be_a_whole_number_of_numpy():
    refs = [hoplo.put(np.ones(1)) for _ in range(3)]
    for call in (hoplo.reduce, hoplo.allreduce):
        assert hoplo.get(call(refs, n=np.int64(2))) == 2
        assert hoplo.get(call(refs, n=np.uint8(3), deterministic=True)) == 3


def test_a_wrong_place_is_told_at_the_call():
    refs = [hoplo.put(np.ones(1))]
    for on, error in (
        ("here", ValueError),
        ("SPREAD", ValueError),
        (3, TypeError),
        ({}, TypeError),
    ):
        text = (
            f"on must be the id of a node, .*, or a strategy of .*scheduling_strategies, not {on!r}"
        )
        for call in (hoplo.reduce, hoplo.gather):
            with pytest.raises(error, match=text):
                call(refs, on=on)


@pytest.mark.parametrize("elements", [3, LARGE])
def test_members_that_differ_are_told_with_both(elements):
    zeros = np.zeros
    cases = [
        (zeros(elements), zeros(elements + 1), rf"shape \({elements + 1},\), and member 0"),
        (zeros(elements, "f4"), zeros(elements, "i4"), "array of int32 .* an array of float32"),
        (zeros((elements, 2)), zeros((2, elements)), rf"shape \(2, {elements}\)"),
        ({"a": zeros(elements)}, {"b": zeros(elements)}, "keys 'b', .* keys 'a'"),
        ([zeros(elements)], [zeros(elements)] * 2, "a list of 2, .* a list of 1"),
        ([zeros(elements)], (zeros(elements),), "a tuple of 1, .* a list of 1"),
        ([zeros(elements)], zeros(elements), "array of float64 .* a list of 1"),
    ]
    for one, other, text in cases:
        with pytest.raises(ValueError, match=text):
            value_of([hoplo.put(one), hoplo.put(other)], deterministic=True)
    refs = [hoplo.put({"w": [zeros(elements), zeros(n)]}) for n in (elements, 1)]
    with pytest.raises(ValueError, match=r"at \['w'\]\[1\], and member 0"):
        value_of(refs, deterministic=True)


@pytest.mark.parametrize("padding", [(), (np.zeros(LARGE),)])
@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3.0, "member 1 .*of type float.*write numpy.float64"),
        ("text", "member 1 .*of type str"),
        (None, "member 1 .*of type NoneType"),
        (np.ma.masked_array([1.0]), "member 1 .*of type MaskedArray.*write x.filled.value.,"),
        (np.zeros(1).view(np.recarray), "member 1 .*of type recarray.*write numpy.asarray"),
        (np.array(["a"]), "member 1 .*array of <U1, not of numbers or times"),
        (np.array([object()]), "member 1 .*array of object, not of numbers"),
    ],
)
def test_a_member_that_is_no_array_is_told(value, text, padding):
    good, bad = (np.ones(1), *padding), (value, *padding)
    with pytest.raises(TypeError, match=text):
        value_of([hoplo.put(good), hoplo.put(bad)])
    with pytest.raises(TypeError, match=text.replace("member 1 ", "member 0 ")):
        value_of([hoplo.put(bad)])


def test_an_op_that_changes_the_shape_or_dtype_is_told():
    refs = [hoplo.put(np.ones(3)), hoplo.put(np.ones(3))]
    with pytest.raises(ValueError, match=r"op must give what it is given: .* shape \(\)"):
        value_of(refs, lambda a, b: (a + b).sum())
    with pytest.raises(ValueError, match="it made an array of bool"):
        value_of(refs, np.greater)


def test_an_op_that_raises_is_told():
    def fussy(a, b):
        raise LookupError("no")

    with pytest.raises(LookupError, match="no"):
        value_of([hoplo.put(np.ones(3)), hoplo.put(np.ones(3))], fussy)


def test_what_a_member_raised_is_raised_by_the_reduce():
    with pytest.raises(LookupError, match="broken"):
        value_of([made.remote(np.ones(1)), failing.remote()])
    with pytest.raises(LookupError, match="broken"):
        value_of([made.remote(np.ones(1)), failing.remote()], deterministic=True)


@pytest.mark.parametrize("elements", [3, LARGE])
@pytest.mark.parametrize("in_order", [False, True])
def test_what_is_wrong_with_a_member_is_told_while_an_earlier_one_does_not_come(
    gate, elements, in_order
):
    first = after.remote(gate, np.ones(elements))
    good, other = (made.remote(np.ones(size)) for size in (elements, elements + 1))
    cases = [
        ([first, failing.remote()], LookupError, "broken"),
        ([good, first, good, failing.remote()], LookupError, "broken"),
        ([first, made.remote("text")], TypeError, "member 1 is of type str"),
    ]
    if in_order or elements < LARGE:  # else nodes are to fold them, when all are there
        text = "need equal dtypes and shapes"
        cases += [
            ([first, good, other], ValueError, text),
            ([good, first, other], ValueError, text),
        ]
    for refs, error, text in cases:
        total = hoplo.reduce(refs, deterministic=in_order)
        with pytest.raises(error, match=text):
            hoplo.get(total, timeout=30)
    gate.open()


def test_in_order_the_result_is_like_the_first_member_whichever_came_first(gate):
    refs = [after.remote(gate, {"b": np.array([1]), "a": np.array([2])})]
    refs += [made.remote({"a": np.array([x]), "b": np.array([10 * x])}) for x in (3, 4)]
    hoplo.wait(refs[1:], num_returns=2)
    total = hoplo.reduce([*refs, refs[1]], deterministic=True)
    assert hoplo.wait([total], timeout=0.1) == ([], [total])
    gate.open()
    got = hoplo.get(total)
    assert list(got) == ["b", "a"]
    assert (got["b"], got["a"]) == (101, 12)


# ---- a reduce is a task ----


def test_a_reduce_is_cancelled_like_a_task(gate):
    total = hoplo.reduce([after.remote(gate, np.ones(1))])
    hoplo.cancel(total)
    with pytest.raises(hoplo.exceptions.TaskCancelledError):
        hoplo.get(total)
    gate.open()


def test_a_reduce_needs_no_cpu(gate):
    refs = [after.remote(gate, np.ones(1)) for _ in range(8)]  # more than there are CPUs
    total = hoplo.reduce(refs, n=8)
    gate.open()
    assert hoplo.get(total).tolist() == [8]


def test_a_reduce_is_listed_and_timed_by_its_name():
    from hoplo.util.state import list_tasks

    value_of([hoplo.put(np.ones(1))])
    assert "hoplo.reduce" in eventually(lambda: {task["name"] for task in list_tasks()})
    assert "hoplo.reduce" in [event["name"] for event in hoplo.timeline()]


@pytest.mark.parametrize("name", ["reduce", "allreduce"])
def test_why_a_reduce_waits_is_told_with_its_name(gate, name):
    slow = after.remote(gate, np.ones(1))
    total = getattr(hoplo, name)([slow])

    def why():
        text = hoplo._core.query("why", total.hex())
        return text if "after" in text and "has run" in text else None

    text = eventually(why)
    assert f" of hoplo.{name} has run" in text
    assert "_reduce" not in text
    hoplo.cancel(total)
    with pytest.raises(
        hoplo.exceptions.TaskCancelledError, match=rf"of hoplo\.{name} was cancelled"
    ):
        hoplo.get(total)
    gate.open()


@pytest.mark.parametrize("name", ["reduce", "allreduce", "gather", "scatter", "all_to_all"])
def test_an_error_of_a_collective_has_its_name(name):
    wrong = hoplo.put(None)
    call = getattr(hoplo, name)
    ref = {
        "gather": lambda: call([failing.remote()]),
        "scatter": lambda: call(wrong, 2)[0],
        "all_to_all": lambda: call([wrong])[0],
    }.get(name, lambda: call([wrong]))()
    with pytest.raises(hoplo.exceptions.TaskError) as caught:
        hoplo.get(ref)
    assert str(caught.value).startswith(
        "failing raised" if name == "gather" else f"hoplo.{name} raised TypeError"
    )


def test_the_result_is_made_where_it_is_asked_for():
    [node] = [node["NodeID"] for node in hoplo.nodes() if node["Resources"].get("CPU")]
    refs = [hoplo.put(np.ones(LARGE)) for _ in range(2)]
    ref = hoplo.reduce(refs, on=node)
    assert (hoplo.get(ref) == 2).all()
    [place] = hoplo.experimental.object_locations([ref]).values()
    assert node in place["node_ids"]


# ---- the others ----


def test_allreduce_gives_all_the_same():
    total = hoplo.allreduce([made.remote(np.full(LARGE, x)) for x in (1, 2)])
    assert [int(array[0]) for array in hoplo.get([made.remote(total) for _ in range(3)])] == [3] * 3
    assert hoplo.get(hoplo.allreduce([hoplo.put(np.ones(1))] * 3, "max", n=2)) == 1
    with pytest.raises(ValueError, match="op must be"):
        hoplo.allreduce([hoplo.put(1)], "most")


def test_allreduce_tells_which_members_were_taken(gate):
    for elements in (3, LARGE):
        refs = [after.remote(gate, np.zeros(elements))]
        refs += [made.remote(np.full(elements, x)) for x in (1, 2)]
        total, members = hoplo.allreduce(refs, n=2, with_members=True)
        assert (hoplo.get(total) == 3).all()
        assert hoplo.get(members) == [1, 2]
    gate.open()


def test_gather_gives_all_values_in_order():
    refs = [made.remote(value) for value in ("a", 2, None, np.arange(2))]
    a, two, none, array = hoplo.get(hoplo.gather(refs))
    assert (a, two, none, array.tolist()) == ("a", 2, None, [0, 1])
    ref = hoplo.put(1)
    assert hoplo.get(hoplo.gather([ref, ref])) == [1, 1]
    with pytest.raises(LookupError, match="broken"):
        hoplo.get(hoplo.gather([failing.remote()]))


def test_scatter_gives_each_its_part():
    parts = hoplo.scatter(made.remote(["a", "b", "c"]), 3)
    assert hoplo.get(parts) == ["a", "b", "c"]
    parts = hoplo.get(hoplo.scatter(hoplo.put(np.arange(7)), 3))
    assert [part.tolist() for part in parts] == [[0, 1, 2], [3, 4], [5, 6]]
    [whole] = hoplo.get(hoplo.scatter(hoplo.put(np.arange(2)), 1))
    assert whole.tolist() == [0, 1]
    assert hoplo.get(hoplo.scatter(hoplo.put(("x",)), 1)) == ["x"]


def test_what_cannot_be_scattered_is_told():
    ref = hoplo.put([1, 2])
    with pytest.raises(ValueError, match=rf"{ref.hex()}\) is a list of 2 items: 3 are needed"):
        hoplo.get(hoplo.scatter(ref, 3)[0])
    with pytest.raises(ValueError, match=r"shape \(2,\), which cannot be cut into 3"):
        hoplo.get(hoplo.scatter(hoplo.put(np.ones(2)), 3)[2])
    with pytest.raises(ValueError, match=r"shape \(\), which has no first axis"):
        hoplo.get(hoplo.scatter(hoplo.put(np.array(1)), 2)[0])
    with pytest.raises(TypeError, match="of type str: a list or tuple of 2 items is needed"):
        hoplo.get(hoplo.scatter(hoplo.put("ab"), 2)[0])
    with pytest.raises(LookupError, match="broken"):
        hoplo.get(hoplo.scatter(failing.remote(), 2)[0])
    for n, error in ((0, ValueError), (1.5, TypeError), (70_000, ValueError)):
        with pytest.raises(error, match="n must"):
            hoplo.scatter(hoplo.put([1]), n)
    with pytest.raises(TypeError, match="not an ObjectRef"):
        hoplo.scatter([1], 1)


def test_with_a_reduce_of_the_first_ones_its_choice_is_cancelled(gate):
    waits = hoplo.remote(gate.wait)
    total, members = hoplo.reduce([waits.remote(), waits.remote()], n=1, with_members=True)
    hoplo.cancel(total)
    for ref in (total, members):
        with pytest.raises(hoplo.exceptions.TaskCancelledError):
            hoplo.get(ref)


def lists(*values, how):
    """Refs of these: all there and small, or not there yet, or one too large to be in a frame."""
    if how == "large":
        values = ([np.zeros(1 << 18), *values[0][1:]], *values[1:])
    refs = [made.remote(value) for value in values]
    if how != "to come":
        hoplo.wait(refs, num_returns=len(refs))
    return refs


@pytest.mark.parametrize("how", ["small", "to come", "large"])
def test_all_to_all_turns_rows_into_columns(how):
    rows = [[f"{row}{column}" for column in range(3)] for row in "abc"]
    columns = hoplo.get(hoplo.all_to_all(lists(*rows, how=how)))
    if how == "large":
        rows[0][0] = columns[0][0]
        assert columns[0][0].nbytes == 1 << 21
    assert columns == [list(column) for column in zip(*rows, strict=True)]
    [ref] = lists(["only"], how=how)
    assert len(hoplo.get(hoplo.all_to_all([ref]))[0]) == 1
    [twice] = lists(["one", "two"], how=how)
    [one, two] = hoplo.get(hoplo.all_to_all([twice, twice]))
    assert (len(one), two) == (2, ["two", "two"])


@hoplo.remote
def dealt(refs):
    """How the items of a member go to their lists, and what comes of those that are places."""
    value = hoplo.get(refs[0])
    places = hoplo._core.places_of(refs[0])
    for wrong in (places and places[:-1], places and [*places, (0, 8)], places and places[1:]):
        assert _parts.laid_out(value, wrong) is None
    laid = _parts.laid_out(value, places)
    if laid is None:
        return [type(item).__name__ for item in value], value
    read = laid.filled(_parts.Place.read, refs[0])
    return [type(item).__name__ for item in laid.value], read


def test_large_arrays_of_a_member_are_dealt_by_their_place():
    large = 16_384  # bytes / 4
    member = [
        np.zeros(0, "f4"),
        np.arange(large, dtype="f4"),
        np.arange(large - 1, dtype="f4"),
        np.arange(3.0),
        np.zeros((large, 2), "f4", order="F"),
        np.ones((2, large // 2), "i4"),
    ]
    kinds, read = hoplo.get(dealt.remote([hoplo.put(member)]))
    assert kinds == ["ndarray", "Place", "ndarray", "ndarray", "ndarray", "Place"]
    for item, want in zip(read, member, strict=True):
        np.testing.assert_array_equal(item, want)
        assert item.dtype == want.dtype

    def nested():
        one = [np.full(large, 1, "f4"), np.zeros(3)]
        return {"a": one, "b": (np.full(large, 2.0),), "c": {3: np.full((2, large), 3, "i1")}}

    kinds, read = hoplo.get(dealt.remote([hoplo.put([*member, nested()])]))
    assert kinds[1:] == ["Place", "ndarray", "ndarray", "ndarray", "Place", "dict"]
    np.testing.assert_equal(read[-1], nested())
    for other in ("text", np.array(["text"]), [np.zeros(3), "text"], 5):
        kinds, read = hoplo.get(dealt.remote([hoplo.put([*member, other])]))
        assert "Place" not in kinds, f"there is something else than arrays in it: {other!r}"
    kinds, _ = hoplo.get(dealt.remote([hoplo.put(member[-1:] * 2)]))
    assert kinds == ["ndarray", "ndarray"], "an array that is in it twice"


@pytest.mark.parametrize("how", ["small", "to come"])
def test_a_member_of_all_to_all_that_does_not_fit_is_told(how):
    for bad, error, text in (
        ([1], ValueError, "a list of 1 items: 2 are needed, one for each part"),
        ({}, TypeError, "of type dict: a list or tuple of 2 items is needed"),
    ):
        refs = lists([1, 2], bad, how=how)
        member = refs[1]
        columns = hoplo.all_to_all(refs)
        for column in columns:
            with pytest.raises(error, match=rf"member 1, ObjectRef\({member.hex()}\), is {text}"):
                hoplo.get(column)
    with pytest.raises(LookupError, match="broken"):
        hoplo.get(hoplo.all_to_all([failing.remote()])[0])
