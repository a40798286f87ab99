"""What calls of a pool's methods return: results that may still be on their way.

    worker --answer of a chunk--> Results.accept(index, values, errors)
    the pool ends before it has all answers --> Results.fail(error)

`errors` has what entries raised, by their place among the values. What is returned holds its pool
until all results are there: who writes `Pool(2).imap(f, items)` has no other name for it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from multiprocessing import TimeoutError
from typing import Any, Protocol

Errors = Mapping[int, BaseException]


class Results(Protocol):
    """Who gets the answers to the chunks of one call of a pool's method."""

    def accept(self, index: int, values: list[Any], errors: Errors) -> None:
        """The chunk's values are there, and what its entries raised."""

    def fail(self, error: BaseException) -> None:
        """The pool has ended: no other chunk is answered. Nothing happens if all are."""


class AsyncResult:
    """A result that may still be on its way: what `apply_async` and `map_async` return.

    >>> from hoplo.util.multiprocessing import Pool
    >>> with Pool(1) as pool:
    ...     pool.apply_async(divmod, (17, 5)).get(timeout=30)
    (3, 2)
    """

    def __init__(
        self,
        chunks: int,
        callback: Callable[[Any], Any] | None,
        error_callback: Callable[[BaseException], Any] | None,
        single: bool,
        pool: object,
    ) -> None:
        self._pool: object = pool
        self._parts: list[list[Any]] = [[] for _ in range(chunks)]
        self._missing = chunks
        self._error: BaseException | None = None
        self._callback = callback
        self._error_callback = error_callback
        self._single = single
        self._value: Any = None
        self._done = threading.Event()
        if chunks == 0:
            self._finish()

    def get(self, timeout: float | None = None) -> Any:
        """The result, or raises what the function raised; `TimeoutError` after `timeout` s."""
        self.wait(timeout)
        if not self._done.is_set():
            raise TimeoutError
        if self._error is not None:
            raise self._error
        return self._value

    def wait(self, timeout: float | None = None) -> None:
        """Waits until the result is there, or `timeout` seconds went by."""
        self._done.wait(timeout)

    def ready(self) -> bool:
        """Whether the result is there."""
        return self._done.is_set()

    def successful(self) -> bool:
        """Whether nothing was raised. Raises ValueError while the result is not there."""
        if not self.ready():
            raise ValueError(f"{self!r} not ready")
        return self._error is None

    def accept(self, index: int, values: list[Any], errors: Errors) -> None:
        """See `Results`."""
        if errors and self._error is None:
            self._error = errors[min(errors)]
        self._parts[index] = values
        self._missing -= 1
        if self._missing == 0:
            self._finish()

    def fail(self, error: BaseException) -> None:
        """See `Results`."""
        if not self._done.is_set():
            self._error = error
            self._finish()

    def _finish(self) -> None:
        parts, self._parts = self._parts, []
        try:
            if self._error is not None:
                if self._error_callback is not None:
                    self._error_callback(self._error)
                return
            self._value = parts.pop(0) if parts else []
            for part in parts:
                self._value += part
            if self._single:
                (self._value,) = self._value
            if self._callback is not None:
                self._callback(self._value)
        finally:
            self._pool = None
            self._done.set()


class Raised:
    """Stands among results for the one that raised."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class Arrivals:
    """The results of one `imap`, as they come. Holds no pool: nobody may want them any more."""

    def __init__(self, ordered: bool) -> None:
        self.on_accept: Callable[[], object] = lambda: None
        self._ordered = ordered
        self._arrived: deque[Any] = deque()
        self._early: dict[int, list[Any]] = {}
        self._next_index = 0
        self._accepted = 0
        self._expected: int | None = None
        self._failure: BaseException | None = None
        self._changed = threading.Condition()

    def take(self, timeout: float | None) -> Any:
        """The next, or a `Raised`; raises StopIteration behind the last."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._arrived or self._ended(), timeout):
                raise TimeoutError
            if self._arrived:
                return self._arrived.popleft()
            if self._accepted != self._expected and self._failure is not None:
                raise self._failure
            raise StopIteration

    def _ended(self) -> bool:
        return self._failure is not None or self._accepted == self._expected

    def accept(self, index: int, values: list[Any], errors: Errors) -> None:
        """See `Results`."""
        for at, error in errors.items():
            values[at] = Raised(error)
        with self._changed:
            self._accepted += 1
            if not self._ordered:
                self._arrived.extend(values)
            else:
                self._early[index] = values
                while self._next_index in self._early:
                    self._arrived.extend(self._early.pop(self._next_index))
                    self._next_index += 1
            self._changed.notify_all()
        self.on_accept()

    def expect(self, chunks: int) -> None:
        """The user's iterable has ended: so many chunks were made of it."""
        with self._changed:
            self._expected = chunks
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """See `Results`."""
        with self._changed:
            self._failure = error
            self._changed.notify_all()


class IMapIterator:
    """Results one by one: what `imap` and `imap_unordered` return.

    >>> from hoplo.util.multiprocessing import Pool
    >>> with Pool(1) as pool:
    ...     list(pool.imap(abs, [-1, 2]))
    [1, 2]
    """

    def __init__(self, arrivals: Arrivals, pool: object) -> None:
        self._arrivals = arrivals
        self._pool: object = pool

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self.next()

    def next(self, timeout: float | None = None) -> Any:
        """The next result, or raises what its call raised; `TimeoutError` after `timeout` s."""
        try:
            result = self._arrivals.take(timeout)
        except StopIteration:
            self._pool = None
            raise
        if type(result) is Raised:
            raise result.error
        return result
