"""Results as they come."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import hoplo
from hoplo.exceptions import GetTimeoutError

from .progress import Progress

__all__ = ["as_completed", "map_unordered"]


def as_completed(
    refs: Sequence[Any],
    *,
    chunk_size: int = 10,
    yield_obj_refs: bool = False,
    timeout: float | None = None,
    progress: bool | str = False,
) -> Iterator[Any]:
    """Yields the value of each of `refs` as soon as it is there.

    Raises what a task raised when that task's value is next, and GetTimeoutError when not all
    values were there within `timeout` seconds. At most `chunk_size` values are fetched together.
    `progress` True, or a label, shows a bar. `yield_obj_refs=True` yields the refs in place of the
    values.

    >>> sorted(as_completed([square.remote(i) for i in range(3)]))
    [0, 1, 4]
    """
    waiting = list(refs)
    _at_least_one("chunk_size", chunk_size)
    deadline = None if timeout is None else time.monotonic() + timeout
    with Progress.asked_for(progress, total=len(waiting)) as bar:
        while waiting:
            # All that are ready: to look anew for each chunk takes quadratic time.
            ready, waiting = _some_ready(waiting, len(waiting), deadline)
            for value in ready if yield_obj_refs else _values_in_chunks(ready, chunk_size):
                bar.advance()
                yield value


def map_unordered(
    fn: Any,
    items: Iterable[Any],
    *,
    backpressure_size: int | None = 100,
    chunk_size: int = 10,
    yield_obj_refs: bool = False,
    timeout: float | None = None,
    progress: bool | str = False,
) -> Iterator[Any]:
    """Yields the value of `fn.remote(item)` for each item, as soon as it is there.

    `fn` is a remote function or an actor's method. At most `backpressure_size` calls are under way
    at a time, so `items` may be endless; with None all calls are made at once. The other arguments
    are those of `as_completed`.

    >>> sorted(map_unordered(square, range(3)))
    [0, 1, 4]
    """
    if not hasattr(fn, "remote"):
        raise TypeError(
            f"map_unordered takes a remote function or an actor's method, not {fn!r}; "
            f"decorate it with @hoplo.remote"
        )
    if backpressure_size is None:
        refs = [fn.remote(item) for item in items]
        yield from as_completed(
            refs,
            chunk_size=chunk_size,
            yield_obj_refs=yield_obj_refs,
            timeout=timeout,
            progress=progress,
        )
        return
    _at_least_one("chunk_size", chunk_size)
    _at_least_one("backpressure_size", backpressure_size)
    deadline = None if timeout is None else time.monotonic() + timeout
    total = len(items) if isinstance(items, Sequence | range) else None
    rest = iter(items)
    waiting: list[Any] = []
    with Progress.asked_for(progress, total=total) as bar:
        while True:
            for item in rest:
                waiting.append(fn.remote(item))
                if len(waiting) >= backpressure_size:
                    break
            if not waiting:
                return
            ready, waiting = _some_ready(waiting, chunk_size, deadline)
            for value in ready if yield_obj_refs else _values(ready):
                bar.advance()
                yield value


def _some_ready(
    waiting: list[Any], most: int, deadline: float | None
) -> tuple[list[Any], list[Any]]:
    """One ref that is ready, once there is one, and others that are by then; and the rest."""
    left = None if deadline is None else max(0.0, deadline - time.monotonic())
    ready, rest = hoplo.wait(waiting, num_returns=1, timeout=left)
    if not ready:
        raise GetTimeoutError(f"{len(rest)} results were not there in time")
    if most > 1 and rest:
        more, rest = hoplo.wait(rest, num_returns=min(most - 1, len(rest)), timeout=0)
        ready += more
    return ready, rest


def _values_in_chunks(refs: list[Any], chunk_size: int) -> Iterator[Any]:
    for first in range(0, len(refs), chunk_size):
        yield from _values(refs[first : first + chunk_size])


def _values(refs: list[Any]) -> Iterator[Any]:
    """The values in order; an error is raised in its own turn, after the values before it."""
    try:
        values = hoplo.get(refs)
    except Exception:
        for ref in refs:
            yield hoplo.get(ref)
    else:
        yield from values


def _at_least_one(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number, not {value!r}")
    if value < 1:
        raise ValueError(f"{name} must be 1 or more, not {value}")
