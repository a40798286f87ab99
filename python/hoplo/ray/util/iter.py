"""Iterators whose items are made in several actors at once: one actor for each shard.

    from_items | from_range | from_iterators | from_actors --> ParallelIterator
                                                         steps run in the shards' actors
    gather_sync | gather_async | batch_across_shards --> LocalIterator   steps run in this process

The actors are made when something is read, and end with the iterator that read it.
"""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn

import hoplo

from .._absent import absent
from .iter_metrics import SharedMetrics
from .local_iter import LocalIterator, Step, at_least_one, batches, flat, shuffled

__all__ = [
    "LocalIterator",
    "ParallelIterator",
    "ParallelIteratorWorker",
    "from_actors",
    "from_items",
    "from_iterators",
    "from_range",
]

Source = Callable[[], Iterable[Any]]
Shard = tuple[Source, tuple[Step, ...]]


def from_items(items: Sequence[Any], num_shards: int = 2, repeat: bool = False) -> ParallelIterator:
    """The items, dealt to the shards in turns. With `repeat` they begin again without end.

    Raises ValueError for fewer than one shard.

    >>> from_items([1, 2, 3, 4]).for_each(lambda x: 10 * x).gather_sync().take(4)
    [10, 20, 30, 40]
    """
    at_least_one("num_shards", num_shards)
    shards = [list(items[first::num_shards]) for first in range(num_shards)]
    return from_iterators(shards, repeat, f"from_items[{len(items)} items, {num_shards} shards]")


def from_range(n: int, num_shards: int = 2, repeat: bool = False) -> ParallelIterator:
    """The numbers below `n`: an equal part to each shard, and what is left to the last one.

    >>> from_range(4).batch_across_shards().take(2)
    [[0, 2], [1, 3]]
    """
    at_least_one("num_shards", num_shards)
    size = n // num_shards
    starts = [shard * size for shard in range(num_shards)]
    ranges = [range(a, b) for a, b in itertools.pairwise([*starts, n])]
    return from_iterators(ranges, repeat, f"from_range[{n}, {num_shards} shards]")


def from_iterators(
    generators: Sequence[Iterable[Any] | Source], repeat: bool = False, name: str | None = None
) -> ParallelIterator:
    """One shard for each of these: a list or the like, or a function that gives an iterable.

    >>> sorted(from_iterators([range(2), lambda: iter("ab")]).gather_sync(), key=str)
    [0, 1, 'a', 'b']
    """
    if not generators:
        raise ValueError("from_iterators needs at least one iterable")
    shards: list[Shard] = []
    for made in generators:
        source: Source = made if callable(made) else _Given(made)
        shards.append((_Repeated(source) if repeat else source, ()))
    return ParallelIterator(shards, name or f"from_iterators[{len(shards)} shards]")


def from_actors(actors: Sequence[Any], name: str | None = None) -> ParallelIterator:
    """One shard for each of these actors, whose classes inherit from `ParallelIteratorWorker`.

    Steps run in actors of the iterator's own, which read from these.

    >>> numbers = hoplo.remote(ParallelIteratorWorker).remote(range(3), False)
    >>> from_actors([numbers]).for_each(lambda x: 2 * x).gather_sync().take(3)
    [0, 2, 4]
    """
    if not actors:
        raise ValueError("from_actors needs at least one actor")
    shards: list[Shard] = [(_OfActor(actor), ()) for actor in actors]
    return ParallelIterator(shards, name or f"from_actors[{len(shards)} shards]")


class ParallelIteratorWorker:
    """What actors inherit from that make the items of a shard of `from_actors`.

    `item_generator` is a list or the like, or a function that gives an iterable. With `repeat` it
    begins again at its end.
    """

    def __init__(self, item_generator: Iterable[Any] | Source, repeat: bool) -> None:
        source: Source = item_generator if callable(item_generator) else _Given(item_generator)
        self._hoplo_source = _Repeated(source) if repeat else source
        self._hoplo_items: Iterator[Any] = iter(())

    def par_iter_init(self, transforms: Sequence[Step] = ()) -> None:
        """Items come from the beginning."""
        items: Iterable[Any] = self._hoplo_source()
        for step in transforms:
            items = step(items)
        self._hoplo_items = iter(items)

    def par_iter_next(self) -> tuple[Any] | None:
        """The next item, alone in a tuple; None at the end."""
        for item in self._hoplo_items:
            return (item,)
        return None


