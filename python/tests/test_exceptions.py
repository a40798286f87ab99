"""The tree of exceptions, and users' errors across processes."""

from __future__ import annotations

import asyncio
import inspect
import os
import pickle
import re
import shutil

import pytest

import hoplo
from hoplo import exceptions
from hoplo.exceptions import HoploError, RuntimeEnvSetupError, TaskError

NODE = {"num_cpus": 2}
TYPES = [getattr(exceptions, name) for name in exceptions.__all__]


class WithFields(Exception):
    """Needs more than its args say."""

    def __init__(self, code, *, detail):
        super().__init__(f"code {code}")
        self.code = code
        self.detail = detail

    def __reduce__(self):
        return (_with_fields, (self.code, self.detail))


def _with_fields(code, detail):
    return WithFields(code, detail=detail)


class Aborted(BaseException):
    """Passes by every `except Exception`."""


@hoplo.remote
def fail(error):
    raise error


@hoplo.remote(max_retries=0)
def crash():
    os._exit(1)


@hoplo.remote
def chain():
    try:
        {}["missing"]
    except KeyError as error:
        raise ValueError("no such setting") from error


# ------------------------------------------------------------------------------- the tree


def test_the_documented_tree_is_the_tree():
    stack: list[tuple[int, str]] = []
    seen = {}
    for line in exceptions.__doc__.splitlines():
        found = re.match(r"    ([| `-]*)([A-Z]\w+Error|\w+Exceeded|\w+GroupRemoved)\b(.*)", line)
        if found:
            depth = len(found[1])
            while stack and stack[-1][0] >= depth:
                stack.pop()
            seen[found[2]] = stack[-1][1] if stack else "Exception"
            for also in re.findall(r"also (\w+)", found[3]):
                assert also in {kind.__name__ for kind in getattr(exceptions, found[2]).__mro__}
            stack.append((depth, found[2]))
    assert set(seen) == set(exceptions.__all__) - {"RemoteErrorStandIn"}
    for name, parent in seen.items():
        assert getattr(exceptions, name).__bases__[0].__name__ == parent, name


@pytest.mark.parametrize("kind", TYPES, ids=exceptions.__all__)
def test_each_is_documented_and_can_be_pickled(kind):
    assert len(inspect.getdoc(kind)) > 40
    assert issubclass(kind, Exception)
    if kind is exceptions.RemoteErrorStandIn:
        error = kind("package.Name", "its text")
    else:
        assert issubclass(kind, HoploError)
        error = kind("its text")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error)
    assert "its text" in str(again)


def test_errors_of_hoplo_are_errors_of_python_too():
    assert issubclass(exceptions.GetTimeoutError, TimeoutError)
    assert issubclass(exceptions.ConnectionFailedError, ConnectionError)
    assert issubclass(exceptions.SerializationError, TypeError)


# ------------------------------------------------------------------------------- users' errors


