"""What type checkers find out about programs: of what type is what calls give."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
from conftest import TREE

import hoplo
from hoplo import _options, _placement
from hoplo._option_types import ForActors, ForMethods, ForTasks
from hoplo.actor import ActorClass, ActorHandle, ActorProxy

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
counter = Counters.remote()
reveal_type(counter)  # ActorHandle[Counter]
reveal_type(Counters.options(name="c").remote())  # ActorHandle[Counter]
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

reveal_type(Plain.remote())  # ActorHandle[Plain]
reveal_type(Counter.remote())  # ActorHandle[Counter]
reveal_type(Counter.options(name="c").remote())  # ActorHandle[Counter]
"""
"""Mypy does not follow decorators of classes."""


METHODS = """
from collections.abc import AsyncIterator, Iterator
from typing import Any, TypeVar
import hoplo{facade} as ray
from hoplo{facade}.actor import ActorClass, ActorHandle, ActorProxy

T = TypeVar("T")

class Account:
    def __init__(self, owner: str, balance: float = 0.0) -> None:
        self.owner, self.balance = owner, balance
        reveal_type(self.add(1))  # float

    @ray.method
    def add(self, amount: float) -> float:
        self.balance += amount
        return self.balance

    @ray.method(concurrency_group="slow")
    async def later(self, amount: float, why: str = "") -> str:
        reveal_type(await self.later(2))  # str
        return why

    @ray.method
    def days(self) -> Iterator[int]:
        yield 1

    @ray.method
    async def nights(self) -> AsyncIterator[int]:
        yield 1

    @ray.method(num_returns=2)
    def halves(self, whole: int) -> tuple[int, int]:
        return whole // 2, whole - whole // 2

    @ray.method
    def same(self, x: T) -> T:
        return x

    @ray.method
    @staticmethod
    def anything() -> int:
        return 1

    def plain(self, amount: float) -> float:
        return self.add(amount)

class Savings(Account):
    @ray.method
    def add(self, amount: float) -> float:
        reveal_type(super().add(amount))  # float
        return self.halves(3)[0] + amount

def known(account: ActorProxy[Account]) -> None:
    reveal_type(account.add.remote(1))  # ObjectRef[float]
    reveal_type(ray.get(account.add.remote(1)))  # float
    reveal_type(account.add.options(name="a").remote(1))  # ObjectRef[float]
    reveal_type(account.add.options(num_returns=0).remote(1))  # Any
    reveal_type(account.later.remote(1))  # ObjectRef[str]
    reveal_type(account.days.remote())  # ObjectRefGenerator[int]
    reveal_type(account.nights.remote())  # ObjectRefGenerator[int]
    reveal_type(account.halves.remote(3))  # Any
    account.later.remote(ray.put(1.0), ray.put("a"))
    account.anything.remote()
    account.same.remote("a")
    account.add.remote("a")  # error
    account.add.options(max_task_retries=2).remote()  # error
    account.add.options(num_cpus=2)  # error
    account.later.remote(1, 2)  # error
    account.days.remote(1)  # error
    account.halves.remote("a")  # error
    account.plain.remote(1)  # error
    account.nothing.remote(1)  # error
    ray.kill(account)

def unknown(account: ActorHandle[Account], any: ActorHandle) -> None:
    reveal_type(account.plain.remote("a"))  # Any
    reveal_type(account.add.remote(1))  # Any
    any.add.remote(1)
    known(account)

class Bank:
    def __init__(self, account: ActorProxy[Account]) -> None:
        self.account = account

    def close(self) -> float:
        return ray.get(self.account.add.remote(1))

def started(accounts: ActorClass[Account]) -> ActorProxy[Account]:
    reveal_type(accounts.remote("Ada"))  # ActorHandle[Account]
    return accounts.options(num_cpus=1).remote("Ada")

def group(wrong: bool) -> Any:
    return ray.method(concurrency_groups="slow")  # error

Accounts = ray.remote(Account)
reveal_type(Accounts.remote("Ada", balance=1.5))  # ActorHandle[Account]
reveal_type(Accounts.remote(ray.put("Ada"), ray.put(1.5)))  # ActorHandle[Account]
reveal_type(ray.remote(num_cpus=1)(Account).remote("Ada"))  # ActorHandle[Account]
known(Accounts.remote("Ada"))
known(started(Accounts))
known(ray.remote(Savings).remote("Ada"))
ray.kill(Accounts.remote("Ada"))
Accounts.remote(3)  # error
Accounts.remote()  # error
Accounts.remote("Ada", owned=3)  # error
Accounts.options(name="a").remote("Ada", "much")  # error
ray.remote(num_cpus=1)(Account).remote(1)  # error
ray.remote(Bank).remote(1)  # error
ray.remote(Bank).remote(Accounts.remote("Ada"))
known(ray.remote(Bank).remote(started(Accounts)))  # error
Account("Ada").add("a")  # error
"""
"""Methods with a decorator are known of an `ActorProxy`, arguments of constructors always."""

