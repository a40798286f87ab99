"""Runs Dask's graphs: each node of a graph that is not data is a task.

    import dask
    from hoplo.util.dask import use_dask_here

    use_dask_here()                     # or: with use_dask_here(): ...
    dask.delayed(sum)([1, 2]).compute()

A task gets the values of the nodes that it needs as any task gets its arguments, so large ones are
read from the object store, and nothing but the results that were asked for comes to this process.
What is persisted stays in the store: further graphs have refs of it.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import dask
from dask._task_spec import Alias, DataNode, GraphNode, Task, convert_legacy_graph
from dask.callbacks import local_callbacks, unpack_callbacks
from dask.order import order

import hoplo
from hoplo import ObjectRef

__all__ = ["get", "use_dask_here"]

OPTIONS = "remote_args"
"""`dask.annotate(remote_args={"num_cpus": 2})`: options of the tasks of these nodes."""


@hoplo.remote
def _run(node: Any, keys: tuple[Hashable, ...], *values: Any) -> Any:
    """`values` are those of `keys`, and behind them those of `_refs_inside`."""
    count = len(keys)
    if len(values) > count:
        for data, value in zip(list(_refs_inside(node)), values[count:], strict=True):
            data.value = value
    return node(dict(zip(keys, values[:count], strict=True)))


def get(
    dsk: Any,
    keys: Any,
    *,
    remote_args: Mapping[str, Any] | None = None,
    persist: bool = False,
    **_: Any,
) -> Any:
    """The values of `keys`, a key or nested lists of keys, in the same form; a scheduler of Dask's.

    `remote_args` are options for all tasks; those of an annotation come on top of them. With
    `persist` it gives refs, which may stand for values in further graphs. Dask's callbacks (such as
    its `ProgressBar`) hear of the tasks. Raises what a task raises, once all that ran before it in
    the order of the graph is known.

    >>> from dask import delayed
    >>> delayed(sum)([delayed(pow)(2, 3), 1]).compute(scheduler=get)
    9
    """
    options = _options_of(dsk, remote_args or {})
    graph = dsk if isinstance(dsk, Mapping) else dsk.__dask_graph__()
    graph = convert_legacy_graph(graph)
    turns = order(graph)
    with local_callbacks() as callbacks:
        told = _Told(unpack_callbacks(callbacks), graph)
        with told:
            refs = _submitted(graph, turns, options, told)
            wanted = _refs_of(keys, refs)
            ends = dict(refs) if told.is_needed else {}
            del refs  # what lies between is the tasks' own, and goes when they have read it
            told.finish(ends)
            return wanted if persist else _values_of(wanted)


def persisted(
    collections: Sequence[Any], optimize_graph: bool = True, *, scheduler: Any = get, **options: Any
) -> tuple[Any, ...]:
    """The same collections, made of refs of what their tasks give: `x.persist()` calls it.

    It waits for nothing. What a task raises is raised where the collections are computed.
    """
    as_refs = functools.partial(scheduler, persist=True, **options)
    made: tuple[Any, ...] = dask.persist(
        *collections, traverse=False, optimize_graph=optimize_graph, scheduler=as_refs
    )
    return made


# Dask asks the scheduler for it.
get.persist = persisted  # type: ignore[attr-defined]


def use_dask_here(**options: Any) -> Any:
    """Has Dask run its graphs by hoplo from now on; as a context manager, within the block.

    `options` are further settings of `dask.config.set`. Dataframes are shuffled by tasks.

    >>> import dask.bag
    >>> with use_dask_here():
    ...     dask.bag.from_sequence(range(10), npartitions=2).sum().compute()
    45
    """
    settings = {"scheduler": get, "dataframe.shuffle.method": "tasks", **options}
    return dask.config.set(settings)


class _Told:
    """What callbacks of Dask's hear, in the form that its own schedulers tell it."""

    def __init__(self, callbacks: Any, graph: Mapping[Any, Any]) -> None:
        self._start, self._start_state, self._pretask, self._posttask, self._finish = callbacks
        self._graph = graph
        self._failed = True
        self.state: dict[str, Any] = {
            "waiting": {},
            "ready": list(graph),
            "running": set(),
            "finished": set(),
            "cache": {},
        }

    @property
    def is_needed(self) -> bool:
        return bool(self._posttask or self._finish)

    def __enter__(self) -> None:
        for hook in (*self._start,):
            hook(self._graph)
        for hook in self._start_state:
            hook(self._graph, self.state)

    def submitted(self, key: Any) -> None:
        self.state["running"].add(key)
        for hook in self._pretask:
            hook(key, self._graph, self.state)

    def finish(self, refs: dict[Any, Any]) -> None:
        """Waits for all, one by one, and tells."""
        self.state["ready"] = []
        keys = {ref: key for key, ref in refs.items() if isinstance(ref, ObjectRef)}
        waiting = list(keys)
        if self._posttask:
            while waiting:
                (ready,), waiting = hoplo.wait(waiting, fetch_local=False)
                key = keys[ready]
                self.state["running"].discard(key)
                self.state["finished"].add(key)
                for hook in self._posttask:
                    hook(key, None, self._graph, self.state, None)
        self._failed = False

    def __exit__(self, *_: object) -> None:
        for hook in self._finish:
            hook(self._graph, self.state, self._failed)


