"""What cannot be pickled is named by its path; what is odd arrives all the same."""

import io
import socket
import threading

import pytest
from conftest import run_driver

import hoplo
from hoplo.exceptions import (
    DeserializationError,
    RemoteErrorStandIn,
    SerializationError,
    TaskError,
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


# ------------------------------------------------------------------------------------ errors


class Coded(Exception):
    """Cannot be unpickled from its args alone."""

    def __init__(self, code, *, extra):
        super().__init__(f"code {code}")
        self.code = code
        self.extra = extra


def test_an_exception_that_pickle_cannot_make_again_has_a_stand_in():
    @hoplo.remote
    def fails():
        raise Coded(3, extra="more")

    with pytest.raises(TaskError) as caught:
        hoplo.get(fails.remote())
    stand_in = caught.value.cause
    assert isinstance(stand_in, RemoteErrorStandIn)
    assert stand_in.type_name.endswith("Coded")
    assert stand_in.text == "code 3"
    assert "raise Coded(3" in str(caught.value)
    assert not isinstance(caught.value, Coded)


def test_an_exception_that_holds_what_cannot_be_pickled():
    @hoplo.remote
    def fails():
        error = ValueError("it held a lock")
        error.lock = threading.Lock()
        raise error

    with pytest.raises(TaskError, match="it held a lock") as caught:
        hoplo.get(fails.remote())
    assert caught.value.cause.type_name == "builtins.ValueError"
    assert "raise error" in caught.value.traceback_text


def test_an_exception_whose_module_is_not_here(tmp_path):
    (tmp_path / "only_there.py").write_text("class Odd(Exception):\n    pass\n")

    @hoplo.remote(runtime_env={"py_modules": [str(tmp_path / "only_there.py")]})
    def fails():
        import only_there

        raise only_there.Odd("from afar")

    with pytest.raises(TaskError, match="from afar") as caught:
        hoplo.get(fails.remote())
    assert caught.value.cause.type_name == "only_there.Odd"


def test_exceptions_keep_their_attributes_and_native_state():
    @hoplo.remote
    def missing():
        open("/nowhere/at/all")

    with pytest.raises(FileNotFoundError) as caught:
        hoplo.get(missing.remote())
    assert caught.value.filename == "/nowhere/at/all"
    assert caught.value.errno == 2

    @hoplo.remote
    def noted():
        error = ValueError("noted")
        error.add_note("a note")
        error.number = 4
        raise error

    with pytest.raises(ValueError, match="noted") as caught:
        hoplo.get(noted.remote())
    assert caught.value.number == 4
    assert "a note" in str(caught.value)


def test_chained_exceptions_are_told():
    @hoplo.remote
    def chained():
        try:
            {}["first"]
        except KeyError as error:
            raise RuntimeError("second") from error

    with pytest.raises(RuntimeError) as caught:
        hoplo.get(chained.remote())
    assert "KeyError: 'first'" in str(caught.value)
    assert "direct cause" in str(caught.value)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, GeneratorExit, StopIteration])
def test_exceptions_that_would_end_the_driver_are_told_not_raised(kind):
    @hoplo.remote
    def raises():
        raise kind("odd")

    with pytest.raises(hoplo.exceptions.HoploError):
        hoplo.get(raises.remote())


def test_exception_groups():
    @hoplo.remote
    def group():
        raise ExceptionGroup("two", [ValueError("one"), KeyError("two")])

    with pytest.raises(ExceptionGroup) as caught:
        hoplo.get(group.remote())
    assert [type(e) for e in caught.value.exceptions] == [ValueError, KeyError]


def test_errors_can_be_sent_on():
    @hoplo.remote
    def fails():
        raise ValueError("sent on")

    with pytest.raises(ValueError, match="sent on") as caught:
        hoplo.get(fails.remote())
    back = hoplo.get(echo.remote(caught.value))
    assert isinstance(back, TaskError)
    assert isinstance(back, ValueError)
    assert str(back) == str(caught.value)


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
