"""Cells of a notebook: `exec` in a `__main__` that grows and changes."""

import asyncio
import os
import signal
import sys
import threading
import time
import types

import pytest
from conftest import eventually

import hoplo


class Notebook:
    """Runs cells as IPython does: in one namespace that is `__main__`'s."""

    def __init__(self):
        self.main = types.ModuleType("__main__")
        self.main.__dict__["hoplo"] = hoplo
        self._cells = 0

    def run(self, cell):
        self._cells += 1
        code = compile(cell, f"<cell {self._cells}>", "exec")
        exec(code, self.main.__dict__)
        return self.main.__dict__.get("_")


@pytest.fixture
def notebook(monkeypatch):
    made = Notebook()
    monkeypatch.setitem(sys.modules, "__main__", made.main)
    return made


def test_an_error_names_the_cell(notebook):
    notebook.run("@hoplo.remote\ndef f():\n    return missing")
    with pytest.raises(NameError, match="missing") as caught:
        notebook.run("hoplo.get(f.remote())")
    assert "<cell 1>" in caught.value.traceback_text


def test_functions_see_names_of_other_cells(notebook):
    notebook.run("import math\nFACTOR = 2")
    notebook.run("def helper(x):\n    return x * FACTOR + math.floor(1.5)")
    notebook.run("@hoplo.remote\ndef f(x):\n    return helper(x)")
    assert notebook.run("_ = hoplo.get(f.remote(4))") == 9


def test_a_cell_run_again_with_a_change(notebook):
    cell = "@hoplo.remote\ndef f():\n    return {}"
    for i in range(4):
        notebook.run(cell.format(i))
        assert notebook.run("_ = hoplo.get(f.remote())") == i


def test_a_helper_changed_before_the_function_is_run_again(notebook):
    notebook.run("def helper():\n    return 'old'")
    notebook.run("@hoplo.remote\ndef f():\n    return helper()")
    assert notebook.run("_ = hoplo.get(f.remote())") == "old"
    notebook.run("def helper():\n    return 'new'")
    notebook.run("@hoplo.remote\ndef f():\n    return helper()")
    assert notebook.run("_ = hoplo.get(f.remote())") == "new"


def test_classes_of_a_cell_are_arguments_results_and_errors(notebook):
    notebook.run(
        """
import dataclasses

@dataclasses.dataclass
class Point:
    x: int

class Trouble(Exception):
    pass

@hoplo.remote
def moved(p):
    return Point(p.x + 1)

@hoplo.remote
def fails():
    raise Trouble("in a cell")
"""
    )
    assert notebook.run("_ = hoplo.get(moved.remote(Point(1))) == Point(2)") is True
    assert notebook.run("_ = type(hoplo.get(moved.remote(Point(1)))) is Point") is True
    cell = """
try:
    hoplo.get(fails.remote())
except Trouble as error:
    _ = type(error.cause) is Trouble, error.args
"""
    assert notebook.run(cell) == (True, ("in a cell",))


def test_actor_classes_of_a_cell_and_their_change(notebook):
    cell = """
@hoplo.remote
class Counter:
    def __init__(self):
        self.value = {}
    def add(self):
        self.value += 1
        return self.value
counter = Counter.remote()
"""
    notebook.run(cell.format(0))
    assert notebook.run("_ = hoplo.get([counter.add.remote() for _ in range(3)])") == [1, 2, 3]
    notebook.run(cell.format(10))
    assert notebook.run("_ = hoplo.get(counter.add.remote())") == 11


def test_inheritance_across_cells(notebook):
    notebook.run("class Base:\n    def who(self):\n        return type(self).__name__, 1")
    notebook.run(
        """
@hoplo.remote
class Child(Base):
    def who(self):
        return super().who()[0]
"""
    )
    notebook.run("@hoplo.remote\nclass Grandchild(Child):\n    pass")
    assert notebook.run("_ = hoplo.get(Grandchild.remote().who.remote())") == "Grandchild"


def test_cells_inside_a_running_event_loop(notebook):
    notebook.run("@hoplo.remote\ndef f(x):\n    return x + 1")

    async def kernel():
        # A notebook's kernel runs cells inside its loop: get blocks it, await does not.
        assert notebook.run("_ = hoplo.get(f.remote(1))") == 2
        assert await notebook.run("_ = f.remote(2)") == 3

    asyncio.run(kernel())


def test_a_cell_that_is_interrupted(notebook, gate):
    interrupted_at = []
    getting = threading.Event()
    notebook.main.__dict__.update(gate=gate, getting=getting)
    notebook.run("@hoplo.remote\ndef hold():\n    return gate.wait('held')\nref = hold.remote()")

    def interrupt():
        getting.wait()
        eventually(gate.arrived)
        interrupted_at.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        notebook.run("getting.set()\nhoplo.get(ref)")
    assert time.monotonic() - interrupted_at[0] < 0.2
    thread.join()
    gate.open()
    assert notebook.run("_ = hoplo.get(ref)") == "held"