class ParallelIterator:
    """Items that several actors make, one for each shard. Made by `from_items` and the like.

    Each step gives a new iterator, and changes nothing in this one.

    >>> it = from_range(6, num_shards=3).filter(lambda x: x % 2 == 0)
    >>> it.num_shards(), sorted(it.gather_async())
    (3, [0, 2, 4])
    """

    def __init__(self, shards: Sequence[Shard], name: str) -> None:
        self._shards = list(shards)
        self.name = name

    def __iter__(self) -> NoReturn:
        raise TypeError(
            "a ParallelIterator is in several processes: read gather_sync() or gather_async()"
        )

    def __repr__(self) -> str:
        return f"ParallelIterator[{self.name}]"

    # ------------------------------------------------------------------------ steps in the actors

    def transform(self, fn: Step) -> ParallelIterator:
        """`fn(iterable)` gives an iterable, in each shard."""
        return self._then(fn, "transform()")

    def for_each(
        self,
        fn: Callable[[Any], Any],
        max_concurrency: int = 1,
        resources: dict[str, float] | None = None,
    ) -> ParallelIterator:
        """`fn(item)` in place of each item.

        The calls of a shard run one by one: `max_concurrency` and `resources` have no effect.
        """
        return self._then(lambda items: map(fn, items), "for_each()")

    def filter(self, fn: Callable[[Any], bool]) -> ParallelIterator:
        """The items for which `fn(item)` is true."""
        return self._then(lambda items: filter(fn, items), "filter()")

    def batch(self, n: int) -> ParallelIterator:
        """Lists of `n` items, the last of each shard with what is left."""
        at_least_one("n", n)
        return self._then(lambda items: batches(items, n), f"batch({n})")

    def flatten(self) -> ParallelIterator:
        """The items of the items."""
        return self._then(flat, "flatten()")

    def combine(self, fn: Callable[[Any], Iterable[Any]]) -> ParallelIterator:
        """The items of `fn(item)` for each item."""
        return self._then(lambda items: flat(map(fn, items)), "combine()")

    def local_shuffle(self, shuffle_buffer_size: int, seed: int | None = None) -> ParallelIterator:
        """In another order within each shard: each is drawn from a buffer of that many items."""
        at_least_one("shuffle_buffer_size", shuffle_buffer_size)
        return self._then(
            lambda items: shuffled(items, shuffle_buffer_size, random.Random(seed)),
            f"local_shuffle({shuffle_buffer_size})",
        )

    # ------------------------------------------------------------------------ shards

    def num_shards(self) -> int:
        """How many actors make items at once."""
        return len(self._shards)

    def union(self, other: ParallelIterator) -> ParallelIterator:
        """The shards of both."""
        if not isinstance(other, ParallelIterator):
            raise TypeError(f"union takes a ParallelIterator, not {type(other).__name__}")
        return ParallelIterator(self._shards + other._shards, f"union[{self.name}, {other.name}]")

    def select_shards(self, shards_to_keep: Sequence[int]) -> ParallelIterator:
        """Only these shards, by their numbers from 0. Raises ValueError if a number is too high."""
        for number in shards_to_keep:
            self._check_shard(number)
        kept = [self._shards[number] for number in shards_to_keep]
        return ParallelIterator(kept, f"{self.name}.select_shards({len(kept)})")

    def shards(self) -> list[LocalIterator]:
        """An iterator for each shard."""
        return [self.get_shard(number) for number in range(len(self._shards))]

    def get_shard(self, shard_index: int, batch_ms: int = 0, num_async: int = 1) -> LocalIterator:
        """The items of one shard. Raises ValueError if there is no such shard."""
        self._check_shard(shard_index)
        return self.select_shards([shard_index]).gather_async(batch_ms, num_async)

    def repartition(self, num_partitions: int, batch_ms: int = 0) -> ParallelIterator:
        """So many shards: the items of each shard are dealt to them in turns.

        `batch_ms` has no effect.
        """
        at_least_one("num_partitions", num_partitions)
        shards: list[Shard] = [
            (_Part(self, at, num_partitions), ()) for at in range(num_partitions)
        ]
        return ParallelIterator(shards, f"{self.name}.repartition[{num_partitions}]")

    # ------------------------------------------------------------------------ reading

    def batch_across_shards(self) -> LocalIterator:
        """Lists with the next item of each shard that has one left."""

        def lists() -> Iterator[list[Any]]:
            for answers in self._rounds():
                yield [item for _, item in answers]

        return LocalIterator(lists, f"{self.name}.batch_across_shards()")

    def gather_sync(self) -> LocalIterator:
        """All items, one of each shard in turn: the order is always the same."""
        shared = SharedMetrics()

        def in_turn() -> Iterator[Any]:
            for answers in self._rounds():
                for actor, item in answers:
                    shared.get().current_actor = actor
                    yield item

        return LocalIterator(in_turn, f"{self.name}.gather_sync()", shared, knows_actor=True)

    def gather_async(self, batch_ms: int = 0, num_async: int = 1) -> LocalIterator:
        """All items, as they are made: `num_async` calls at a time wait at each shard.

        `batch_ms` has no effect.
        """
        at_least_one("num_async", num_async)
        shared = SharedMetrics()

        def as_made() -> Iterator[Any]:
            for actor, item in self._as_made(num_async):
                shared.get().current_actor = actor
                yield item

        return LocalIterator(as_made, f"{self.name}.gather_async()", shared, knows_actor=True)

    def take(self, n: int) -> list[Any]:
        """The first `n` items of `gather_sync`."""
        return self.gather_sync().take(n)

    def show(self, n: int = 20) -> None:
        """Prints them."""
        self.gather_sync().show(n)

    # ------------------------------------------------------------------------

    def _then(self, step: Step, name: str) -> ParallelIterator:
        return ParallelIterator(
            [(source, (*steps, step)) for source, steps in self._shards], f"{self.name}.{name}"
        )

    def _check_shard(self, number: int) -> None:
        if not 0 <= number < len(self._shards):
            raise ValueError(f"there is no shard {number}: there are {len(self._shards)}")

    def _actors(self) -> list[Any]:
        made = hoplo.remote(num_cpus=0)(_ShardActor)
        # What several shards read parts of is made once.
        dealt: dict[int, list[Any]] = {}
        actors = []
        for source, steps in self._shards:
            read: Source = source
            if isinstance(source, _Part):
                if id(source.of) not in dealt:
                    dealt[id(source.of)] = source.of._actors()
                read = _Dealt(dealt[id(source.of)], source.at, source.parts)
            actors.append(made.remote(read, steps))
        return actors

    def _rounds(self) -> Iterator[list[tuple[Any, Any]]]:
        """The next item of each shard, behind the actor that made it."""
        shards = self._read()
        while shards:
            answers = hoplo.get([actor.next.remote() for actor, _ in shards])
            answered = list(zip(shards, answers, strict=True))
            shards = [shard for shard, answer in answered if answer]
            items = [(source, answer[0]) for (_, source), answer in answered if answer]
            if items:
                yield items

    def _as_made(self, num_async: int) -> Iterator[tuple[Any, Any]]:
        """Each item, behind the actor that made it."""
        shards = self._read()
        asked = {shard[0].next.remote(): shard for _ in range(num_async) for shard in shards}
        while asked:
            (ready,), _ = hoplo.wait(list(asked))
            actor, source = asked.pop(ready)
            answer = hoplo.get(ready)
            if answer:
                asked[actor.next.remote()] = (actor, source)
                yield source, answer[0]

    def _read(self) -> list[tuple[Any, Any]]:
        """New actors, one for each shard, each with that which the user knows as its source."""
        actors = self._actors()
        sources = [source for source, _ in self._shards]
        return [
            (actor, source.actor if isinstance(source, _OfActor) else actor)
            for actor, source in zip(actors, sources, strict=True)
        ]


