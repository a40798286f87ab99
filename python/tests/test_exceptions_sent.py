"""Exceptions on their way from a worker to the driver."""

import threading

import pytest

import hoplo
from hoplo.exceptions import RemoteErrorStandIn, TaskError


@hoplo.remote
def echo(value):
    return value


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
