"""What type checkers find out about programs: of what type is what calls give."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import get_type_hints

import pytest

from hoplo import _options, _placement
from hoplo._option_types import ForActors, ForTasks

NODE = None

PROGRAM = """
import hoplo{facade} as ray
from collections.abc import Iterator

@ray.remote
def square(x: int) -> int:
    return x * x

@ray.remote(num_cpus=2, max_retries=0)
def text(x: int) -> str:
    return str(x)

@ray.remote
def letters(word: str) -> Iterator[str]:
    yield from word

@ray.remote(num_returns=2)
def pair() -> tuple[int, str]:
    return 1, "a"

class Counter:
    def __init__(self) -> None:
        self.n = 0

    def add(self, by: int = 1) -> int:
        self.n += by
        return self.n

reveal_type(square.remote(2))  # ObjectRef[int]
reveal_type(ray.get(square.remote(2)))  # int
reveal_type(ray.get([square.remote(x) for x in range(3)]))  # list[int]
reveal_type(ray.get(square.options(num_cpus=1).remote(2), timeout=3))  # int
reveal_type(ray.get(text.remote(square.remote(2))))  # str
reveal_type([ray.get(ref) for ref in letters.remote("ab")])  # list[str]
reveal_type(pair.remote())  # Any
reveal_type(square.options(num_returns=0).remote(2))  # Any
reveal_type(ray.get(ray.put(1.5)))  # float
ready, waiting = ray.wait([square.remote(2)], num_returns=1)
reveal_type(ray.get(ready))  # list[int]
Counters = ray.remote(Counter)  # mypy does not follow decorators of classes
reveal_type(Counters)  # ActorClass[Counter]
counter = Counters.remote()
reveal_type(counter)  # ActorHandle
reveal_type(Counters.options(name="c").remote())  # ActorHandle
total: int = ray.get(counter.add.remote(3))

async def wanted() -> None:
    reveal_type(await text.remote(3))  # str
"""

DECORATED = """
import hoplo{facade} as ray

@ray.remote(num_cpus=0)
class Plain:
    pass

@ray.remote
class Counter:
    pass

reveal_type(Plain)  # ActorClass[Plain]
reveal_type(Counter)  # ActorClass[Counter]
reveal_type(Counter.options(name="c").remote())  # ActorHandle
"""
"""Mypy does not follow decorators of classes."""


ARGUMENTS = """
from typing import Any, TypeVar
import hoplo{facade} as ray

T = TypeVar("T")

@ray.remote
def square(x: int) -> int:
    return x * x

@ray.remote(num_cpus=1)
def add(x: int, y: float = 1.0, *, scale: str = "") -> float:
    return x + y

@ray.remote
def total(*xs: int) -> int:
    return sum(xs)

@ray.remote
def same(x: T) -> T:
    return x

ref = square.remote(2)
square.remote(ref)
add.remote(1)
add.remote(ref, ray.put(2.0))
add.remote(x=1, y=2, scale="km")
add.options(name="a").remote(1, ref)
total.remote(*[ref, ref])
total.remote(1, 2, 3, 4, 5, ref)
same.remote("a")

class Counter:
    pass

Counters = ray.remote(Counter)
Counters.options(name="a", max_restarts=-1, runtime_env=ray.runtime_env.RuntimeEnv()).remote()
asked: dict[str, Any] = {"num_cpus": 1}
square.options(**asked).remote(1)
ray.remote(memory=1e9, max_retries=2, scheduling_strategy="SPREAD")(Counter)

def for_any(function: ray.RemoteFunction) -> Any:
    return function.remote("a", b=2)

for_any(square)

square.remote("a")  # error
square.remote()  # error
square.remote(1, 2)  # error
square.options(max_retries=3).remote("a")  # error
add.remote(1, "b")  # error
add.remote(ref, "b", "c", q=3)
add.remote(1, why=3)  # error
total.remote(1, "b")  # error
square.options(num_cpu=1)  # error
square.options(num_cpus="two")  # error
square.options(num_returns=2, max_restarts=1)  # error
Counters.options(max_retries=1)  # error
Counters.options(max_restarts="many")  # error
ray.remote(num_cpus=1, retries=3)  # error
"""
"""A call in which a ref takes the place of a value is not looked at further."""

NAMES = ("ours.py", "rays.py")


def written(folder: Path, program: str) -> dict[tuple[str, int], str]:
    """The program lies there under both names: by name and line, what it says of its types."""
    said = {}
    for name, facade in zip(NAMES, ("", ".ray"), strict=True):
        source = program.replace("{facade}", facade)
        (folder / name).write_text(source)
        for number, line in enumerate(source.splitlines(), start=1):
            if "reveal_type" in line:
                said[name, number] = line.partition("  # ")[2]
    return said


def checked(folder: Path, *command: str, errors: bool = False) -> str:
    told = subprocess.run(
        [*command, *NAMES], capture_output=True, text=True, timeout=100, cwd=folder
    )
    assert told.returncode == int(errors), told.stdout + told.stderr
    return told.stdout


def by_mypy(folder: Path, errors: bool = False) -> str:
    command = (sys.executable, "-m", "mypy", "--strict", "--cache-dir", "cache")
    return checked(folder, *command, errors=errors)


def by_pyright(folder: Path, errors: bool = False) -> str:
    program = shutil.which("basedpyright") or shutil.which("pyright")
    if program is None:
        pytest.skip("neither basedpyright nor pyright is installed")
    # Handles of actors are not typed: what `get` gives of their calls is unknown.
    rules = {"typeCheckingMode": "strict", "reportUnknownVariableType": False}
    (folder / "pyrightconfig.json").write_text(json.dumps(rules))
    return checked(folder, program, "--pythonpath", sys.executable, errors=errors)


def test_what_calls_give_was_any_for_type_checkers(tmp_path: Path) -> None:
    said = written(tmp_path, PROGRAM)
    shown = by_mypy(tmp_path)
    lines = re.findall(r'^(\w+\.py):(\d+): note: Revealed type is "(.*)"$', shown, re.M)
    found = {(name, int(line)): re.sub(r"\b[a-z_]+\.", "", kind) for name, line, kind in lines}
    assert found == said


@pytest.mark.parametrize("source", [PROGRAM, DECORATED], ids=["as mypy", "decorated classes"])
def test_pyright_knows_what_calls_give(tmp_path: Path, source: str) -> None:
    said = written(tmp_path, source)
    shown = by_pyright(tmp_path)
    pattern = r'/(\w+\.py):(\d+):\d+ - information: Type of ".*" is "(.*)"$'
    lines = re.findall(pattern, shown, re.M)
    assert {(name, int(line)): kind for name, line, kind in lines} == said


@pytest.mark.parametrize("shows", [by_mypy, by_pyright])
def test_wrong_arguments_and_options_were_none_for_type_checkers(
    tmp_path: Path, shows: Callable[..., str]
) -> None:
    written(tmp_path, ARGUMENTS)
    wrong = {number for number, line in enumerate(ARGUMENTS.splitlines(), 1) if "# error" in line}
    found = re.findall(r"(\w+\.py):(\d+):.*\berror\b", shows(tmp_path, errors=True))
    assert {(name, int(line)) for name, line in found} == {
        (n, line) for n in NAMES for line in wrong
    }


def test_type_checkers_know_all_options() -> None:
    old_style = set(_placement._OLD_STYLE)
    tasks, actors = get_type_hints(ForTasks), get_type_hints(ForActors)
    assert set(tasks) == (set(_options._TASK) | old_style) - {"num_returns"}
    assert set(actors) == set(_options._ACTOR) | old_style
