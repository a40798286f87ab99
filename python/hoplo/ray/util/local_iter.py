"""Items that one process reads, and steps over them."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from .iter_metrics import MetricsContext, SharedMetrics

__all__ = ["LocalIterator", "Step", "at_least_one", "batches", "flat", "shuffled"]

Step = Callable[[Iterable[Any]], Iterable[Any]]

_reading = threading.local()


class LocalIterator:
    """Items in this process, read once: what `gather_sync` and the like give.

    >>> LocalIterator(lambda: range(5), "five").batch(2).take(3)
    [[0, 1], [2, 3], [4]]
    """

    def __init__(
        self,
        source: Callable[[], Iterable[Any]],
        name: str,
        shared_metrics: SharedMetrics | None = None,
        knows_actor: bool = False,
    ) -> None:
        self._source = source
        self._items: Iterator[Any] | None = None
        self._knows_actor = knows_actor
        self.shared_metrics = shared_metrics or SharedMetrics()
        self.name = name

    @staticmethod
    def get_metrics() -> MetricsContext:
        """What the steps of the iterator count, in a function of one of its steps.

        All steps share it, and after a `union` those of all iterators in it. `current_actor` made
        the item. Raises ValueError elsewhere.

        >>> def counted(item):
        ...     metrics = LocalIterator.get_metrics()
        ...     metrics.counters["items"] += 1
        ...     return metrics.counters["items"]
        >>> LocalIterator(lambda: "abc", "letters").for_each(counted).take(3)
        [1, 2, 3]
        """
        metrics: MetricsContext | None = getattr(_reading, "metrics", None)
        if metrics is None:
            raise ValueError(
                "get_metrics() is for functions that the steps of a LocalIterator call"
            )
        return metrics

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        outer, _reading.metrics = getattr(_reading, "metrics", None), self.shared_metrics.get()
        try:
            if self._items is None:
                self._items = iter(self._source())
            return next(self._items)
        finally:
            _reading.metrics = outer

    def __repr__(self) -> str:
        return f"LocalIterator[{self.name}]"

    def transform(self, fn: Step) -> LocalIterator:
        """`fn(iterable)` gives an iterable."""
        return self._then(lambda: fn(self), "transform()")

    def for_each(
        self, fn: Callable[[Any], Any], max_concurrency: int = 1, resources: Any = None
    ) -> LocalIterator:
        """`fn(item)` in place of each item, one by one."""
        return self._then(lambda: map(fn, self), "for_each()")

    def filter(self, fn: Callable[[Any], bool]) -> LocalIterator:
        """The items for which `fn(item)` is true."""
        return self._then(lambda: filter(fn, self), "filter()")

    def batch(self, n: int) -> LocalIterator:
        """Lists of `n` items, the last with what is left."""
        at_least_one("n", n)
        return self._mixed(lambda: batches(self, n), f"batch({n})")

    def flatten(self) -> LocalIterator:
        """The items of the items."""
        return self._then(lambda: flat(self), "flatten()")

    def combine(self, fn: Callable[[Any], Iterable[Any]]) -> LocalIterator:
        """The items of `fn(item)` for each item."""
        return self._then(lambda: flat(map(fn, self)), "combine()")

    def shuffle(self, shuffle_buffer_size: int, seed: int | None = None) -> LocalIterator:
        """In another order: each item is drawn from a buffer of that many."""
        at_least_one("shuffle_buffer_size", shuffle_buffer_size)
        return self._mixed(
            lambda: shuffled(self, shuffle_buffer_size, random.Random(seed)),
            f"shuffle({shuffle_buffer_size})",
        )

    def duplicate(self, n: int) -> list[LocalIterator]:
        """`n` iterators over the same items. What one has read is kept until all have."""
        at_least_one("n", n)
        copies = itertools.tee(self, n)
        return [self._mixed(partial(iter, copy), "duplicate()") for copy in copies]

    def union(
        self,
        *others: LocalIterator,
        deterministic: bool = False,
        round_robin_weights: Sequence[float] | None = None,
    ) -> LocalIterator:
        """One item of each in turn, of `self` first; of one with weight n, n in a row.

        Raises ValueError unless there is a weight for each.
        """
        sources = [self, *others]
        weights = [1.0] * len(sources) if round_robin_weights is None else round_robin_weights
        if len(weights) != len(sources):
            raise ValueError(f"give {len(sources)} weights, one for each, not {len(weights)}")

        def in_turn() -> Iterator[Any]:
            left = [(one, max(1, int(w))) for one, w in zip(sources, weights, strict=True)]
            while left:
                kept = []
                for one, weight in left:
                    count = 0
                    for item in itertools.islice(one, weight):
                        count += 1
                        yield item
                    if count == weight:
                        kept.append((one, weight))
                left = kept

        names = ", ".join(one.name for one in sources)
        shared = SharedMetrics(parents=[one.shared_metrics for one in sources])
        knows_actor = all(one._knows_actor for one in sources)
        return LocalIterator(in_turn, f"union[{names}]", shared, knows_actor)

    def zip_with_source_actor(self) -> LocalIterator:
        """Pairs of the actor that made an item, and the item. Of `from_actors`: the actor given.

        Reading raises ValueError where no one actor made an item: after `batch_across_shards`,
        `batch`, `shuffle` and `duplicate`.
        """

        def pairs() -> Iterator[tuple[Any, Any]]:
            for item in self:
                if not self._knows_actor:
                    raise ValueError(f"{self!r} does not tell which actor made an item")
                yield self.shared_metrics.get().current_actor, item

        return self._then(pairs, "zip_with_source_actor()")

    def take(self, n: int) -> list[Any]:
        """The next `n` items, fewer at the end."""
        return list(itertools.islice(self, n))

    def show(self, n: int = 20) -> None:
        """Prints them, a line each."""
        for item in self.take(n):
            print(item)

    def _then(self, source: Callable[[], Iterable[Any]], step: str) -> LocalIterator:
        """A step that reads an item before it gives what it makes of it, and none after that."""
        return LocalIterator(source, f"{self.name}.{step}", self.shared_metrics, self._knows_actor)

    def _mixed(self, source: Callable[[], Iterable[Any]], step: str) -> LocalIterator:
        """A step whose items may be of others than the one that was read last."""
        return LocalIterator(source, f"{self.name}.{step}", self.shared_metrics)


def batches(items: Iterable[Any], n: int) -> Iterator[list[Any]]:
    """Lists of `n` items."""
    rest = iter(items)
    while some := list(itertools.islice(rest, n)):
        yield some


def flat(items: Iterable[Iterable[Any]]) -> Iterator[Any]:
    """The items of the items."""
    return itertools.chain.from_iterable(items)


def shuffled(items: Iterable[Any], size: int, draw: random.Random) -> Iterator[Any]:
    """Each item is drawn from those that wait, `size` at most."""
    waiting: list[Any] = []
    for item in items:
        waiting.append(item)
        if len(waiting) >= size:
            yield waiting.pop(draw.randrange(len(waiting)))
    draw.shuffle(waiting)
    yield from waiting


def at_least_one(name: str, value: object) -> None:
    """Raises TypeError for what is no whole number, ValueError for one below 1."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number, not {value!r}")
    if value < 1:
        raise ValueError(f"{name} must be 1 or more, not {value}")
