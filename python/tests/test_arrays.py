"""Arrays in the object store: read without copies, read-only."""

import gc
import json
import os
import pickle
import textwrap

import ml_dtypes
import numpy as np
import pytest
from conftest import eventually, run_driver

import hoplo
from hoplo import _core

MIB = 1 << 20


@hoplo.remote
def echo(value):
    return value


@hoplo.remote
def described(value):
    return type(value).__name__, value.flags.writeable, value.ctypes.data % 64


def test_an_array_is_read_without_a_copy_and_cannot_be_written():
    ref = hoplo.put(np.arange(1_000_000))
    one, other = hoplo.get(ref), hoplo.get(ref)
    assert one.ctypes.data == other.ctypes.data
    assert (one == np.arange(1_000_000)).all()
    with pytest.raises(ValueError, match="read-only"):
        one[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        one.flags.writeable = True
    assert hoplo.get(described.remote(ref)) == ("ndarray", False, 0)


@pytest.mark.parametrize("length", [4096, 5000, 20_000, 100_000])
def test_arrays_that_came_inside_calls_lay_where_they_lay_in_the_call(length):
    """At a multiple of 16: what needs 64, as libraries of vectors do, copied them or refused."""

    plain = np.arange(length, dtype="uint8")
    pickled = plain.view([("field", "uint8")])
    for value in (plain, pickled):
        for before in range(3):  # another place in the frame
            told = hoplo.get(described_second.remote("x" * before, value))
            assert told == ("ndarray", False, 0)


@hoplo.remote
def described_second(_, value):
    return type(value).__name__, value.flags.writeable, value.ctypes.data % 64


@pytest.mark.parametrize("length", [4096, 5000, 20_000, 100_000])
def test_arrays_that_get_gave_lay_where_they_lay_in_a_message(length):
    plain = np.arange(length, dtype="uint8")
    for value in (plain, plain.view([("field", "uint8")])):
        refs = [hoplo.put(value), echo.remote(value), hoplo.put(["x" * 5, value])]
        for got in (*hoplo.get(refs[:2]), hoplo.get(refs[2])[1]):
            assert (got.ctypes.data % 64, got.flags.writeable) == (0, False)
            assert (got == value).all()


def test_arrays_inside_values_are_read_without_a_copy():
    value = {"a": np.ones((300, 400)), "b": [np.zeros(50_000, "uint8"), "text"]}
    ref = hoplo.put(value)
    one, other = hoplo.get(ref), hoplo.get(ref)
    assert one["a"].ctypes.data == other["a"].ctypes.data
    assert one["b"][0].ctypes.data == other["b"][0].ctypes.data
    assert one["a"].shape == (300, 400)
    assert not one["a"].flags.writeable
    assert [array.ctypes.data % 64 for array in (one["a"], one["b"][0])] == [0, 0]


def test_bfloat16_is_read_without_a_copy():
    ref = hoplo.put({"w": np.arange(200_000).astype(ml_dtypes.bfloat16)})
    one, other = hoplo.get(ref)["w"], hoplo.get(ref)["w"]
    assert one.ctypes.data == other.ctypes.data
    assert (one.ctypes.data % 64, one.flags.writeable) == (0, False)
    assert (one[:200] == np.arange(200)).all()  # exact up to 256


def test_bfloat16_needs_its_package_where_it_is_read():
    code = """
        import ml_dtypes, numpy, sys, hoplo
        hoplo.init(num_cpus=1)
        refs = [hoplo.put(numpy.ones(n, ml_dtypes.bfloat16)) for n in (3, 200_000)]
        sys.modules["ml_dtypes"] = None  # as where it is not installed
        for ref in refs:
            try:
                hoplo.get(ref)
            except ImportError as error:
                print(error)
    """
    told = run_driver(textwrap.dedent(code)).stdout.splitlines()
    assert len(told) == 2
    assert all("ml_dtypes" in line for line in told)


def test_arrays_and_refs_inside_one_value():
    inner = hoplo.put(np.arange(30_000))
    value = [np.arange(20_000.0), inner, (np.float32([1, 2]), "text", inner)]
    back = hoplo.get(echo.remote(value))
    assert (back[0] == value[0]).all()
    assert back[2][0].tolist() == [1, 2]
    del inner, value
    assert hoplo.get(back[1])[-1] == 29_999
    assert back[2][2] == back[1]


def test_small_arrays_can_be_written_and_large_ones_not():
    @hoplo.remote
    def writable(*arrays):
        return [array.flags.writeable for array in arrays]

    sizes = (10, 400, 600, 5_000, 50_000)  # in a frame, in a frame and kept, in the store
    assert hoplo.get(writable.remote(*(np.zeros(n) for n in sizes))) == [True, True] + 3 * [False]
    got = [hoplo.get(hoplo.put(np.zeros(n))) for n in sizes]
    assert [array.flags.writeable for array in got] == [True, True] + 3 * [False]


@pytest.mark.parametrize(
    "array_",
    [
        np.array(3.0),
        np.zeros((0, 3)),
        np.arange(6).reshape(2, 3),
        np.asfortranarray(np.arange(60_000.0).reshape(200, 300)),
        np.arange(200_000)[::2],
        np.array(["a", "bc"]),
        np.array([1, None], dtype=object),
        np.zeros(1000, dtype=[("x", "f4"), ("y", "i8")]),
        np.arange(100_000, dtype=">i4"),
        np.arange(40_000).astype("datetime64[s]"),
        np.arange(6).astype(ml_dtypes.bfloat16).reshape(2, 3),
        np.asfortranarray(np.ones((200, 300), ml_dtypes.bfloat16)),
        np.ones(7, ml_dtypes.float8_e4m3fn),
        np.zeros(3, np.dtype(ml_dtypes.bfloat16, metadata={"a": 1})),
        np.zeros(60_000, "V2"),
        np.float32(1.5),
        np.ma.masked_array([1, 2], [True, False]),
    ],
    ids=lambda a: f"{a.dtype}{a.shape}",
)
def test_arrays_of_every_kind(array_):
    back = hoplo.get(echo.remote(array_))
    assert back.dtype == array_.dtype
    assert back.shape == array_.shape
    np.testing.assert_array_equal(back, array_)


def test_a_view_outlives_its_ref():
    ref = hoplo.put(np.arange(500_000))
    view = hoplo.get(ref)[1000:]
    del ref
    gc.collect()
    others = [hoplo.put(np.zeros(500_000)) for _ in range(20)]
    assert view[0] == 1000
    assert view[-1] == 499_999
    del others


def test_the_same_array_in_a_hundred_tasks():
    @hoplo.remote
    def total(values, i):
        return int(values.sum()) + i

    ref = hoplo.put(np.ones(500_000, "int64"))
    assert hoplo.get([total.remote(ref, i) for i in range(100)]) == [
        500_000 + i for i in range(100)
    ]


def test_empty_is_in_the_store_already():
    frame = hoplo.empty((1000, 1000), "float32")
    assert frame.shape == (1000, 1000)
    assert frame.dtype == np.float32
    frame[:] = 7
    before = frame.ctypes.data
    ref = hoplo.put(frame)
    assert hoplo.get(ref).ctypes.data % 64 == before % 64 == 0
    assert float(hoplo.get(ref).sum()) == 7e6
    assert not hoplo.get(ref).flags.writeable
    assert hoplo.get(described.remote(ref))[1] is False


def test_put_of_empty_copies_nothing():
    frame = hoplo.empty(32 * MIB, "uint8")
    frame[:] = 1
    ref = hoplo.put(frame)
    with pytest.raises(ValueError, match="read-only"):
        frame[5] = 77
    assert hoplo.get(ref)[5] == 1

    def rows():
        return [row for row in json.loads(_core.query("objects")) if row["size"] >= 32 * MIB]

    eventually(rows)
    assert [row["object_id"] for row in rows()] == [ref.hex()]


@pytest.mark.parametrize("shape", [0, 5, (0, 3), (2, 3, 4), ()])
def test_empty_of_every_shape(shape):
    made = hoplo.empty(shape)
    assert made.shape == np.empty(shape).shape
    made[...] = 2
    assert (hoplo.get(hoplo.put(made)) == 2).all()


def test_a_result_made_in_the_store():
    @hoplo.remote
    def frame(n):
        made = hoplo.empty((n, n))
        made[:] = n
        return made

    back = hoplo.get(frame.remote(500))
    assert back.shape == (500, 500)
    assert (back == 500).all()


def test_bytes_like_values():
    data = os.urandom(MIB)
    assert hoplo.get(echo.remote(data)) == data
    assert hoplo.get(echo.remote(bytearray(data))) == bytearray(data)
    buffer = hoplo.get(hoplo.put(pickle.PickleBuffer(data)))
    assert bytes(buffer) == data
    assert memoryview(buffer).readonly


@pytest.mark.parametrize("items", [3, MIB], ids=["inline", "stored"])
def test_a_memoryview_arrived_as_a_copy_of_its_bytes(items):
    numbers = np.arange(2 * items, dtype="int32")

    def back(view):
        got = hoplo.get(echo.remote(view))
        assert type(got) is memoryview
        assert got.readonly
        return got

    view = memoryview(numbers)
    assert (back(view).format, back(view).shape) == ("i", (2 * items,))
    assert back(view) == view
    table = memoryview(numbers.reshape(2, items))
    assert back(table).shape == (2, items)
    assert np.array_equal(np.asarray(back(table)), numbers.reshape(2, items))
    assert np.array_equal(np.asarray(back(view[::2])), numbers[::2]), "not contiguous"
    assert np.array_equal(
        np.asarray(back(memoryview(numbers.reshape(2, items).T))), np.asarray(table).T
    )
    pairs = np.zeros(items, dtype=[("a", "i4"), ("b", "f8")])
    assert back(memoryview(pairs)).tobytes() == pairs.tobytes(), "its bytes, at least"
    held = [back(memoryview(bytearray(b"x" * items))) for _ in range(2)]
    assert held[0] == held[1] == b"x" * items


def test_arrow_tables_are_read_without_a_copy():
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"n": np.arange(500_000), "s": ["x"] * 500_000})
    ref = hoplo.put(table)
    one, other = hoplo.get(ref), hoplo.get(ref)
    assert one.equals(table)
    addresses = [t["n"].chunk(0).buffers()[1].address for t in (one, other)]
    assert addresses[0] == addresses[1]
    assert hoplo.get(echo.remote(table)).equals(table)


def test_tensors_are_read_without_a_copy():
    torch = pytest.importorskip("torch")
    ref = hoplo.put({"w": torch.arange(500_000.0).reshape(500, 1000)})
    one, other = hoplo.get(ref), hoplo.get(ref)
    assert one["w"].data_ptr() == other["w"].data_ptr()
    assert torch.equal(one["w"], torch.arange(500_000.0).reshape(500, 1000))


def test_room_is_used_again():
    store = hoplo.cluster_resources()["object_store_memory"]
    block = np.ones(32 * MIB, "uint8")
    for i in range(int(min(2 * store, 4 * (1 << 30)) / block.nbytes)):
        ref = hoplo.put(block)
        if i % 16 == 0:
            assert hoplo.get(ref)[-1] == 1
        del ref
    eventually(lambda: len(json.loads(_core.query("objects"))) < 10)
