"""`f.map(items)`: many calls in few tasks.

Items travel in chunks, each of which one worker runs in a loop. How many items make a chunk
follows the time that they take: the first chunks are single items, later ones about
`CHUNK_SECONDS` of work, so that long calls spread over all workers and short ones cost nearly
nothing beside themselves. Between items no frame of ours runs, neither in the worker nor here.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sized
from itertools import chain, islice, starmap
from typing import Any

from . import _core, _errors

CHUNK_SECONDS = 0.005
# The last chunks shrink, but not to less than this: a chunk has a price, too.
_LAST_CHUNK_SECONDS = 0.0005
# From one chunk to the next: a guess from few items may be far off.
_GROWTH_MAX = 8
_CHUNK_ITEMS_MAX = 1 << 16


def map_items(
    function: _core.RemoteFunction,
    iterables: tuple[Iterable[Any], ...],
    chunk_size: int | None,
    refs: bool,
) -> Iterator[Any]:
    """What `RemoteFunction.map` returns; arguments are checked here, at the call."""
    name = function.__name__
    if not iterables:
        raise TypeError(f"{name}.map() needs an iterable of arguments: {name}.map(items)")
    for iterable in iterables:
        if isinstance(iterable, _core.ObjectRef):
            raise TypeError(f"{name}.map() was given an ObjectRef: map over hoplo.get(ref)")
        iter(iterable)  # TypeError names what cannot be iterated
    if chunk_size is not None and (not isinstance(chunk_size, int) or chunk_size < 1):
        raise ValueError(f"chunk_size must be None or 1 or more items, not {chunk_size!r}")
    if function._options.num_returns != 1:
        raise ValueError(f"{name}.map() is for functions with num_returns=1")
    single = len(iterables) == 1
    length = min((len(i) for i in iterables if isinstance(i, Sized)), default=None)
    items = iter(iterables[0]) if single else zip(*iterables, strict=False)
    chunks = _Chunks(items, length, chunk_size, _workers(function))
    run = _chunk_function(function, star=not single)
    return _refs(run, chunks) if refs else chain.from_iterable(_values(run, chunks))


class _Chunks:
    """Cuts the items, and learns from what chunks took."""

    def __init__(
        self, items: Iterator[Any], length: int | None, fixed: int | None, workers: int
    ) -> None:
        self.items = items
        self.left = length
        self.fixed = fixed
        self.workers = workers
        self.size = fixed or 1
        self.size_min = 1

    def next(self) -> list[Any]:
        size = self.size
        if self.left is not None and self.fixed is None:
            # The last chunks are small enough that all workers end at about the same time.
            size = min(size, max(self.size_min, math.ceil(self.left / (4 * self.workers))))
        chunk = list(islice(self.items, size))
        if self.left is not None:
            self.left -= len(chunk)
        return chunk

    def took(self, count: int, nanoseconds: int) -> None:
        if self.fixed is None and count:
            seconds = max(1, nanoseconds) / count / 1e9
            most = min(self.size * _GROWTH_MAX, _CHUNK_ITEMS_MAX)
            self.size = max(1, int(min(CHUNK_SECONDS / seconds, most)))
            self.size_min = max(1, int(min(_LAST_CHUNK_SECONDS / seconds, most)))


def _values(run: _core.RemoteFunction, chunks: _Chunks) -> Iterator[list[Any]]:
    pending: deque[_core.ObjectRef[Any]] = deque()
    exhausted = False
    while True:
        while not exhausted and len(pending) < 2 * chunks.workers + 1:
            chunk = chunks.next()
            exhausted = not chunk
            if chunk:
                pending.append(run.remote(chunk, False))
        if not pending:
            return
        values, nanoseconds, error = _core.get(pending.popleft())
        chunks.took(len(values), nanoseconds)
        yield values
        if error is not None:
            for ref in pending:
                _core.cancel(ref, False, True)
            raise _errors.make_task_error(error)


def _refs(run: _core.RemoteFunction, chunks: _Chunks) -> Iterator[_core.ObjectRef[Any]]:
    while chunk := chunks.next():
        if len(chunk) == 1:
            yield run.remote(chunk, True)
        else:
            yield from run.options(num_returns=len(chunk)).remote(chunk, True)


def _chunk_function(function: _core.RemoteFunction, *, star: bool) -> _core.RemoteFunction:
    """The task that runs a chunk; made once per function."""
    made: dict[bool, _core.RemoteFunction] = function.__dict__.setdefault("_chunked", {})
    if star not in made:
        body = _body(function._function, star=star, raises=bool(function._options.retry_exceptions))
        made[star] = _core.RemoteFunction(body, function._options._replace(num_returns=1), (2, 2))
    return made[star]


def _body(user: Callable[..., Any], *, star: bool, raises: bool) -> Callable[..., Any]:
    def run_chunk(items: list[Any], spread: bool) -> Any:
        values: list[Any] = []
        start = time.perf_counter_ns()
        if _core._holds_ref(items):
            items = [_core.get(i) if type(i) is _core.ObjectRef else i for i in items]
        calls = starmap(user, items) if star else map(user, items)
        try:
            values.extend(calls)  # what came before an error stays in it
            if len(values) < len(items):
                raise StopIteration  # the user's own, which looked like the end of the items
        except Exception as error:
            if raises or spread:
                raise
            # What came before it in the chunk is not lost.
            encoded = _errors.encode_error(error, user.__name__, os.getpid())
            return values, time.perf_counter_ns() - start, encoded
        if spread:
            return values if len(values) > 1 else values[0]
        return values, time.perf_counter_ns() - start, None

    run_chunk.__name__ = user.__name__
    run_chunk.__qualname__ = user.__qualname__
    return run_chunk


def _workers(function: _core.RemoteFunction) -> int:
    """How many of its tasks can run at once here."""
    total: dict[str, float] = json.loads(_core.query("cluster_resources"))
    needs = function._options.resources
    fit = [int(total.get(name, 0) // amount) for name, amount in needs.items() if amount > 0]
    return max(1, min(fit, default=int(total.get("CPU", 1))))