@pytest.mark.parametrize(
    "error",
    [
        ValueError("text"),
        KeyError("key"),
        OSError(2, "no such file", "there.txt"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
        AssertionError(),
        ImportError("gone", name="module"),
        TimeoutError("late"),
        ExceptionGroup("several", [ValueError(1), KeyError(2)]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_the_users_own_type_with_its_state(error):
    with pytest.raises(type(error)) as caught:
        hoplo.get(fail.remote(error))
    raised = caught.value
    assert isinstance(raised, TaskError)
    assert str(raised.args) == str(error.args)  # errors in a group have no equality
    assert type(raised.__cause__) is type(error)
    assert str(raised.cause.args) == str(error.args)
    assert getattr(raised, "filename", None) == getattr(error, "filename", None)
    assert raised.function_name == "fail"
    assert raised.pid > 0
    assert "raise error" in str(raised)


def test_fields_of_the_users_error_stay():
    with pytest.raises(WithFields) as caught:
        hoplo.get(fail.remote(WithFields(7, detail={"why": "because"})))
    assert caught.value.code == 7
    assert caught.value.detail == {"why": "because"}
    assert caught.value.cause.detail == {"why": "because"}


def test_the_remote_traceback_shows_the_users_frames_and_the_chain():
    with pytest.raises(ValueError, match="no such setting") as caught:
        hoplo.get(chain.remote())
    text = str(caught.value)
    assert '{}["missing"]' in text
    assert "KeyError: 'missing'" in text
    assert "direct cause" in text
    assert "in chain" in text
    assert "_worker.py" not in text  # not our own frames


def test_an_error_through_three_tasks_names_the_first():
    @hoplo.remote
    def outer(depth):
        return hoplo.get(outer.remote(depth - 1) if depth else fail.remote(KeyError("deep")))

    with pytest.raises(KeyError) as caught:
        hoplo.get(outer.remote(2))
    assert caught.value.args == ("deep",)
    assert "fail" in str(caught.value)


def test_what_would_end_a_program_or_a_generator_is_a_plain_task_error():
    for error in (StopIteration(3), GeneratorExit()):
        with pytest.raises(TaskError) as caught:
            hoplo.get(fail.remote(error))
        assert type(caught.value) is TaskError
        assert type(caught.value.cause) is type(error)


def test_a_failed_task_does_not_hurt_the_next_one():
    for i in range(50):
        with pytest.raises(ValueError, match=str(i)):
            hoplo.get(fail.remote(ValueError(i)))
    assert hoplo.get(hoplo.remote(lambda: 1).remote()) == 1


def test_system_errors_know_their_task():
    @hoplo.remote(max_retries=0)
    def crash():
        import os

        os._exit(1)

    ref = crash.remote()
    with pytest.raises(exceptions.WorkerCrashedError) as caught:
        hoplo.get(ref)
    assert caught.value.task_id == ref.task_id()


# ------------------------------------------------------------------------------- environments


@pytest.mark.near
def test_an_environment_that_cannot_be_made_fails_the_task(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()

    @hoplo.remote(runtime_env={"working_dir": str(folder)})
    def work():
        return 1

    @hoplo.remote
    class Actor:
        def work(self):
            return 1

    actor_class = Actor.options(runtime_env={"working_dir": str(folder)})
    shutil.rmtree(folder)
    with pytest.raises(RuntimeEnvSetupError, match=str(folder)):
        hoplo.get(work.remote(), timeout=20)
    with pytest.raises(RuntimeEnvSetupError, match="working_dir"):
        hoplo.get(actor_class.remote().work.remote(), timeout=20)
    folder.mkdir()
    assert hoplo.get(work.remote(), timeout=20) == 1  # made later, it is found


class Frozen(Exception):
    def __setattr__(self, name, value):
        raise TypeError("no attributes, please")


def test_an_error_of_get_names_no_ref():
    """The guide and the docstring promised ids that only some errors had."""
    for ref in (fail.remote(ValueError("no")), fail.remote(Frozen()), crash.remote()):
        with pytest.raises(HoploError) as caught:
            hoplo.get(ref)
        assert (caught.value.object_id, caught.value.task_id) == (ref.hex(), ref.task_id())

    async def awaits(ref):
        await ref

    ref = fail.remote(ValueError("no"))
    with pytest.raises(ValueError, match="no") as caught:
        asyncio.run(awaits(ref))
    assert caught.value.object_id == ref.hex()


def test_an_exception_that_is_no_exception_keeps_its_type():
    with pytest.raises(Aborted, match="by hand") as caught:
        hoplo.get(fail.remote(Aborted("by hand")))
    assert isinstance(caught.value, TaskError)
    assert type(caught.value.cause) is Aborted


def test_a_task_that_is_interrupted_by_itself_is_told_as_cancelled():
    with pytest.raises(exceptions.TaskCancelledError) as caught:
        hoplo.get(fail.remote(KeyboardInterrupt("enough")))
    assert not isinstance(caught.value, KeyboardInterrupt), "it would end the program"
    assert isinstance(caught.value, TaskError)
    assert type(caught.value.cause) is KeyboardInterrupt
