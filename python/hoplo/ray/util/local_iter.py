"""Items that one process reads, and steps over them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

__all__ = ["LocalIterator", "MadeBy", "Step", "at_least_one", "batches", "flat", "shuffled"]

Step = Callable[[Iterable[Any]], Iterable[Any]]


class MadeBy:
    """Which actor made the item that was read last; None: nobody knows."""

    actor: Any = None


class LocalIterator:
    """Items in this process, read once: what `gather_sync` and the like give.

    >>> LocalIterator(lambda: range(5), "five").batch(2).take(3)
    [[0, 1], [2, 3], [4]]
    """

    def __init__(
        self, source: Callable[[], Iterable[Any]], name: str, made_by: MadeBy | None = None
    ) -> None:
        self._source = source
        self._items: Iterator[Any] | None = None
        self._made_by = made_by or MadeBy()
        self.name = name

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._items is None:
            self._items = iter(self._source())
        return next(self._items)

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
        return LocalIterator(lambda: batches(self, n), f"{self.name}.batch({n})")

    def flatten(self) -> LocalIterator:
        """The items of the items."""
        return self._then(lambda: flat(self), "flatten()")

    def combine(self, fn: Callable[[Any], Iterable[Any]]) -> LocalIterator:
        """The items of `fn(item)` for each item."""
        return self._then(lambda: flat(map(fn, self)), "combine()")

    def shuffle(self, shuffle_buffer_size: int, seed: int | None = None) -> LocalIterator:
        """In another order: each item is drawn from a buffer of that many."""
        at_least_one("shuffle_buffer_size", shuffle_buffer_size)
        return LocalIterator(
            lambda: shuffled(self, shuffle_buffer_size, random.Random(seed)),
            f"{self.name}.shuffle({shuffle_buffer_size})",
        )

    def duplicate(self, n: int) -> list[LocalIterator]:
        """`n` iterators over the same items. What one has read is kept until all have."""
        at_least_one("n", n)
        return [_over(copy, f"{self.name}.duplicate()") for copy in itertools.tee(self, n)]

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

        made_by = MadeBy()

        def in_turn() -> Iterator[Any]:
            left = [(one, max(1, int(w))) for one, w in zip(sources, weights, strict=True)]
            while left:
                kept = []
                for one, weight in left:
                    count = 0
                    for item in itertools.islice(one, weight):
                        made_by.actor = one._made_by.actor
                        count += 1
                        yield item
                    if count == weight:
                        kept.append((one, weight))
                left = kept

        names = ", ".join(one.name for one in sources)
        return LocalIterator(in_turn, f"union[{names}]", made_by)

    def zip_with_source_actor(self) -> LocalIterator:
        """Pairs of the actor that made an item, and the item. Of `from_actors`: the actor given.

        Reading raises ValueError where no one actor made an item: after `batch_across_shards`,
        `batch`, `shuffle` and `duplicate`.
        """

        def pairs() -> Iterator[tuple[Any, Any]]:
            for item in self:
                if self._made_by.actor is None:
                    raise ValueError(f"{self!r} does not tell which actor made an item")
                yield self._made_by.actor, item

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
        return LocalIterator(source, f"{self.name}.{step}", self._made_by)


def _over(items: Iterator[Any], name: str) -> LocalIterator:
    return LocalIterator(lambda: items, name)


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
