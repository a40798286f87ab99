"""A fixed set of actors that share work."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import hoplo
from hoplo.exceptions import GetTimeoutError

__all__ = ["ActorPool"]


class ActorPool:
    """Hands each piece of work to an actor that is free, and queues it while none is.

    >>> pool = ActorPool([Doubler.remote(), Doubler.remote()])
    >>> list(pool.map(lambda actor, value: actor.double.remote(value), [1, 2, 3]))
    [2, 4, 6]
    """

    def __init__(self, actors: Iterable[Any]) -> None:
        self._idle: list[Any] = list(actors)
        # By the ref of a call, the last one of a method with several results: (index, actor).
        self._running: dict[Any, tuple[int, Any]] = {}
        # By index, what `fn` returned for what was handed out and not taken: a ref, or a list.
        self._returned: dict[int, Any] = {}
        self._queued: deque[tuple[int, Callable[[Any, Any], Any], Any]] = deque()
        self._next_submitted = 0
        self._next_returned = 0

    def map(self, fn: Callable[[Any, Any], Any], values: Iterable[Any]) -> Iterator[Any]:
        """The results of `fn(actor, value)`, which returns a ref, in the order of `values`.

        Of a method with several results, where `fn` returns a list of refs, each is a list.
        Results of earlier calls that were not taken are dropped. It returns at once; the iterator
        waits for the results.
        """
        self._drop_untaken()
        for value in values:
            self.submit(fn, value)
        return self._take_all(self.get_next)

    def map_unordered(self, fn: Callable[[Any, Any], Any], values: Iterable[Any]) -> Iterator[Any]:
        """Like `map`, but each result as soon as it is there."""
        self._drop_untaken()
        for value in values:
            self.submit(fn, value)
        return self._take_all(self.get_next_unordered)

    def submit(self, fn: Callable[[Any, Any], Any], value: Any) -> None:
        """Calls `fn(actor, value)`, which returns a ref, now or when an actor is free.

        It may return the list of refs of a method with several results, too.
        """
        index = self._next_submitted
        self._next_submitted += 1
        if self._idle:
            self._start(index, fn, value, self._idle.pop())
        else:
            self._queued.append((index, fn, value))

    def has_next(self) -> bool:
        """Whether a result is still to be taken."""
        return bool(self._returned or self._queued)

    def get_next(self, timeout: float | None = None, ignore_if_timedout: bool = False) -> Any:
        """The next result in the order of submission. Raises StopIteration when there is none.

        After `timeout` seconds it raises GetTimeoutError; with `ignore_if_timedout` this result is
        skipped then, and the next call asks for the one after it.
        """
        self._refuse_when_empty()
        while self._next_returned not in self._returned:
            if any(index == self._next_returned for index, _, _ in self._queued):
                self._wait_for_one(timeout)
            else:
                self._next_returned += 1  # it was taken by get_next_unordered
        index = self._next_returned
        returned = self._returned[index]
        ref = _last(returned)
        ready, _ = hoplo.wait([ref], timeout=timeout)
        if not ready and not ignore_if_timedout:
            raise _timed_out(timeout)
        del self._returned[index]
        self._next_returned += 1
        if not ready:
            raise _timed_out(timeout)
        self._free(ref)
        return hoplo.get(returned)

    def get_next_unordered(
        self, timeout: float | None = None, ignore_if_timedout: bool = False
    ) -> Any:
        """Whichever result is there first. Raises StopIteration when there is none."""
        self._refuse_when_empty()
        while True:
            if not self._returned:
                self._wait_for_one(timeout)
            pending = [_last(returned) for returned in self._returned.values()]
            ready, _ = hoplo.wait(pending, num_returns=1, timeout=timeout)
            if not ready:
                if ignore_if_timedout and pending:
                    self._forget(pending[0])
                raise _timed_out(timeout)
            returned = self._forget(ready[0])
            self._free(ready[0])
            return hoplo.get(returned)

    def has_free(self) -> bool:
        """Whether an actor is free, and no work waits for one."""
        return bool(self._idle) and not self._queued

    def pop_idle(self) -> Any | None:
        """Takes a free actor out of the pool; None when all are busy."""
        return self._idle.pop() if self.has_free() else None

    def push(self, actor: Any) -> None:
        """Adds an actor to the pool."""
        if actor in self._idle or any(actor == busy for _, busy in self._running.values()):
            raise ValueError("the actor is in the pool already")
        self._make_idle(actor)

    def _start(self, index: int, fn: Callable[[Any, Any], Any], value: Any, actor: Any) -> None:
        returned = fn(actor, value)
        self._running[_last(returned)] = (index, actor)
        self._returned[index] = returned

    def _wait_for_one(self, timeout: float | None) -> None:
        """Waits until any call ends, for a queued one to be handed out."""
        ready, _ = hoplo.wait(list(self._running), num_returns=1, timeout=timeout)
        if not ready:
            raise _timed_out(timeout)
        self._free(ready[0])

    def _free(self, ref: Any) -> None:
        """The actor that made `ref` takes the next piece of work; once, however often asked."""
        known = self._running.pop(ref, None)
        if known is not None:
            self._make_idle(known[1])

    def _make_idle(self, actor: Any) -> None:
        if self._queued:
            self._start(*self._queued.popleft(), actor)
        else:
            self._idle.append(actor)

    def _forget(self, ref: Any) -> Any:
        """What the call of `ref` returned; it is not to be taken again."""
        for index, returned in self._returned.items():
            if _last(returned) == ref:
                return self._returned.pop(index)
        raise AssertionError("only what is to be taken is forgotten")

    def _drop_untaken(self) -> None:
        self._queued.clear()
        self._returned.clear()
        self._next_returned = self._next_submitted
        if self._running:
            running = list(self._running)
            ended, _ = hoplo.wait(running, num_returns=len(running), timeout=0)
            for ref in ended:
                self._free(ref)

    def _take_all(self, take: Callable[[], Any]) -> Iterator[Any]:
        while self.has_next():
            yield take()

    def _refuse_when_empty(self) -> None:
        if not self.has_next():
            raise StopIteration("no more results: nothing was submitted since the last was taken")
        if not self._running and not self._idle and self._queued:
            raise RuntimeError("the pool has no actors: push one")


def _last(returned: Any) -> Any:
    """The ref that stands for a call: an actor makes the last of several results last."""
    return returned[-1] if isinstance(returned, list) else returned


def _timed_out(timeout: float | None) -> GetTimeoutError:
    return GetTimeoutError(f"no result of the pool was there within {timeout} s")
