"""Arrays have a form of their own: what comes out is what went in, as from pickle."""

import pickle
import subprocess
import sys

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hoplo import _core

NODE = None

ARRAY, PICKLE = 12, 32
KEPT_BYTES_MIN = 4096
"""From here on an array reads its object's memory."""


def both(value):
    """What the codec makes of it, and what pickle makes of it; and the first byte."""
    data = _core._encode(value)
    return _core._decode(data), pickle.loads(pickle.dumps(value, 5)), data[0]


def assert_same(back, expected):
    assert type(back) is type(expected)
    assert back.dtype == expected.dtype
    assert back.dtype.str == expected.dtype.str
    assert back.dtype.metadata == expected.dtype.metadata
    assert back.shape == expected.shape
    if back.size > 0 and 1 not in back.shape:  # numpy itself gives others any strides
        assert back.strides == expected.strides
    assert back.flags.c_contiguous == expected.flags.c_contiguous
    assert back.flags.f_contiguous == expected.flags.f_contiguous
    assert back.flags.aligned == expected.flags.aligned
    if back.dtype.hasobject:
        assert back.tolist() == expected.tolist()
    else:
        assert back.tobytes("A") == expected.tobytes("A")


def plain_dtypes():
    return st.one_of(
        hnp.boolean_dtypes(),
        hnp.integer_dtypes(endianness="?"),
        hnp.unsigned_integer_dtypes(endianness="?"),
        hnp.floating_dtypes(endianness="?", sizes=(16, 32, 64, 128)),
        hnp.complex_number_dtypes(endianness="?", sizes=(64, 128, 256)),
        hnp.datetime64_dtypes(endianness="?"),
        hnp.timedelta64_dtypes(endianness="?"),
        st.sampled_from([np.longlong, np.ulonglong, np.intc]).map(np.dtype),
    )


def odd_dtypes():
    return st.one_of(
        hnp.byte_string_dtypes(max_len=5),
        hnp.unicode_string_dtypes(max_len=5),
        hnp.array_dtypes(max_size=3),
    )


def arrays(dtypes):
    shapes = hnp.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=7)
    return hnp.arrays(dtypes, shapes, elements=None)


LAYOUTS = {
    "as it is": lambda a: a,
    "fortran": np.asfortranarray,
    "turned": lambda a: a.T,
    "backwards": lambda a: a[::-1] if a.ndim else a,
    "every second": lambda a: a[..., ::2] if a.ndim else a,
    "broadcast": lambda a: np.broadcast_to(a, (2, *a.shape)),
    "many dimensions": lambda a: a.reshape((1,) * (32 - a.ndim) + a.shape),
    "repeated": lambda a: np.concatenate([a.ravel()] * 300),
    "unaligned": lambda a: np.frombuffer(b"x" + a.tobytes(), a.dtype, offset=1),
}


@settings(max_examples=300, deadline=None)
@given(arrays(plain_dtypes()), st.sampled_from(sorted(LAYOUTS)), st.booleans())
def test_arrays_of_plain_data_come_back_as_they_were(array, layout, writable):
    if layout == "unaligned" and array.nbytes == 0:
        layout = "as it is"
    array = LAYOUTS[layout](array)
    if not writable:
        array.flags.writeable = False
    back, expected, tag = both(array)
    contiguous = array.flags.c_contiguous or array.flags.f_contiguous
    assert tag == (ARRAY if contiguous and array.flags.aligned else PICKLE)
    # Pickle forgets the byte order of some rare types, and who may write to times.
    assert_same(back, array if tag == ARRAY else expected)
    if tag == ARRAY:
        small = array.nbytes < KEPT_BYTES_MIN
        assert back.flags.writeable == (array.flags.writeable and small)


@settings(max_examples=100, deadline=None)
@given(arrays(odd_dtypes()), st.sampled_from(["as it is", "fortran", "backwards"]))
def test_arrays_of_odd_data_come_back_as_from_pickle(array, layout):
    array = LAYOUTS[layout](array)
    back, expected, tag = both(array)
    assert_same(back, expected)
    assert tag == PICKLE


class Subclass(np.ndarray):
    pass