def _submitted(
    graph: Mapping[Any, Any],
    turns: Mapping[Any, int],
    options: Mapping[Any, Mapping[str, Any]],
    told: _Told,
) -> dict[Any, Any]:
    """A ref of each node; those that others use come first."""
    refs: dict[Any, Any] = {}
    common = options[_ALL]
    for key in sorted(graph, key=turns.__getitem__):
        node = graph[key]
        if isinstance(node, DataNode):
            value = node.value
            refs[key] = value if isinstance(value, ObjectRef) else hoplo.put(value)
        elif isinstance(node, Alias):
            refs[key] = refs[node.target]
        else:
            needs = tuple(node.dependencies)
            inside = [data.value for data in _refs_inside(node)]
            own = {"name": _name_of(key), **common, **options.get(key, {})}
            told.submitted(key)
            values = [refs[need] for need in needs]
            refs[key] = _run.options(**own).remote(node, needs, *values, *inside)
    return refs


def _refs_inside(node: Any) -> Iterator[Any]:
    """The data in a node that is a ref: Dask puts several nodes into one, also those of data."""
    if isinstance(node, DataNode):
        if isinstance(node.value, ObjectRef):
            yield node
    elif isinstance(node, Task):
        for part in (*node.args, *node.kwargs.values()):
            inner = part.values() if isinstance(part, dict) else (part,)
            for one in inner:
                if isinstance(one, GraphNode):
                    yield from _refs_inside(one)


_ALL = object()


def _options_of(dsk: Any, remote_args: Mapping[str, Any]) -> dict[Any, Mapping[str, Any]]:
    """Of each node that is annotated; under `_ALL` of all others."""
    found: dict[Any, Mapping[str, Any]] = {_ALL: remote_args}
    for layer in getattr(dsk, "layers", {}).values():
        own = _annotated(layer.annotations or {})
        if own:
            found.update(dict.fromkeys(layer, own))
    annotations = getattr(dsk, "__dask_annotations__", None)
    if annotations is not None:
        for name in NAMES:
            found.update(annotations().get(name, {}))
    return found


NAMES = (OPTIONS, "ray_remote_args")


def _annotated(annotations: Mapping[str, Any]) -> Mapping[str, Any]:
    return next((annotations[name] for name in NAMES if name in annotations), {})


def _name_of(key: Any) -> str:
    text = key[0] if isinstance(key, tuple) and key else key
    return f"dask:{text}"[:200]


def _refs_of(keys: Any, refs: Mapping[Any, Any]) -> Any:
    if isinstance(keys, list):
        return [_refs_of(key, refs) for key in keys]
    return refs[keys]


def _values_of(refs: Any) -> Any:
    """Fetched together."""
    flat: list[ObjectRef[Any]] = []

    def gather(part: Any) -> None:
        if isinstance(part, list):
            for inner in part:
                gather(inner)
        else:
            flat.append(part)

    gather(refs)
    values = iter(hoplo.get(flat))

    def filled(part: Any) -> Any:
        return [filled(inner) for inner in part] if isinstance(part, list) else next(values)

    return filled(refs)