ARGUMENTS = """
from collections.abc import AsyncIterator, Iterator
from typing import Any, TypeVar
import hoplo{facade} as ray
from hoplo.remote_function import RemoteFunction

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

@ray.remote
def letters(word: str, times: int = 1) -> Iterator[str]:
    yield from word * times

@ray.remote(num_cpus=1)
async def later(word: str) -> AsyncIterator[str]:
    yield word

letters.remote(ray.put("a"), times=2)
later.options(name="a").remote("a")
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

def for_any(function: RemoteFunction) -> Any:
    return function.remote("a", b=2)

for_any(square)

square.remote("a")  # error
square.remote()  # error
square.remote(1, 2)  # error
square.options(max_retries=3).remote("a")  # error
add.remote(1, "b")  # error
letters.remote(1)  # error
letters.remote("a", 1, 2)  # error
later.remote(1)  # error
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

NAMES = ("ours.py", "facades.py", "aliases.py")
OF_ALIAS = "installed"


@pytest.fixture(scope="module")
def alias(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `pip install ./alias` installs."""
    folder = tmp_path_factory.mktemp("alias")
    # Builds leave files beside the sources.
    shutil.copytree(TREE / "alias", folder / "source", ignore=shutil.ignore_patterns("build"))
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*build, "--no-build-isolation", "./source"], cwd=folder, check=True)
    [wheel] = folder.glob("*.whl")
    shutil.unpack_archive(wheel, folder / OF_ALIAS, "zip")
    return folder / OF_ALIAS


def written(folder: Path, program: str, alias: Path) -> dict[tuple[str, int], str]:
    """The program lies there under all names: by name and line, what it says of its types."""
    said = {}
    (folder / OF_ALIAS).symlink_to(alias)
    for name, facade in zip(NAMES, ("hoplo", "hoplo.ray", "ray"), strict=True):
        source = program.replace("hoplo{facade}", facade)
        (folder / name).write_text(source)
        for number, line in enumerate(source.splitlines(), start=1):
            if "reveal_type" in line and "  # " in line:
                said[name, number] = line.partition("  # ")[2]
    return said


def checked(folder: Path, *command: str, errors: bool = False) -> str:
    told = subprocess.run(
        [*command, *NAMES],
        capture_output=True,
        text=True,
        timeout=100,
        cwd=folder,
        env={**os.environ, "MYPYPATH": OF_ALIAS},
    )
    assert told.returncode == int(errors), told.stdout + told.stderr
    return told.stdout


def by_mypy(folder: Path, errors: bool = False) -> str:
    command = (sys.executable, "-m", "mypy", "--strict", "--cache-dir", "cache")
    return checked(folder, *command, errors=errors)


def by_pyright(folder: Path, errors: bool = False) -> str:
    # What methods without a decorator give is unknown.
    rules = {"typeCheckingMode": "strict", "reportUnknownVariableType": False}
    rules = {**rules, "extraPaths": [OF_ALIAS]}
    (folder / "pyrightconfig.json").write_text(json.dumps(rules))
    command = (sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable)
    return checked(folder, *command, errors=errors)


def kinds_by_mypy(shown: str) -> dict[tuple[str, int], str]:
    lines = re.findall(r'^(\w+\.py):(\d+): note: Revealed type is "(.*)"$', shown, re.M)
    return {(name, int(line)): re.sub(r"\b[a-z_]+\.", "", kind) for name, line, kind in lines}


def kinds_by_pyright(shown: str) -> dict[tuple[str, int], str]:
    pattern = r'/(\w+\.py):(\d+):\d+ - information: Type of ".*" is "(.*)"$'
    return {(name, int(line)): kind for name, line, kind in re.findall(pattern, shown, re.M)}


def test_what_calls_give_was_any_for_type_checkers(tmp_path: Path, alias: Path) -> None:
    said = written(tmp_path, PROGRAM, alias)
    assert kinds_by_mypy(by_mypy(tmp_path)) == said


