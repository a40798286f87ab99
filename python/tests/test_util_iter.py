"""hoplo.util: as_completed, map_unordered, the progress bar, the job's summary."""

import io
import itertools
import os
import pty
import sys

import pytest
from conftest import eventually, run_driver

import hoplo
from hoplo.exceptions import GetTimeoutError
from hoplo.util import Progress, as_completed, job_summary, map_unordered


@hoplo.remote
def square(x):
    if x == 99:
        raise ValueError("not 99")
    return x * x


@hoplo.remote
def hold(gate):
    return gate.wait("held")


# ------------------------------------------------------------------------------------ errors


def test_an_error_is_raised_in_its_turn():
    with pytest.raises(ValueError, match="not 99"):
        list(as_completed([square.remote(i) for i in (1, 99, 2)]))
    with pytest.raises(ValueError, match="not 99"):
        list(map_unordered(square, range(90, 110)))


def test_a_timeout(gate):
    refs = [square.remote(2), hold.remote(gate)]
    results = as_completed(refs, timeout=0.5)
    assert next(results) == 4
    with pytest.raises(GetTimeoutError, match="1 results were not there"):
        next(results)


@pytest.mark.parametrize("size", [0, -1])
def test_sizes_below_one(size):
    with pytest.raises(ValueError, match="chunk_size must be 1 or more"):
        list(as_completed([], chunk_size=size))
    with pytest.raises(ValueError, match="backpressure_size must be 1 or more"):
        list(map_unordered(square, [1], backpressure_size=size))


def test_a_function_that_is_not_remote():
    with pytest.raises(TypeError, match=r"decorate it with @hoplo\.remote"):
        list(map_unordered(abs, [1]))


# ------------------------------------------------------------------------------------ results


def test_everything_once():
    refs = [square.remote(i) for i in range(30)]
    assert sorted(as_completed(refs)) == [i * i for i in range(30)]
    assert sorted(as_completed(refs, chunk_size=1)) == [i * i for i in range(30)]
    assert set(as_completed(refs, yield_obj_refs=True)) == set(refs)
    assert list(as_completed([])) == []


def test_each_chunk_looked_anew_at_all_that_waited(monkeypatch):
    refs = [square.remote(i) for i in range(90)]
    hoplo.wait(refs, num_returns=90)
    looked = []

    def wait(waiting, **options):
        looked.append(len(waiting))
        return original(waiting, **options)

    original = hoplo.wait
    monkeypatch.setattr(hoplo, "wait", wait)
    assert len(list(as_completed(refs))) == 90
    assert sum(looked) <= 2 * 90, looked


def test_the_first_that_is_there_comes_first(gate):
    refs = [hold.remote(gate), square.remote(3)]
    results = as_completed(refs)
    assert next(results) == 9
    gate.open()
    assert list(results) == ["held"]


@pytest.mark.parametrize("backpressure_size", [1, 7, 100, None])
def test_map_unordered(backpressure_size):
    values = map_unordered(square, range(90), backpressure_size=backpressure_size)
    assert sorted(values) == [i * i for i in range(90)]


def test_map_unordered_takes_endless_items():
    values = map_unordered(square, itertools.count(200), backpressure_size=4, chunk_size=1)
    assert len(list(itertools.islice(values, 20))) == 20


def test_map_unordered_of_a_method():
    @hoplo.remote
    class Doubler:
        def double(self, x):
            return 2 * x

    actor = Doubler.remote()
    assert sorted(map_unordered(actor.double, range(5))) == [0, 2, 4, 6, 8]


# ------------------------------------------------------------------------------------ progress


def test_no_bar_where_nobody_looks(capfd):
    assert len(list(as_completed([square.remote(i) for i in range(5)], progress=True))) == 5
    assert capfd.readouterr() == ("", "")


def test_a_bar_in_a_terminal(monkeypatch):
    leader, follower = pty.openpty()
    with open(follower, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        refs = [square.remote(i) for i in range(5)]
        assert len(list(as_completed(refs, progress="squares"))) == 5
        monkeypatch.undo()
    shown = os.read(leader, 65536).decode()
    os.close(leader)
    assert "squares" in shown
    assert "5/5" in shown
    assert "100%" in shown


def test_a_bar_in_a_notebook(monkeypatch):
    shown = []

    class Handle:
        def update(self, data, raw):
            shown.append(data["text/plain"])

    class Shell:
        kernel = object()

    import types

    ipython = types.ModuleType("IPython")
    ipython.get_ipython = Shell
    display = types.ModuleType("IPython.display")
    display.display = lambda data, raw, display_id: Handle()
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    assert len(list(map_unordered(square, range(8), progress="notebook"))) == 8
    assert "notebook" in shown[-1]
    assert "8/8" in shown[-1]


def test_the_line_of_a_bar():
    bar = Progress("step", total=4, shown=False)
    bar.advance(note="fine")
    line = bar.line()
    assert line.startswith("step  [#######....")
    assert "25%  1/4" in line
    assert line.endswith("fine")
    endless = Progress(shown=False)
    endless.advance(3)
    assert endless.line().startswith("3  ")
    assert isinstance(io.StringIO().write(line), int)


# ------------------------------------------------------------------------------------ summary


def test_a_summary_needs_a_session():
    out = run_driver(
        """
from hoplo.util import job_summary
try:
    job_summary()
except RuntimeError as error:
    print(error)
"""
    ).stdout
    assert "call hoplo.init() first" in out


def test_the_summary_of_the_job():
    @hoplo.remote
    class Echo:
        def echo(self, x):
            return x

    before = job_summary()
    hoplo.get([square.remote(i) for i in range(10)])
    actor = Echo.remote()
    hoplo.get([actor.echo.remote(i) for i in range(7)])
    ref = hoplo.put(b"x" * 1_000_000)

    def counted():
        now = job_summary()
        return (
            now.tasks_finished - before.tasks_finished == 10
            and now.method_calls_finished - before.method_calls_finished == 7
            and now.objects_stored - before.objects_stored == 1
            and now.bytes_stored - before.bytes_stored >= 1_000_000
        )

    eventually(counted)
    del ref
