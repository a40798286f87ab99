"""The examples in docstrings work, and everything public has one.

Examples may use what `GIVEN` defines. One that calls `hoplo.init` or `hoplo.shutdown` begins
without a session; the others share one. What is made in Rust has its docstrings in the stub;
`help` shows the same without the examples.
"""

from __future__ import annotations

import ast
import doctest
import gc
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import assert_nothing_left

import hoplo
from hoplo import util

NODE = None

MODULES = [
    "hoplo",
    "hoplo._api",
    "hoplo._collectives",
    "hoplo._dynamic",
    "hoplo._logging",
    "hoplo.actor",
    "hoplo.doctor",
    "hoplo.exceptions",
    "hoplo.ray",
    "hoplo.ray._calls",
    "hoplo.ray._ids",
    "hoplo.ray._init",
    "hoplo.ray.experimental.tqdm_ray",
    "hoplo.ray.job_config",
    "hoplo.ray.runtime_context",
    "hoplo.ray.util.actor_group",
    "hoplo.ray.util.annotations",
    "hoplo.ray.util.check_serialize",
    "hoplo.ray.util.iter",
    "hoplo.ray.util.local_iter",
    "hoplo.ray.util.multiprocessing.pool",
    "hoplo.ray.util.named",
    "hoplo.ray.util.serialization",
    "hoplo.ray.util.state._client",
    "hoplo.ray.util.state.common",
    "hoplo.remote_function",
    "hoplo.runtime_context",
    "hoplo.runtime_env",
    "hoplo.util",
    "hoplo.util.actor_pool",
    "hoplo.util.collective.collective",
    "hoplo.util.collective.group",
    "hoplo.util.collective.types",
    "hoplo.util.inspect",
    "hoplo.util.iter",
    "hoplo.util.multiprocessing",
    "hoplo.util.placement_group",
    "hoplo.util.progress",
    "hoplo.util.queue",
    "hoplo.util.scheduling_strategies",
    "hoplo.util.state",
    "hoplo.util.state.rows",
    "hoplo.util.state.summaries",
    "hoplo.util.summary",
]
try:
    import joblib  # noqa: F401
except ImportError:
    pass
else:
    MODULES += ["hoplo.util.joblib", "hoplo.ray.util.joblib"]
try:
    import dask  # noqa: F401
except ImportError:
    pass
else:
    MODULES += ["hoplo.util.dask", "hoplo.ray.util.dask"]

GIVEN = """
import hoplo
from hoplo.util import *

@hoplo.remote
def square(x):
    return x * x

@hoplo.remote
class Counter:
    def __init__(self):
        self.value = 0
    def add(self, amount=1):
        self.value += amount
        return self.value

@hoplo.remote
class Doubler:
    def double(self, x):
        return 2 * x
"""


def given() -> dict[str, object]:
    # As in a program of its own, where functions travel by value.
    names: dict[str, object] = {"__name__": "__main__"}
    exec(compile(GIVEN, "<given>", "exec"), names)
    return names


def stub_docstrings() -> Iterator[tuple[str, str, int]]:
    """Name, docstring and line of everything in `_core.pyi`."""
    path = Path(hoplo.__file__).parent / "_core.pyi"

    def walk(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, str, int]]:
        for node in body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                text = ast.get_docstring(node)
                if text:
                    yield f"{prefix}{node.name}", text, node.body[0].lineno - 1
            if isinstance(node, ast.ClassDef):
                yield from walk(node.body, f"{prefix}{node.name}.")

    yield from walk(ast.parse(path.read_text()).body, "")


def all_examples() -> list[doctest.DocTest]:
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = []
    for name in MODULES:
        module = importlib.import_module(name)
        # Not `module.__dict__`: only what GIVEN and the module's public names define.
        names = {key: getattr(module, key) for key in getattr(module, "__all__", ())}
        globs = {**given(), **names}
        found += finder.find(module, name, module=module, globs=globs)
    parser = doctest.DocTestParser()
    for name, text, line in stub_docstrings():
        found.append(parser.get_doctest(text, given(), f"hoplo._core.{name}", "_core.pyi", line))
    return [test for test in found if test.examples]


EXAMPLES = all_examples()
STARTS = ("init", "shutdown", "ray.init", "ray.shutdown")


@pytest.fixture(scope="module", autouse=True)
def nothing_stays(node: object) -> Iterator[None]:
    yield
    hoplo.shutdown()
    gc.collect()
    assert_nothing_left()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda test: test.name)
def test_an_example_in_a_docstring_works(example: doctest.DocTest) -> None:
    source = "".join(part.source for part in example.examples)
    starts = any(f"hoplo.{call}(" in source for call in STARTS)
    if starts:
        hoplo.shutdown()
    elif not hoplo.is_initialized():
        hoplo.init(num_cpus=2)
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False)
    runner.run(example, out=report.append, clear_globs=True)
    gc.collect()
    if starts:
        hoplo.shutdown()
    assert runner.failures == 0, "".join(report)


def test_everything_public_has_an_example() -> None:
    shown = {test.name.rpartition(".")[2] for test in EXAMPLES}
    public = {*hoplo.__all__, *util.__all__, "RuntimeEnv", "Pool", "NodeAffinitySchedulingStrategy"}
    modules = {"exceptions", "experimental", "runtime_env", "util", "__version__"}
    assert public - modules - shown == set()


MADE_IN_RUST = {"get", "put", "ObjectRef", "ObjectRefGenerator", "ActorHandle"}
MADE_IN_RUST |= {"RemoteFunction", "ActorMethod"}


def test_help_says_of_what_is_made_in_rust_what_the_stub_says() -> None:
    differ = {}
    for name, text, _ in stub_docstrings():
        owner, _, member = name.partition(".")
        if owner not in MADE_IN_RUST or member.startswith("_"):
            continue
        thing = getattr(hoplo._core, owner)
        shown = inspect.getdoc(getattr(thing, member) if member else thing)
        if shown != text.partition("\n>>> ")[0].strip():
            differ[name] = shown
    assert differ == {}
