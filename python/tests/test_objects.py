"""Values in the object store: what comes back, without copies, and room for more than memory."""

import array
import collections
import datetime
import decimal
import enum

import pytest

import hoplo
from hoplo.exceptions import ObjectStoreFullError

MIB = 1 << 20


class Color(enum.Enum):
    RED = 1


Pair = collections.namedtuple("Pair", "a b")


@hoplo.remote
def echo(value):
    return value


@hoplo.remote
def described(value):
    return type(value).__name__, value.flags.writeable, value.ctypes.data % 64


VALUES = [
    None,
    True,
    0,
    -1,
    2**62,
    -(2**63),
    2**63,
    10**40,
    0.5,
    float("inf"),
    1 + 2j,
    "",
    "text",
    "\N{SNOWMAN} and \U0001f600",
    "\ud800",
    b"",
    b"bytes",
    bytearray(b"more"),
    [],
    (),
    {},
    set(),
    [1, [2, [3, None]]],
    (1, ("two", 3.0)),
    {"a": 1, 2: [3], (4, 5): {6: 7}, None: b""},
    {1, 2},
    frozenset({3}),
    range(3),
    slice(1, 2, 3),
    Ellipsis,
    datetime.datetime(2020, 1, 2, tzinfo=datetime.UTC),
    decimal.Decimal("1.10"),
    Color.RED,
    Pair(1, 2),
    collections.OrderedDict(a=1),
    collections.deque([1, 2]),
    array.array("d", [1.0, 2.0]),
    "x" * 500_000,
    b"x" * 500_000,
    list(range(100_000)),
    {str(i): i for i in range(10_000)},
]


# ------------------------------------------------------------------------------------ errors


def test_an_array_larger_than_any_disk_is_refused():
    for size in (1 << 45, 1 << 52):
        with pytest.raises(ObjectStoreFullError, match="object_store_memory"):
            hoplo.empty(size, "uint8")
    assert hoplo.get(hoplo.put(b"x" * MIB)) == b"x" * MIB


# ------------------------------------------------------------------------------------ values


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:20])
def test_what_comes_back_is_equal_and_of_the_same_type(value):
    for ref in (hoplo.put(value), echo.remote(value), echo.remote(hoplo.put(value))):
        back = hoplo.get(ref)
        assert back == value
        assert type(back) is type(value)
        if isinstance(value, dict):
            assert list(back) == list(value)


def test_nan_and_negative_zero():
    back = hoplo.get(hoplo.put([float("nan"), -0.0]))
    assert back[0] != back[0]
    assert str(back[1]) == "-0.0"


def test_shared_and_cyclic_parts_stay_so():
    inner = [1]
    back = hoplo.get(echo.remote([inner, inner]))
    assert back == [[1], [1]]
    cycle: list = [1]
    cycle.append(cycle)
    back = hoplo.get(hoplo.put(cycle))
    assert back[0] == 1
    assert back[1] is back


def test_subclasses_of_plain_types_stay_such():
    class Names(dict):
        pass

    class Count(int):
        pass

    back = hoplo.get(hoplo.put([Names(a=1), Count(3)]))
    assert back == [{"a": 1}, 3]
    assert [type(x).__name__ for x in back] == ["Names", "Count"]


def test_a_deep_nest():
    value: list = []
    for _ in range(200):
        value = [value]
    assert hoplo.get(hoplo.put(value)) == value