@pytest.mark.parametrize(
    "array",
    [
        np.array([1, None, "x"], dtype=object),
        np.zeros(5000).view(Subclass),
        np.ma.masked_array([1, 2], [True, False]),
        np.zeros(3, np.dtype("f8", metadata={"unit": "m"})),
        np.recarray((2,), dtype=[("x", "f4")]),
        np.array(["a", "bcd"], dtype=np.dtypes.StringDType()),
    ],
    ids=["object", "subclass", "masked", "metadata", "recarray", "strings"],
)
def test_what_is_not_just_data_is_pickled(array):
    back, expected, tag = both(array)
    assert tag == PICKLE
    assert type(back) is type(expected)
    assert back.dtype == expected.dtype
    assert back.tolist() == expected.tolist()


def test_a_dtype_that_came_from_pickle_is_known_all_the_same():
    array = pickle.loads(pickle.dumps(np.arange(5.0)))
    assert array.dtype is not np.dtype("f8")
    assert _core._encode(array)[0] == ARRAY


@pytest.mark.parametrize("size", [0, 1, 1023, 1024, 4095, 4096, 4097, 20_000, 200_000])
def test_sizes_around_every_threshold(size):
    back, expected, tag = both(np.arange(size, dtype=np.uint8))
    assert_same(back, expected)
    assert tag == ARRAY


def test_a_large_array_is_never_writable():
    back = _core._decode(_core._encode(np.zeros(KEPT_BYTES_MIN)))
    with pytest.raises(ValueError, match="WRITEABLE"):
        back.flags.writeable = True
    with pytest.raises(ValueError, match="read-only"):
        back.reshape(2, -1)[0] = 1


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_arrays_inside_containers(data):
    sizes = st.integers(0, 5000).map(lambda size: np.arange(size, dtype=np.float64))
    leaves = st.one_of(sizes, st.integers(), st.text(max_size=3), st.binary(max_size=40))
    value = data.draw(
        st.recursive(
            leaves,
            lambda inner: st.one_of(
                st.lists(inner, max_size=4),
                st.tuples(inner, inner),
                st.dictionaries(st.text(max_size=3), inner, max_size=3),
            ),
            max_leaves=8,
        )
    )

    def check(one, other):
        assert type(one) is type(other)
        if isinstance(one, np.ndarray):
            assert_same(one, other)
            assert one.nbytes < KEPT_BYTES_MIN or one.ctypes.data % 16 == 0
        elif isinstance(one, dict):
            check(list(one.items()), list(other.items()))
        elif isinstance(one, list | tuple):
            assert len(one) == len(other)
            for inner, outer in zip(one, other, strict=True):
                check(inner, outer)
        else:
            assert one == other

    check(_core._decode(_core._encode(value)), value)


def test_one_array_in_two_places_stays_one():
    array = np.zeros(1000)
    for value in ([array, array], (array, [array]), {"a": array, "b": (1, array)}):
        data = _core._encode(value)
        assert data[0] == PICKLE
        one, other = [*_leaves(_core._decode(data))]
        assert one is other


def _leaves(value):
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _leaves(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _leaves(inner)


def test_two_views_of_one_array_are_two():
    array = np.zeros(1000)
    one, other = _core._decode(_core._encode([array[:500], array[500:]]))
    assert one.shape == other.shape == (500,)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_bytes_that_nobody_wrote_raise_or_give_something(data):
    good = bytearray(_core._encode(data.draw(arrays(plain_dtypes()))))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(1, min(len(good) - 1, 40)))
        good[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(1, len(good)))
    try:
        back = _core._decode(bytes(good[:cut]))
    except Exception:
        return
    assert not getattr(back, "dtype", np.dtype(int)).hasobject


def test_no_dtype_of_pointers_is_made_of_bytes():
    named = bytes([ARRAY, 0, 0, 1, 1, 1]) + b"O" + bytes([0]) + bytes(8)
    with pytest.raises(Exception, match="dtype O"):
        _core._decode(named)


def test_a_process_without_numpy_is_not_given_one():
    code = (
        "import sys, hoplo._core as c; c._decode(c._encode([1, {2}])); "
        "assert 'numpy' not in sys.modules; "
        "import numpy; v = [numpy.arange(9), numpy.arange(7000)]; "
        "b = c._decode(c._encode(v)); assert c._encode(v)[0] == 10 and (b[1] == v[1]).all()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
