"""Graphs of calls that are made later: `ray.dag`."""

from __future__ import annotations

import asyncio
import importlib
import pickle
from typing import Any

import pytest

import hoplo.ray as ray
from hoplo.ray.dag import DAGNode, InputNode, MultiOutputNode


@ray.remote
def add(a: Any, b: Any) -> Any:
    return a + b


@ray.remote
def pair() -> tuple[int, int]:
    return 1, 2


@ray.remote
def gets(refs: Any) -> Any:
    return ray.get(refs["refs"][0]) + refs["plain"]


@ray.remote
class Counter:
    def __init__(self, value: int) -> None:
        self.value = value

    def inc(self, by: int = 1) -> int:
        self.value += by
        return self.value

    def get(self) -> int:
        return self.value

    def both(self) -> tuple[int, int]:
        return self.value, -self.value

    def fails(self, text: str) -> None:
        raise LookupError(text)


def test_calls_are_made_once_each_when_the_graph_is_executed() -> None:
    counter = Counter.remote(0)
    one = counter.inc.bind()
    graph = add.bind(one, add.bind(one, 10))
    assert ray.get(counter.get.remote()) == 0
    assert ray.get(graph.execute()) == 12
    assert ray.get(graph.execute()) == 14, "anew each time"
    assert ray.get(add.options(num_cpus=0.5, name="sum").bind(1, b=2).execute()) == 3


def test_actors_of_a_graph_are_made_for_it_and_take_all_calls_bound_before() -> None:
    first, second = Counter.bind(10), Counter.options(num_cpus=0).bind(10)
    first.inc.bind(2)
    first.inc.bind(4)
    second.inc.bind(6)
    graph = add.bind(first.get.bind(), second.get.bind())
    assert ray.get(graph.execute()) == 32
    assert ray.get(graph.execute()) == 32
    handle = first.execute()
    assert ray.get(handle.get.remote()) == 10
    # As an argument it is the handle.
    three = Counter.bind(add.bind(1, 2))
    assert ray.get(three.inc.options(num_returns=1).bind(by=4).execute()) == 7


def test_what_a_graph_is_given_has_its_place() -> None:
    with InputNode() as given:
        graph = add.bind(add.bind(given, 1), given)
    assert ray.get(graph.execute(10)) == 21
    assert ray.get(graph.execute(ray.put(10))) == 21
    with InputNode() as given:
        several = add.bind(given[0], add.bind(given[1], given.named))
    assert ray.get(several.execute(1, 20, named=300)) == 321
    with InputNode() as given:
        parts = add.bind(given["a"], given["b"])
        attribute = add.bind(given.real, 1)
    assert ray.get(parts.execute({"a": 1, "b": 2})) == 3
    assert ray.get(attribute.execute(4)) == 5
    assert ray.get(gets.bind({"refs": (add.bind(1, 2),), "plain": 4}).execute()) == 7


def test_several_outputs_are_a_list_of_refs() -> None:
    with InputNode() as given:
        one = add.bind(given, 1)
        graph = MultiOutputNode([one, add.bind(one, 1)])
    assert ray.get(graph.execute(1)) == [2, 3]
    assert ray.get(pair.options(num_returns=2).bind().execute()) == [1, 2]
    assert ray.get(Counter.bind(3).both.options(num_returns=2).bind().execute()) == [3, -3]


def test_what_was_made_can_be_kept() -> None:
    counter = Counter.bind(0)
    with InputNode() as by:
        graph = counter.inc.bind(by)
    assert ray.get(graph.execute(1, _ray_cache_refs=True)) == 1
    assert ray.get(graph.execute(1, _ray_cache_refs=True)) == 1, "the call itself was kept"
    graph.clear_cache()
    assert ray.get(graph.execute(5, _ray_cache_refs=True)) == 5


def test_a_long_chain_of_calls_is_no_recursion() -> None:
    counter = Counter.bind(0)
    for _ in range(3000):
        counter.inc.bind()
    assert ray.get(counter.get.bind().execute()) == 3000
    node: DAGNode = add.bind(0, 1)
    for _ in range(3000):
        node = add.bind(node, 1)
    assert ray.get(node.execute()) == 3001


def test_a_graph_that_is_compiled_runs_many_times() -> None:
    counter = Counter.remote(0)
    with InputNode() as by:
        graph = MultiOutputNode([counter.inc.bind(by), add.bind(by, 1)]).with_tensor_transport()
    with graph.experimental_compile(enable_asyncio=True, _max_inflight_executions=2) as compiled:
        assert [ray.get(compiled.execute(by)) for by in (1, 2, 3)] == [[1, 2], [3, 3], [6, 4]]

        async def awaits() -> list[int]:
            return [await ref for ref in await compiled.execute_async(4)]

        assert asyncio.run(awaits()) == [10, 5]
        with pytest.raises(TypeError):
            ray.get(compiled.execute("text"))
        assert ray.get(compiled.execute(1)) == [11, 2], "an error ends nothing"
    with pytest.raises(RuntimeError, match="torn down"):
        compiled.execute(1)
    # Actors of the graph's own are made once.
    with InputNode() as by:
        own = Counter.bind(100).inc.bind(by).experimental_compile()
    assert [ray.get(own.execute(by)) for by in (1, 2)] == [101, 103]
    own.teardown(kill_actors=True)
    with pytest.raises(TypeError, match="has no option '_nope'"):
        graph.experimental_compile(_nope=1)


def test_errors_of_graphs_say_what_to_do() -> None:
    with InputNode() as one, InputNode() as other:
        two = add.bind(one, other)
    with pytest.raises(ValueError, match="one InputNode at most"):
        two.execute(1)
    with pytest.raises(TypeError, match="needs what that stands for"):
        add.bind(one, 1).execute()
    with pytest.raises(LookupError, match="gone"):
        ray.get(add.bind(Counter.bind(1).fails.bind("gone"), 1).execute())
    with pytest.raises(AttributeError, match="Counter has no method 'nope'"):
        Counter.bind(1).nope.bind()
    with pytest.raises(AttributeError, match=r"\.inc\.bind\("):
        Counter.bind(1).inc.remote()
    with pytest.raises(TypeError, match="execute it, and send the ref"):
        pickle.dumps(add.bind(1, 2))
    with pytest.raises(TypeError, match="in no other object"):
        add.bind({frozenset([add.bind(1, 2)])}, 1).execute()
    for wrong in (add.bind(1, 2), [1]):
        with pytest.raises(ValueError, match=r"MultiOutputNode|has to be a node"):
            MultiOutputNode(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"missing|argument"):
        add.bind(1).execute()


def test_modules_and_names_of_graphs_are_rays() -> None:
    names = {
        "class_node": ["ClassNode", "ClassMethodNode"],
        "compiled_dag_node": ["CompiledDAG"],
        "dag_node": ["DAGNode"],
        "function_node": ["FunctionNode"],
        "input_node": ["InputNode", "InputAttributeNode", "DAGInputData"],
        "output_node": ["MultiOutputNode"],
    }
    for module, found in names.items():
        there = importlib.import_module(f"hoplo.ray.dag.{module}")
        assert all(getattr(there, name) is getattr(ray.dag, name) for name in found)
    node = add.bind(1, b=2)
    assert (node.get_args(), node.get_kwargs()) == ((1,), {"b": 2})
    shown = [add.bind(1, 2), Counter.bind(1), Counter.bind(1).get.bind(), InputNode()[0]]
    assert [repr(node) for node in shown] == [
        "FunctionNode(add)",
        "ClassNode(Counter)",
        "ClassMethodNode(get)",
        "InputNode()[0]",
    ]
