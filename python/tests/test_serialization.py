"""What cannot be pickled is named by its path; what is odd arrives all the same."""

import io
import socket
import threading

import pytest
from conftest import run_driver

import hoplo
from hoplo.exceptions import (
    DeserializationError,
    SerializationError,
)
from hoplo.util import inspect_serializability


@hoplo.remote
def echo(value, *rest, **named):
    return value


class Model:
    def __init__(self):
        self.layers = [{"lock": threading.Lock()}]


@hoplo.remote
class Holder:
    def __init__(self, value=None):
        self.value = value

    def lock(self):
        return {"mine": threading.Lock()}

    def set(self, value):
        self.value = value


# ------------------------------------------------------------------------------------ values


@pytest.mark.parametrize(
    ("call", "path"),
    [
        (lambda m: echo.remote(m), r"args\[0\]\.layers\[0\]\['lock'\]"),
        (lambda m: echo.remote(1, 2, [m]), r"args\[2\]\[0\]\.layers\[0\]\['lock'\]"),
        (lambda m: echo.remote(1, key=m), r"kwargs\['key'\]\.layers\[0\]\['lock'\]"),
        (lambda m: hoplo.put({"a": m}), r"the value\['a'\]\.layers\[0\]\['lock'\]"),
        (lambda m: Holder.remote(m), r"args\[0\]\.layers\[0\]\['lock'\]"),
        (lambda m: Holder.remote().set.remote(m), r"args\[0\]\.layers\[0\]\['lock'\]"),
    ],
)
def test_an_argument_that_cannot_be_pickled_is_named_at_the_call(call, path):
    with pytest.raises(SerializationError, match=path) as caught:
        call(Model())
    assert isinstance(caught.value, TypeError)
    assert "_thread.lock" in str(caught.value)
    assert "__getstate__" in str(caught.value)


def test_a_result_that_cannot_be_pickled_is_named_at_get():
    @hoplo.remote
    def bad():
        return [1, {"here": threading.Lock()}]

    with pytest.raises(SerializationError, match=r"the result of .*bad.*\[1\]\['here'\]"):
        hoplo.get(bad.remote())
    with pytest.raises(SerializationError, match=r"\['mine'\]"):
        hoplo.get(Holder.remote().lock.remote())
    assert hoplo.get(echo.remote(1)) == 1


def test_one_of_several_results_cannot_be_pickled():
    @hoplo.remote(num_returns=2)
    def mixed():
        return 1, threading.Lock()

    _, second = mixed.remote()
    with pytest.raises(SerializationError, match="lock"):
        hoplo.get(second)


def test_a_captured_variable_that_cannot_be_pickled():
    mine = socket.socket()

    @hoplo.remote
    def captures():
        return mine

    with pytest.raises(SerializationError, match=r"captured variable 'mine'"):
        captures.remote()
    mine.close()

    @hoplo.remote
    class Captures:
        def method(self):
            return mine

    with pytest.raises(SerializationError, match="mine"):
        Captures.remote()


def test_a_value_whose_getstate_raises():
    class Grumpy:
        def __getstate__(self):
            raise RuntimeError("not today")

    with pytest.raises(SerializationError, match="not today"):
        hoplo.put([Grumpy()])


def test_a_value_that_cannot_be_unpickled():
    class Once:
        def __reduce__(self):
            return (explode, ())

    @hoplo.remote
    def takes(value):
        return 1

    with pytest.raises(Exception, match="cannot be read back"):
        hoplo.get(takes.remote(Once()))
    with pytest.raises(DeserializationError, match="cannot be read back"):
        hoplo.get(hoplo.put(Once()))


class Coded(Exception):
    """Of a module that workers can import."""


def explode():
    raise ValueError("cannot be read back")


def test_inspect_serializability():
    out = io.StringIO()
    fine, parts = inspect_serializability(Model(), "model", print_file=out)
    assert not fine
    (part,) = parts
    assert part.path == "model.layers[0]['lock']"
    assert part.type_name == "lock"
    assert "model.layers[0]['lock'] (lock)" in out.getvalue()
    lock = threading.Lock()
    fine, parts = inspect_serializability(lambda: lock, "f", print_file=out)
    assert "captured variable 'lock'" in next(iter(parts)).path
    assert inspect_serializability([1, 2], print_file=out) == (True, set())
    assert "list can be pickled" in out.getvalue()


# ------------------------------------------------------------------------------------ classes


def test_a_class_made_here_and_there_is_the_same_when_importable():
    back = hoplo.get(echo.remote(Coded))
    assert back is Coded


def test_a_local_class_keeps_its_identity_here():
    class Local:
        def __init__(self, x):
            self.x = x

    back = hoplo.get([echo.remote(Local(1)), echo.remote(Local(2))])
    assert [b.x for b in back] == [1, 2]
    assert type(back[0]) is type(back[1]) is Local


def test_modules_sent_by_value(tmp_path):
    out = run_driver(
        f"""
import sys, cloudpickle, hoplo
sys.path.insert(0, {str(tmp_path)!r})
open({str(tmp_path / "local_only.py")!r}, "w").write("def f():\\n    return 42\\n")
import local_only
cloudpickle.register_pickle_by_value(local_only)
import os; os.remove({str(tmp_path / "local_only.py")!r})
hoplo.init(num_cpus=1)
print(hoplo.get(hoplo.remote(lambda g: g()).remote(local_only.f)))
"""
    ).stdout
    assert out == "42\n"
