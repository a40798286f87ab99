"""Graphs of calls that are made later, under the names of `ray.dag`.

`f.bind(...)` is `f.remote(...)` that does not happen yet: a node. Arguments may be other nodes,
also in lists, tuples and dicts. `node.execute(...)` makes all calls that the node needs, each once,
and gives what the last one gives: a ref, or an actor's handle.

A graph that is compiled runs by the same calls. So it is there for programs that compile theirs,
and is not faster than `.remote()`.

>>> import hoplo.ray as ray
>>> from hoplo.ray.dag import InputNode
>>> @ray.remote
... def add(a, b):
...     return a + b
>>> with InputNode() as number:
...     graph = add.bind(add.bind(number, 1), number)
>>> ray.get(graph.execute(10))
21
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn, Self

from hoplo import _core
from hoplo.actor import ActorClass

from ._absent import absent

__all__ = [
    "ClassMethodNode",
    "ClassNode",
    "CompiledDAG",
    "CompiledDAGFuture",
    "CompiledDAGRef",
    "DAGInputData",
    "DAGNode",
    "FunctionNode",
    "InputAttributeNode",
    "InputNode",
    "MultiOutputNode",
]

CompiledDAGRef = _core.ObjectRef
"""What a compiled graph gives: a ref like any other."""
CompiledDAGFuture = _core.ObjectRef
"""What `execute_async` gives: a ref, which can be awaited."""


class DAGNode:
    """A call that is made when it, or what needs it, is executed."""

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._args = args
        self._kwargs = kwargs
        self._last: dict[DAGNode, Any] | None = None

    def execute(self, *args: Any, _ray_cache_refs: bool = False, **kwargs: Any) -> Any:
        """Makes the calls that it needs, and its own: what `.remote()` gives.

        The arguments are what an `InputNode` of the graph stands for. Each time all calls are made
        anew, and actors as well; with `_ray_cache_refs=True` what was made so the last time is used
        again, until `clear_cache()`.

        Raises ValueError for a graph with more than one InputNode, TypeError if it has one and
        there are no arguments, and what the calls themselves raise.
        """
        made = dict(self._last or {}) if _ray_cache_refs else {}
        result = _Run((args, kwargs), made).result(self)
        if _ray_cache_refs:
            self._last = {node: one for node, one in made.items() if not _is_input(node)}
        return result

    def clear_cache(self) -> None:
        """Forgets what `execute(_ray_cache_refs=True)` kept."""
        self._last = None

    def get_args(self) -> tuple[Any, ...]:
        """The arguments by position, as they were bound."""
        return self._args

    def get_kwargs(self) -> dict[str, Any]:
        """The arguments by name, as they were bound."""
        return dict(self._kwargs)

    def experimental_compile(self, **options: Any) -> CompiledDAG:
        """The graph, to be executed many times: its actors are made once.

        Options of Ray's that say how values are moved have no effect here.
        """
        unknown = sorted(set(options) - _COMPILE_OPTIONS)
        if unknown:
            raise TypeError(f"experimental_compile() has no option {unknown[0]!r}")
        return CompiledDAG(self)

    def with_tensor_transport(self, *_: Any, **__: Any) -> Self:
        """The node itself: arrays and tensors go through the object store."""
        return self

    def _needs(self) -> Iterator[DAGNode]:
        """Nodes whose calls are made before."""
        return _nodes_in((self._args, self._kwargs))

    def _make(self, run: _Run) -> Any:
        """Makes the call. What it needs has been made."""
        raise NotImplementedError

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} cannot be sent: execute it, and send the ref. As an argument "
            "of bind() it is found by itself, also in lists, tuples and dicts, in no other object"
        )


class FunctionNode(DAGNode):
    """A call of a function: `f.bind(...)`."""

    def __init__(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        super().__init__(args, kwargs)
        self._function = function

    def _make(self, run: _Run) -> Any:
        args, kwargs = run.filled((self._args, self._kwargs))
        return self._function.remote(*args, **kwargs)

    def __repr__(self) -> str:
        return f"FunctionNode({self._function.__name__})"


class ClassNode(DAGNode):
    """An actor that is made when one of its methods is called: `A.bind(...)`.

    `node.method.bind(...)` is a call of its method. Calls of one node are made in the order in
    which they were bound: those before one that is executed as well.
    """

    def __init__(self, actor_class: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        super().__init__(args, kwargs)
        self._class = actor_class
        self._bound_last: ClassMethodNode | None = None

    def _make(self, run: _Run) -> Any:
        args, kwargs = run.filled((self._args, self._kwargs))
        return self._class.remote(*args, **kwargs)

    def __getattr__(self, name: str) -> _Unbound:
        if name.startswith("__") or not hasattr(self._class.__wrapped__, name):
            raise AttributeError(f"{self._class.__name__} has no method {name!r}")
        return _Unbound(self, name, {})

    def __repr__(self) -> str:
        return f"ClassNode({self._class.__name__})"


class _Unbound:
    """A method of an actor that is to be made."""

    def __init__(self, actor: ClassNode, name: str, options: dict[str, Any]) -> None:
        self._actor = actor
        self._name = name
        self._options = options

    def options(self, **options: Any) -> _Unbound:
        """The same method with some options changed."""
        return _Unbound(self._actor, self._name, {**self._options, **options})

    def bind(self, *args: Any, **kwargs: Any) -> ClassMethodNode:
        """A call of it."""
        node = ClassMethodNode(self._actor, (self._name, self._options), args, kwargs)
        self._actor._bound_last = node
        return node

    def remote(self, *_: Any, **__: Any) -> NoReturn:
        raise AttributeError(
            f"{self._actor!r} is no actor yet: write .{self._name}.bind(...), and execute() that"
        )


class ClassMethodNode(DAGNode):
    """A call of an actor's method: `actor.method.bind(...)`."""

    def __init__(
        self, actor: Any, method: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        super().__init__(args, kwargs)
        self._actor = actor if isinstance(actor, ClassNode) else None
        self._method = method
        self._before = self._actor._bound_last if self._actor is not None else None

    def _needs(self) -> Iterator[DAGNode]:
        if self._actor is not None:
            yield self._actor
        if self._before is not None:
            yield self._before
        yield from super()._needs()

    def _make(self, run: _Run) -> Any:
        method = self._method
        if self._actor is not None:
            name, options = method
            method = getattr(run.made[self._actor], name)
            method = method.options(**options) if options else method
        args, kwargs = run.filled((self._args, self._kwargs))
        return method.remote(*args, **kwargs)

    def __repr__(self) -> str:
        name = self._method.__name__ if self._actor is None else self._method[0]
        return f"ClassMethodNode({name})"


class DAGInputData:
    """What a graph was given, if that is more than one value."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._args = args
        self._kwargs = kwargs

    def __getitem__(self, key: int | str) -> Any:
        return self._args[key] if isinstance(key, int) else self._kwargs[key]


class InputNode(DAGNode):
    """What a graph will be given: `with InputNode() as given`.

    It is the argument of `execute()`. If that has several, `given[0]` and `given.name` are those by
    position and by name; of a single one they are an item and an attribute.
    """

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__((), {})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __getitem__(self, key: Any) -> InputAttributeNode:
        return InputAttributeNode(self, key, is_item=True)

    def __getattr__(self, name: str) -> InputAttributeNode:
        if name.startswith("_"):
            raise AttributeError(name)
        return InputAttributeNode(self, name, is_item=False)

    def _make(self, run: _Run) -> Any:
        args, kwargs = run.given
        if len(args) == 1 and not kwargs:
            return args[0]
        if not args and not kwargs:
            raise TypeError("this graph has an InputNode: execute() needs what that stands for")
        return DAGInputData(*args, **kwargs)

    def __repr__(self) -> str:
        return "InputNode()"


class InputAttributeNode(DAGNode):
    """A part of what a graph will be given: `given[key]` or `given.name`."""

    def __init__(self, given: InputNode, key: Any, *, is_item: bool) -> None:
        super().__init__((given,), {})
        self._key = key
        self._is_item = is_item

    def _make(self, run: _Run) -> Any:
        given = run.made[self._args[0]]
        if self._is_item or isinstance(given, DAGInputData):
            return given[self._key]
        return getattr(given, self._key)

    def __repr__(self) -> str:
        return f"InputNode()[{self._key!r}]" if self._is_item else f"InputNode().{self._key}"


class MultiOutputNode(DAGNode):
    """Several nodes, to be executed together: `execute()` gives a list."""

    def __init__(self, args: list[DAGNode] | tuple[DAGNode, ...], *_: Any, **__: Any) -> None:
        if not isinstance(args, list | tuple):
            raise ValueError(f"MultiOutputNode takes a list of nodes, not {type(args).__name__}")
        if not all(isinstance(node, DAGNode) for node in args):
            raise ValueError("all that is given to MultiOutputNode has to be a node: f.bind(...)")
        super().__init__((list(args),), {})

    def _make(self, run: _Run) -> Any:
        return run.filled(self._args[0])

    def __repr__(self) -> str:
        return f"MultiOutputNode({self._args[0]!r})"


class CompiledDAG:
    """A graph that is executed many times: `node.experimental_compile()`."""

    def __init__(self, root: DAGNode) -> None:
        self._root: DAGNode | None = root
        order = _in_order(root)
        # None of what actors are given is known before execute().
        actors = [node for node in order if isinstance(node, ClassNode)]
        self._actors: dict[DAGNode, Any] = {}
        for actor in actors:
            _Run(((), {}), self._actors).result(actor)

    def execute(self, *args: Any, **kwargs: Any) -> Any:
        """Makes the calls with these arguments: a ref, or a list of refs of a MultiOutputNode."""
        if self._root is None:
            raise RuntimeError("this graph was torn down: compile it again")
        return _Run((args, kwargs), dict(self._actors)).result(self._root)

    async def execute_async(self, *args: Any, **kwargs: Any) -> Any:
        """`execute`, whose refs are to be awaited."""
        return self.execute(*args, **kwargs)

    def teardown(self, kill_actors: bool = False) -> None:
        """No more can be executed. With `kill_actors`, actors that were made for it are killed."""
        from hoplo import kill

        for made in self._actors.values() if kill_actors else ():
            if isinstance(made, _core.ActorHandle):
                kill(made)
        self._root, self._actors = None, {}

    def visualize(self, *_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError("visualize() is not in hoplo; print() shows a node")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.teardown()


_COMPILE_OPTIONS = frozenset(
    (
        "enable_asyncio",
        "_submit_timeout",
        "_buffer_size_bytes",
        "_default_communicator",
        "_max_buffered_results",
        "_max_inflight_executions",
        "_overlap_gpu_communication",
    )
)


class _Run:
    """One execution: what calls have given so far, each once."""

    def __init__(
        self, given: tuple[tuple[Any, ...], dict[str, Any]], made: dict[DAGNode, Any]
    ) -> None:
        self.given = given
        self.made = made

    def result(self, root: DAGNode) -> Any:
        order = _in_order(root)
        if sum(isinstance(node, InputNode) for node in order) > 1:
            raise ValueError("a graph has one InputNode at most: pass the same one on")
        for node in order:
            if node not in self.made:
                self.made[node] = node._make(self)
        return self.made[root]

    def filled(self, value: Any) -> Any:
        """A copy with what was made in the places of nodes."""
        if isinstance(value, DAGNode):
            return self.made[value]
        if type(value) in (list, tuple):
            return type(value)(self.filled(item) for item in value)
        if type(value) is dict:
            return {key: self.filled(item) for key, item in value.items()}
        return value


def _in_order(root: DAGNode) -> list[DAGNode]:
    """The node and all that it needs, each behind what it needs itself."""
    order: list[DAGNode] = []
    done: set[DAGNode] = set()
    # Not by recursion: calls of one actor are a chain as long as a program likes.
    stack = [(root, root._needs())]
    seen = {root}
    while stack:
        node, needs = stack[-1]
        needed = next((one for one in needs if one not in done), None)
        if needed is None:
            stack.pop()
            done.add(node)
            order.append(node)
        elif needed not in seen:
            seen.add(needed)
            stack.append((needed, needed._needs()))
    return order


def _nodes_in(value: Any) -> Iterator[DAGNode]:
    if isinstance(value, DAGNode):
        yield value
    elif type(value) in (list, tuple):
        for item in value:
            yield from _nodes_in(item)
    elif type(value) is dict:
        for item in value.values():
            yield from _nodes_in(item)


def _is_input(node: DAGNode) -> bool:
    return isinstance(node, InputNode | InputAttributeNode)


def bind_function(function: Any, *args: Any, **kwargs: Any) -> FunctionNode:
    """`f.bind(...)`: a call of it that is made when it is executed (`ray.dag`)."""
    return FunctionNode(function, args, kwargs)


def bind_class(actor_class: ActorClass[Any], *args: Any, **kwargs: Any) -> ClassNode:
    """`A.bind(...)`: an actor that is made when a method of it is executed (`ray.dag`)."""
    return ClassNode(actor_class, args, kwargs)


def bind_method(method: Any, *args: Any, **kwargs: Any) -> ClassMethodNode:
    """`actor.method.bind(...)`: a call that is made when it is executed (`ray.dag`)."""
    return ClassMethodNode(None, method, args, kwargs)


__getattr__ = absent(__name__, __all__)
__path__: list[str] = []