@pytest.mark.parametrize("source", [PROGRAM, DECORATED], ids=["as mypy", "decorated classes"])
def test_pyright_knows_what_calls_give(tmp_path: Path, source: str, alias: Path) -> None:
    said = written(tmp_path, source, alias)
    assert kinds_by_pyright(by_pyright(tmp_path)) == said


@pytest.mark.parametrize(
    ("shows", "kinds"), [(by_mypy, kinds_by_mypy), (by_pyright, kinds_by_pyright)]
)
@pytest.mark.parametrize("source", [ARGUMENTS, METHODS], ids=["tasks", "actors"])
def test_wrong_arguments_and_options_were_none_for_type_checkers(
    tmp_path: Path,
    source: str,
    shows: Callable[..., str],
    kinds: Callable[[str], object],
    alias: Path,
) -> None:
    said = written(tmp_path, source, alias)
    wrong = {number for number, line in enumerate(source.splitlines(), 1) if "# error" in line}
    shown = shows(tmp_path, errors=True)
    found = re.findall(r"(\w+\.py):(\d+):.*\berror\b", shown)
    assert {(name, int(line)) for name, line in found} == {
        (n, line) for n in NAMES for line in wrong
    }
    assert kinds(shown) == said


MODULES = """
import ray
import ray.util.queue
from ray import cloudpickle
from ray.dag import InputNode
from ray.util.accelerators import NVIDIA_A100
from ray.util.multiprocessing import Pool
from ray.util.placement_group import PlacementGroup, placement_group
from ray.util.state import list_tasks

with InputNode() as given:
    pass
reveal_type(NVIDIA_A100.encode())  # bytes
reveal_type(Pool(2))  # Pool
reveal_type(list_tasks())  # list[TaskState]
reveal_type(ray.__version__)  # str
reveal_type(ray.exceptions.RayTaskError())  # TaskError
reveal_type(ray.util.placement_group([]))  # PlacementGroup
reveal_type(ray.util.queue.Queue())  # Queue
group: PlacementGroup = placement_group([{"CPU": 1}])
cloudpickle.dumps(given)
ray.data.range(3)  # error
"""
"""With the alias, modules that are found while a program runs have types, too."""


@pytest.mark.parametrize(
    ("shows", "kinds"), [(by_mypy, kinds_by_mypy), (by_pyright, kinds_by_pyright)]
)
def test_modules_of_the_alias_were_unknown_to_type_checkers(
    tmp_path: Path, shows: Callable[..., str], kinds: Callable[[str], object], alias: Path
) -> None:
    said = written(tmp_path, MODULES, alias)
    shown = shows(tmp_path, errors=True)
    wrong = MODULES.splitlines().index("ray.data.range(3)  # error") + 1
    found = re.findall(r"(\w+\.py):(\d+):.*\berror\b", shown)
    assert set(found) == {(name, str(wrong)) for name in NAMES}, shown
    assert kinds(shown) == said
    assert (alias / "ray" / "py.typed").exists()


def test_the_alias_has_a_file_for_each_module_of_the_facade() -> None:
    files = runpy.run_path(str(TREE / "alias" / "write_modules.py"))["files"]()
    there = {
        str(path.relative_to(TREE / "alias")): path.read_text()
        for path in (TREE / "alias" / "ray").rglob("*.py*")
        if path.suffix in (".py", ".pyi")
    }
    there.pop("ray/__init__.py")
    assert files == there, "run `python alias/write_modules.py`"


def test_type_checkers_know_all_options() -> None:
    old_style = set(_placement._OLD_STYLE)
    tasks, actors = get_type_hints(ForTasks), get_type_hints(ForActors)
    assert set(tasks) == (set(_options._TASK) | old_style) - {"num_returns"}
    assert set(actors) == set(_options._ACTOR) | old_style
    assert set(get_type_hints(ForMethods)) == set(_options._METHOD) - {"num_returns"}


def test_what_is_generic_for_type_checkers_is_so_when_it_runs(
    fresh_node: Callable[..., object],
) -> None:
    fresh_node()

    class Counter: ...

    Counters = hoplo.remote(Counter)
    for made in (ActorClass[Counter], ActorHandle[Counter], ActorProxy[Counter]):
        assert get_args(made) == (Counter,)
    assert get_type_hints(takes)["counter"] == ActorProxy[int]
    assert isinstance(Counters, ActorClass)
    counter = Counters.remote()
    assert isinstance(counter, ActorHandle)


def takes(counter: ActorProxy[int]) -> None: ...
