"""Exceptions on their way from a worker to the driver."""

import threading

import pytest

import hoplo
from hoplo.exceptions import ActorDiedError, RemoteErrorStandIn, TaskError, WorkerCrashedError


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


# ------------------------------------------------------------------------------------ large ones


@pytest.mark.parametrize("size", [30_000, 60_000, 130_000, 20_000_000])
@pytest.mark.parametrize("letter", ["x", "é", "\U0001f680"])
def test_an_exception_with_a_long_text_hung_its_caller(size, letter):
    """Its reply fitted into no frame: the worker wrote none, and no other one after it."""

    @hoplo.remote(max_retries=0)
    def fails():
        raise LookupError(letter * size)

    with pytest.raises(LookupError, match=letter * 100) as caught:
        hoplo.get(fails.remote(), timeout=60)
    told = caught.value.cause.args[0]
    if size == 20_000_000:
        assert "characters left out" in told
        assert any("Put large data into the store" in note for note in caught.value.__notes__)
    assert hoplo.get(echo.remote(1), timeout=60) == 1


@pytest.mark.parametrize(
    ("kind", "args"),
    [
        (OSError, (2, "no such file", "f" * 200_000)),
        (KeyError, ("k" * 200_000,)),
        (UnicodeDecodeError, ("utf-8", b"b" * 200_000, 0, 1, "r" * 200_000)),
        (ValueError, (bytes(200_000), list(range(100_000)), 7)),
    ],
)
def test_a_large_exception_keeps_its_type_and_what_is_small(kind, args):
    @hoplo.remote
    class Actor:
        def fails(self):
            error = kind(*args)
            error.small, error.large = 7, "y" * 200_000
            raise error

        def works(self):
            return 1

    actor = Actor.remote()
    with pytest.raises(TaskError) as caught:
        hoplo.get(actor.fails.remote(), timeout=60)
    cause = caught.value.cause
    if kind is UnicodeDecodeError:  # cannot be made of a note on cut bytes: its text is there
        assert "utf-8" in str(caught.value)
    else:
        assert type(cause) is type(kind(*args))
        assert isinstance(caught.value, kind)
        assert cause.small == 7
        assert len(cause.large) < 5000
    assert hoplo.get(actor.works.remote(), timeout=60) == 1


def test_what_a_large_exception_is_made_of_need_not_fit_either():
    @hoplo.remote(max_retries=0)
    def fails(what):
        if what == "type":
            raise type("E" * 200_000, (Exception,), {})("text")
        if what == "parts":
            raise ValueError(*["p" * 5000] * 100)
        if what == "refs":
            raise ValueError([hoplo.put(index) for index in range(5000)])
        if what == "chain":
            try:
                raise KeyError("k" * 200_000)
            except KeyError as error:
                raise ValueError("v" * 200_000) from error
        raise SystemExit("s" * 200_000)

    for what in ("type", "parts", "refs", "chain"):
        with pytest.raises(TaskError, match=r"raised .* in worker process"):
            hoplo.get(fails.remote(what), timeout=60)
    with pytest.raises(WorkerCrashedError, match=r"sys.exit\('ssss[\s\S]* bytes left out"):
        hoplo.get(fails.remote("exit"), timeout=60)


def test_a_constructor_and_a_stream_that_fail_with_a_long_text():
    @hoplo.remote
    class Broken:
        def __init__(self):
            raise LookupError("x" * 200_000)

        def works(self):
            return 1

    with pytest.raises(ActorDiedError, match="xxxx") as caught:
        hoplo.get(Broken.remote().works.remote(), timeout=60)
    assert isinstance(caught.value.__cause__, LookupError)

    @hoplo.remote
    def stream():
        yield 1
        raise LookupError("x" * 200_000)

    first, second = stream.remote()
    assert hoplo.get(first) == 1
    with pytest.raises(LookupError):
        hoplo.get(second, timeout=60)

    @hoplo.remote(num_returns=3)
    def several():
        yield 1
        raise LookupError("x" * 200_000)

    first, *rest = several.remote()
    assert hoplo.get(first) == 1
    for ref in rest:
        with pytest.raises(LookupError):
            hoplo.get(ref, timeout=60)
