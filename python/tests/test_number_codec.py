"""Numbers alone in a list or tuple are packed: what comes out is what went in, types and all."""

import enum
import math
import struct

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hoplo import _core

NODE = None

TUPLE, LIST, PACKED, PICKLE = 9, 10, 13, 32


class Count(int):
    pass


class Metres(float):
    pass


class Colour(enum.IntEnum):
    RED = 1


def there_and_back(value):
    return _core._decode(_core._encode(value))


def assert_same(back, value):
    assert type(back) is type(value)
    if isinstance(value, list | tuple):
        assert len(back) == len(value)
        for inner, expected in zip(back, value, strict=True):
            assert_same(inner, expected)
    elif isinstance(value, dict):
        assert_same(list(back.items()), list(value.items()))
    elif isinstance(value, float):
        assert struct.pack("<d", back) == struct.pack("<d", value)
    else:
        assert back == value


def edges(bits):
    return st.sampled_from(
        [sign * (1 << (bits - 1)) + more for sign in (1, -1) for more in (-1, 0, 1)]
    )


def ints():
    return st.one_of(st.integers(-10, 300), edges(32), edges(64), st.integers(), edges(200))


def floats():
    return st.one_of(st.floats(), st.sampled_from([0.0, -0.0, math.nan, -math.nan, math.inf]))


def others():
    return st.sampled_from([True, False, None, "1", b"1", 1j, Count(1), Metres(1), Colour.RED])


def values():
    inner = st.one_of(
        st.lists(ints()),
        st.lists(floats()),
        st.lists(st.one_of(ints(), floats(), others())),
        # One that does not fit, at any place among those that do.
        st.tuples(st.lists(ints(), min_size=4), others(), st.lists(ints())).map(
            lambda parts: [*parts[0], parts[1], *parts[2]]
        ),
    )
    either = st.one_of(inner, inner.map(tuple))
    return st.recursive(
        either, lambda part: st.one_of(st.lists(part), st.dictionaries(ints(), part)), max_leaves=8
    )


@settings(max_examples=1000, deadline=None)
@given(values())
@example([])
@example([0, 1, 2, True])
@example([0.0, 1.0, 2.0, 3])
@example([2**63 - 1, -(2**63), 0, 0])
@example([2**63, 0, 0, 0])
@example([0, 0, 0, -(2**63) - 1])
@example((2**31 - 1, -(2**31), 0, 0))
@example([0, 0, 0, 2**31])
def test_what_comes_out_is_what_went_in(value):
    assert_same(there_and_back(value), value)


@pytest.mark.parametrize("made", [list, tuple])
@pytest.mark.parametrize(
    ("numbers", "width"),
    [(range(1000), 4), (range(-(2**31), 0, 2**23), 4), (range(2**31, 2**31 + 99), 8)],
)
def test_ints_take_no_more_than_they_need(made, numbers, width):
    data = _core._encode(made(numbers))
    assert data[0] == PACKED
    assert len(data) <= width * len(numbers) + 16
    assert_same(_core._decode(data), made(numbers))


@pytest.mark.parametrize("odd", [True, None, 2**70, 1.5, "x"])
def test_one_that_does_not_fit_leaves_the_plain_form(odd):
    numbers = list(range(100))
    for value in ([odd, *numbers], [*numbers, odd]):
        if odd == 2**70:
            assert _core._encode(value)[0] == PICKLE
        else:
            assert _core._encode(value)[0] == LIST


def test_many_numbers_beside_a_container_made_it_a_pickle():
    value = (list(range(100_000)), {}, [0.5] * 100_000, [1, [2.0]])
    data = _core._encode(value)
    assert data[0] == TUPLE
    assert_same(_core._decode(data), value)


def test_a_list_in_two_places_stays_one():
    numbers = list(range(10))
    one, other = there_and_back([numbers, numbers])
    assert one is other


def test_an_empty_list_that_was_full_has_no_items():
    numbers = list(range(10))
    numbers.clear()
    assert there_and_back(numbers) == []


@settings(max_examples=500, deadline=None)
@given(st.data())
def test_bytes_that_nobody_wrote_raise_or_give_numbers(data):
    good = bytearray(_core._encode(data.draw(st.lists(ints(), min_size=4, max_size=300))))
    for _ in range(data.draw(st.integers(1, 3))):
        good[data.draw(st.integers(1, min(len(good) - 1, 12)))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(1, len(good)))
    if good[0] != PACKED:
        return
    try:
        back = _core._decode(bytes(good[:cut]))
    except Exception:
        return
    assert all(type(number) in (int, float) for number in back)


@pytest.mark.parametrize("count", [2**61, 2**64 - 1])
def test_a_count_larger_than_its_bytes_is_refused(count):
    head = bytes([PACKED, LIST, 2, 255]) + count.to_bytes(8, "little")
    with pytest.raises(Exception, match=r"too large|cut off"):
        _core._decode(head + bytes(64))
