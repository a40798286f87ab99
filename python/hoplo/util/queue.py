"""A first-in first-out queue that tasks and actors share."""

from __future__ import annotations

import queue as _standard
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import hoplo
from hoplo.exceptions import TaskError

if TYPE_CHECKING:
    import asyncio

__all__ = ["Empty", "Full", "Queue"]


class Empty(_standard.Empty):
    """The queue had nothing to take, within the timeout if there was one.

    >>> Queue().get_nowait()
    Traceback (most recent call last):
    hoplo.util.queue.Empty: the queue holds nothing
    """


class Full(_standard.Full):
    """The queue had no room, within the timeout if there was one.

    >>> queue = Queue(maxsize=1)
    >>> queue.put("a")
    >>> queue.put("b", timeout=0.01)
    Traceback (most recent call last):
    hoplo.util.queue.Full: the queue holds its 1 items
    """


class Queue:
    """A queue whose items live in an actor. It can be passed to tasks and actors.

    It holds at most `maxsize` items; 0: any number. `actor_options` are options of its actor, such
    as `name`.

    >>> queue = Queue(maxsize=2)
    >>> queue.put("a")
    >>> queue.get()
    'a'
    """

    def __init__(self, maxsize: int = 0, actor_options: Mapping[str, Any] | None = None) -> None:
        self.maxsize = maxsize
        # Enough at once that blocked callers never keep out the one who would unblock them.
        options = {"num_cpus": 0, "max_concurrency": 10_000, **(actor_options or {})}
        self.actor: Any = hoplo.remote(**options)(_QueueActor).remote(maxsize)

    def __len__(self) -> int:
        return self.size()

    def size(self) -> int:
        """How many items are in the queue."""
        return int(hoplo.get(self.actor.qsize.remote()))

    qsize = size

    def empty(self) -> bool:
        """Whether nothing is in the queue."""
        return self.size() == 0

    def full(self) -> bool:
        """Whether `maxsize` items are in the queue."""
        return 0 < self.maxsize <= self.size()

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """Adds an item; waits for room, at most `timeout` seconds, unless `block` is False.

        Raises Full.
        """
        _answer(self.actor.put.remote(item, _patience(block, timeout)))

    async def put_async(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """`put`, to be awaited."""
        await _answer_async(self.actor.put.remote(item, _patience(block, timeout)))

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Takes the oldest item; waits for one, at most `timeout` seconds, unless `block` is False.

        Raises Empty.
        """
        return _answer(self.actor.get.remote(_patience(block, timeout)))

    async def get_async(self, block: bool = True, timeout: float | None = None) -> Any:
        """`get`, to be awaited."""
        return await _answer_async(self.actor.get.remote(_patience(block, timeout)))

    def put_nowait(self, item: Any) -> None:
        """Adds an item; raises Full at once when there is no room."""
        self.put(item, block=False)

    def get_nowait(self) -> Any:
        """Takes the oldest item; raises Empty at once when there is none."""
        return self.get(block=False)

    def put_nowait_batch(self, items: Sequence[Any]) -> None:
        """Adds all items, or none of them and raises Full."""
        _answer(self.actor.put_batch.remote(list(items)))

    def get_nowait_batch(self, num_items: int) -> list[Any]:
        """Takes exactly that many items, or none of them and raises Empty."""
        if isinstance(num_items, bool) or not isinstance(num_items, int):
            raise TypeError(f"num_items must be a whole number, not {num_items!r}")
        if num_items < 0:
            raise ValueError(f"num_items must be 0 or more, not {num_items}")
        return list(_answer(self.actor.get_batch.remote(num_items)))

    def shutdown(self, force: bool = False, grace_period_s: int = 5) -> None:
        """Ends the queue's actor and drops what is in it.

        Calls made before may end within `grace_period_s` seconds, unless `force`.
        """
        if not force:
            ended = self.actor.__hoplo_terminate__.remote()
            hoplo.wait([ended], timeout=grace_period_s)
        hoplo.kill(self.actor, no_restart=True)


class _QueueActor:
    def __init__(self, maxsize: int) -> None:
        import asyncio

        self._items: asyncio.Queue[Any] = asyncio.Queue(maxsize)

    def qsize(self) -> int:
        return self._items.qsize()

    async def put(self, item: Any, patience: float | None) -> None:
        if not self._items.full():
            self._items.put_nowait(item)
        elif patience == 0 or not (await _within(patience, self._items.put(item)))[0]:
            raise Full(f"the queue holds its {self._items.maxsize} items")

    async def get(self, patience: float | None) -> Any:
        if not self._items.empty():
            return self._items.get_nowait()
        if patience != 0:
            done, item = await _within(patience, self._items.get())
            if done:
                return item
        raise Empty("the queue holds nothing")

    async def put_batch(self, items: list[Any]) -> None:
        room = self._items.maxsize - self._items.qsize()
        if self._items.maxsize > 0 and len(items) > room:
            raise Full(f"the queue has room for {room} items, not for {len(items)}")
        for item in items:
            self._items.put_nowait(item)

    async def get_batch(self, count: int) -> list[Any]:
        if count > self._items.qsize():
            raise Empty(f"the queue holds {self._items.qsize()} items, not {count}")
        return [self._items.get_nowait() for _ in range(count)]


async def _within(patience: float | None, awaitable: Any) -> tuple[bool, Any]:
    """Whether the awaitable ended in time, and its result. One that did not has done nothing."""
    import asyncio

    task = asyncio.ensure_future(awaitable)
    try:
        await asyncio.wait({task}, timeout=patience)
    finally:
        if not task.done():
            task.cancel()
    try:
        return True, await task
    except asyncio.CancelledError:
        return False, None


def _patience(block: bool, timeout: float | None) -> float | None:
    """Seconds to wait: 0 not at all, None for ever."""
    if not block:
        return 0
    if timeout is not None and timeout < 0:
        raise ValueError(f"timeout must be 0 or more seconds, not {timeout}")
    return timeout


def _answer(ref: Any) -> Any:
    try:
        return hoplo.get(ref)
    except TaskError as error:
        raise _own(error) from None


async def _answer_async(ref: Any) -> Any:
    try:
        return await ref
    except TaskError as error:
        raise _own(error) from None


def _own(error: TaskError) -> BaseException:
    """Full and Empty as they are; they tell of the queue, and no traceback helps."""
    return error.cause if isinstance(error, Full | Empty) else error