class _ShardActor:
    def __init__(self, source: Source, steps: Sequence[Step]) -> None:
        items: Iterable[Any] = source()
        for step in steps:
            items = step(items)
        self._items = iter(items)
        self._count = 0
        self._kept: dict[int, deque[Any]] = {}

    def next_of(self, part: int, parts: int) -> tuple[Any] | None:
        """The next item of those that are this part's, when they are dealt in turns."""
        kept = self._kept.setdefault(part, deque())
        while not kept:
            answer = self.next()
            if answer is None:
                return None
            self._kept.setdefault(self._count % parts, deque()).append(answer[0])
            self._count += 1
        return (kept.popleft(),)

    def next(self) -> tuple[Any] | None:
        """The next item, alone in a tuple; None at the end."""
        for item in self._items:
            return (item,)
        return None


class _Given:
    """A source of items that are there."""

    def __init__(self, items: Iterable[Any]) -> None:
        self._items = items

    def __call__(self) -> Iterable[Any]:
        return self._items


class _OfActor:
    """A source of the items that an actor of the user's makes."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor

    def __call__(self) -> Iterator[Any]:
        hoplo.get(self.actor.par_iter_init.remote())
        while (answer := hoplo.get(self.actor.par_iter_next.remote())) is not None:
            yield answer[0]


class _Part:
    """A part of the items of another iterator: its actors are made when something is read."""

    def __init__(self, of: ParallelIterator, at: int, parts: int) -> None:
        self.of, self.at, self.parts = of, at, parts

    def __call__(self) -> Iterable[Any]:
        raise AssertionError("_actors puts another source in its place")


class _Dealt:
    """A source of one part of what these actors make: one item of each in turn."""

    def __init__(self, actors: list[Any], at: int, parts: int) -> None:
        self._actors, self._at, self._parts = actors, at, parts

    def __call__(self) -> Iterator[Any]:
        actors = self._actors
        while actors:
            asked = [actor.next_of.remote(self._at, self._parts) for actor in actors]
            answers = hoplo.get(asked)
            actors = [actor for actor, answer in zip(actors, answers, strict=True) if answer]
            yield from (answer[0] for answer in answers if answer)


class _Repeated:
    """A source that begins again at its end."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def __call__(self) -> Iterator[Any]:
        while True:
            is_empty = True
            for item in self._source():
                is_empty = False
                yield item
            if is_empty:
                return


__getattr__ = absent(__name__, __all__)
__path__: list[str] = []
