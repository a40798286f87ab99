"""The standard library's `multiprocessing.Pool`, with actors for processes.

    caller --chunks--> _Dispatcher (one thread) --run.remote()--> _PoolWorker actors
       ^                    |  ^----------- done -------------------'
       '---- results -------'

The dispatcher alone owns the workers and what each has under way, so nothing here is locked.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing import TimeoutError
from queue import SimpleQueue
from types import TracebackType
from typing import Any

import hoplo
from hoplo import _errors

__all__ = ["AsyncResult", "Pool", "TimeoutError"]

_CHUNKS_PER_WORKER = 4
"""Into how many chunks `map` divides the share of one worker, when `chunksize` is not given."""

_UNDER_WAY_MAX = 2
"""Chunks handed to one worker at once: the next is there when it ends the first."""


class Pool:
    """A pool of worker processes: the methods, arguments and meaning of `multiprocessing.Pool`.

    Functions and values may be anything that hoplo can send, such as lambdas. What a function
    raises is raised as by `hoplo.get`. `actor_options` are those of the worker actors.

    >>> with Pool(2) as pool:
    ...     pool.map(lambda x: x * x, range(4))
    [0, 1, 4, 9]
    """

    def __init__(
        self,
        processes: int | None = None,
        initializer: Callable[..., Any] | None = None,
        initargs: Iterable[Any] = (),
        maxtasksperchild: int | None = None,
        context: object = None,
        *,
        actor_options: Mapping[str, Any] | None = None,
    ) -> None:
        if processes is None:
            if not hoplo.is_initialized():
                hoplo.init()
            processes = max(1, int(hoplo.cluster_resources().get("CPU", 1)))
        if processes < 1:
            raise ValueError("Number of processes must be at least 1")
        if maxtasksperchild is not None and maxtasksperchild < 1:
            raise ValueError("maxtasksperchild must be a positive int or None")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        worker_class = hoplo.remote(**{"num_cpus": 1, **(actor_options or {})})(_PoolWorker)
        arguments = (initializer, tuple(initargs))
        self._processes = processes
        self._closed = False
        self._dispatcher = _Dispatcher(
            lambda: worker_class.remote(*arguments), processes, maxtasksperchild
        )

    # One call.

    def apply(
        self,
        func: Callable[..., Any],
        args: Iterable[Any] = (),
        kwds: Mapping[str, Any] | None = None,
    ) -> Any:
        """`func(*args, **kwds)` in a worker; waits for its result."""
        return self.apply_async(func, args, kwds).get()

    def apply_async(
        self,
        func: Callable[..., Any],
        args: Iterable[Any] = (),
        kwds: Mapping[str, Any] | None = None,
        callback: Callable[[Any], Any] | None = None,
        error_callback: Callable[[BaseException], Any] | None = None,
    ) -> AsyncResult:
        """`func(*args, **kwds)` in a worker; `get()` of what this returns gives its result."""
        call = (tuple(args), dict(kwds or {}))
        return self._submit(func, [[call]], _CALL, callback, error_callback, single=True)

    # Many calls, all results together.

    def map(
        self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int | None = None
    ) -> list[Any]:
        """`func` of each item, in order."""
        return list(self.map_async(func, iterable, chunksize).get())

    def map_async(
        self,
        func: Callable[[Any], Any],
        iterable: Iterable[Any],
        chunksize: int | None = None,
        callback: Callable[[Any], Any] | None = None,
        error_callback: Callable[[BaseException], Any] | None = None,
    ) -> AsyncResult:
        """`map`, without waiting."""
        chunks = self._chunks(iterable, chunksize)
        return self._submit(func, chunks, _ITEM, callback, error_callback)

    def starmap(
        self,
        func: Callable[..., Any],
        iterable: Iterable[Iterable[Any]],
        chunksize: int | None = None,
    ) -> list[Any]:
        """`func(*item)` of each item, in order."""
        return list(self.starmap_async(func, iterable, chunksize).get())

    def starmap_async(
        self,
        func: Callable[..., Any],
        iterable: Iterable[Iterable[Any]],
        chunksize: int | None = None,
        callback: Callable[[Any], Any] | None = None,
        error_callback: Callable[[BaseException], Any] | None = None,
    ) -> AsyncResult:
        """`starmap`, without waiting."""
        chunks = self._chunks((tuple(item) for item in iterable), chunksize)
        return self._submit(func, chunks, _STAR, callback, error_callback)

    # Many calls, each result as it comes.

    def imap(
        self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int = 1
    ) -> IMapIterator:
        """`func` of each item, in order; an iterator with `next(timeout)`."""
        return self._submit_lazily(func, iterable, chunksize, ordered=True)

    def imap_unordered(
        self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int = 1
    ) -> IMapIterator:
        """`imap`, each result as soon as it is there."""
        return self._submit_lazily(func, iterable, chunksize, ordered=False)

    # Its life.

    def close(self) -> None:
        """Takes no more work; workers end when what was given is done."""
        self._closed = True
        self._dispatcher.post(_Close())

    def terminate(self) -> None:
        """Ends the workers at once; results that are not there never come."""
        self._closed = True
        self._dispatcher.post(_Terminate())
        self._dispatcher.join()

    def join(self) -> None:
        """Waits until the workers have ended, after `close` or `terminate`."""
        if not self._closed:
            raise ValueError("Pool is still running")
        self._dispatcher.join()

    def __enter__(self) -> Pool:
        self._refuse_when_closed()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.terminate()

    def __del__(self) -> None:
        dispatcher = getattr(self, "_dispatcher", None)
        if dispatcher is not None:
            dispatcher.post(_Terminate())

    def __reduce__(self) -> tuple[Any, ...]:
        raise NotImplementedError("pool objects cannot be passed between processes or pickled")

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise ValueError("Pool not running")

    def _chunks(self, iterable: Iterable[Any], chunksize: int | None) -> list[list[Any]]:
        items = list(iterable)
        if chunksize is None:
            chunksize = max(1, -(-len(items) // (self._processes * _CHUNKS_PER_WORKER)))
        return list(_in_chunks(items, chunksize))

    def _submit(
        self,
        func: Callable[..., Any],
        chunks: list[list[Any]],
        how: int,
        callback: Callable[[Any], Any] | None,
        error_callback: Callable[[BaseException], Any] | None,
        single: bool = False,
    ) -> AsyncResult:
        self._refuse_when_closed()
        result = AsyncResult(len(chunks), callback, error_callback, single)
        function = hoplo.put(_Function(func))
        for index, chunk in enumerate(chunks):
            self._dispatcher.post(_Chunk(function, how, chunk, index, result._accept))
        return result

    def _submit_lazily(
        self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int, ordered: bool
    ) -> IMapIterator:
        self._refuse_when_closed()
        results = IMapIterator(ordered)
        function = hoplo.put(_Function(func))
        count = 0
        for count, chunk in enumerate(_in_chunks(iterable, chunksize), start=1):
            self._dispatcher.post(_Chunk(function, _ITEM, chunk, count - 1, results._accept))
        results._expect(count)
        return results


class AsyncResult:
    """A result that may still be on its way: what `apply_async` and `map_async` return.

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
    ) -> None:
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

    def _accept(self, index: int, outcomes: list[_Outcome]) -> None:
        for outcome in outcomes:
            if outcome.error is not None and self._error is None:
                self._error = outcome.error
        self._parts[index] = [outcome.value for outcome in outcomes]
        self._missing -= 1
        if self._missing == 0:
            self._finish()

    def _finish(self) -> None:
        values = list(itertools.chain.from_iterable(self._parts))
        self._parts = []
        if self._error is None:
            self._value = values[0] if self._single else values
        try:
            if self._error is None and self._callback is not None:
                self._callback(self._value)
            elif self._error is not None and self._error_callback is not None:
                self._error_callback(self._error)
        finally:
            self._done.set()


class IMapIterator:
    """Results one by one: what `imap` and `imap_unordered` return.

    >>> with Pool(1) as pool:
    ...     list(pool.imap(abs, [-1, 2]))
    [1, 2]
    """

    def __init__(self, ordered: bool) -> None:
        self._ordered = ordered
        self._arrived: deque[_Outcome] = deque()
        self._early: dict[int, list[_Outcome]] = {}
        self._next_index = 0
        self._accepted = 0
        self._expected: int | None = None
        self._changed = threading.Condition()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self.next()

    def next(self, timeout: float | None = None) -> Any:
        """The next result, or raises what its call raised; `TimeoutError` after `timeout` s."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._arrived or self._ended(), timeout):
                raise TimeoutError
            if not self._arrived:
                raise StopIteration
            outcome = self._arrived.popleft()
        if outcome.error is not None:
            raise outcome.error
        return outcome.value

    def _ended(self) -> bool:
        return self._accepted == self._expected

    def _accept(self, index: int, outcomes: list[_Outcome]) -> None:
        with self._changed:
            self._accepted += 1
            if not self._ordered:
                self._arrived.extend(outcomes)
            else:
                self._early[index] = outcomes
                while self._next_index in self._early:
                    self._arrived.extend(self._early.pop(self._next_index))
                    self._next_index += 1
            self._changed.notify_all()

    def _expect(self, chunks: int) -> None:
        with self._changed:
            self._expected = chunks
            self._changed.notify_all()


# ------------------------------------------------------------------------------- the workers

_CALL, _ITEM, _STAR = range(3)
"""What an entry of a chunk is: (args, kwargs), one argument, or several."""


class _Function:
    """Carries a function in a `put`, which a bare remote function or handle would not be."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function


@dataclass(frozen=True, slots=True)
class _Outcome:
    value: Any = None
    error: BaseException | None = None


class _PoolWorker:
    def __init__(self, initializer: Callable[..., Any] | None, initargs: tuple[Any, ...]) -> None:
        if initializer is not None:
            initializer(*initargs)

    def run(self, carried: _Function, how: int, chunk: list[Any]) -> list[tuple[bool, Any]]:
        """For each entry whether it went well, and its result or encoded error."""
        function = carried.function
        outcomes: list[tuple[bool, Any]] = []
        for entry in chunk:
            try:
                if how == _CALL:
                    value = function(*entry[0], **entry[1])
                else:
                    value = function(*entry) if how == _STAR else function(entry)
                outcomes.append((True, value))
            except Exception as error:
                name = getattr(function, "__qualname__", repr(function))
                outcomes.append((False, _errors.encode_error(error, name, os.getpid())))
        return outcomes


# ------------------------------------------------------------------------------- the dispatcher


@dataclass(slots=True)
class _Chunk:
    function: Any
    how: int
    entries: list[Any]
    index: int
    accept: Callable[[int, list[_Outcome]], None]


@dataclass(slots=True, eq=False)
class _Worker:
    actor: Any
    under_way: int = 0
    given: int = 0


@dataclass(slots=True)
class _Done:
    worker: _Worker
    chunk: _Chunk
    future: Any


@dataclass(slots=True)
class _Close:
    pass


@dataclass(slots=True)
class _Terminate:
    pass


@dataclass
class _Dispatcher:
    """A thread that hands chunks to workers, the least busy first, and results to callers."""

    make_actor: Callable[[], Any]
    size: int
    chunks_per_worker_max: int | None
    _events: SimpleQueue[Any] = field(default_factory=SimpleQueue)
    _waiting: deque[_Chunk] = field(default_factory=deque)
    _workers: list[_Worker] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._workers = [_Worker(self.make_actor()) for _ in range(self.size)]
        self._thread = threading.Thread(target=self._serve, name="hoplo:pool", daemon=True)
        self._thread.start()

    def post(self, event: _Chunk | _Done | _Close | _Terminate) -> None:
        self._events.put(event)

    def join(self) -> None:
        self._thread.join()

    def _serve(self) -> None:
        closed = False
        while not (closed and not self._waiting and not any(w.under_way for w in self._workers)):
            event = self._events.get()
            if isinstance(event, _Chunk):
                self._waiting.append(event)
            elif isinstance(event, _Done):
                self._finish(event)
            elif isinstance(event, _Close):
                closed = True
            else:
                for worker in self._workers:
                    hoplo.kill(worker.actor)
                break
            self._hand_out()
            del event
        self._workers.clear()

    def _hand_out(self) -> None:
        while self._waiting:
            worker = min(self._workers, key=lambda w: (self._is_full(w), w.under_way))
            if self._is_full(worker):
                return
            chunk = self._waiting.popleft()
            worker.under_way += 1
            worker.given += 1
            try:
                ref = worker.actor.run.remote(chunk.function, chunk.how, chunk.entries)
            except Exception as error:
                worker.under_way -= 1
                self._answer(chunk, [_Outcome(error=error)])
                continue
            ref.future().add_done_callback(self._when_done(worker, chunk))

    def _when_done(self, worker: _Worker, chunk: _Chunk) -> Callable[[Any], None]:
        return lambda future: self.post(_Done(worker, chunk, future))

    def _is_full(self, worker: _Worker) -> bool:
        used_up = self.chunks_per_worker_max is not None and (
            worker.given >= self.chunks_per_worker_max
        )
        return used_up or worker.under_way >= _UNDER_WAY_MAX

    def _finish(self, done: _Done) -> None:
        worker = done.worker
        worker.under_way -= 1
        try:
            results = done.future.result()
        except Exception as error:
            # The worker's process died, or the whole list cannot be sent: one error for the chunk.
            outcomes = [_Outcome(error=error)]
            if isinstance(error, hoplo.exceptions.ActorError):
                worker.given = self.chunks_per_worker_max or worker.given
                self._replace(worker)
        else:
            outcomes = [
                _Outcome(value) if fine else _Outcome(error=_errors.make_task_error(value))
                for fine, value in results
            ]
        used_up = self.chunks_per_worker_max is not None and (
            worker.given >= self.chunks_per_worker_max
        )
        if used_up and worker.under_way == 0:
            self._replace(worker)
        self._answer(done.chunk, outcomes)

    def _replace(self, worker: _Worker) -> None:
        if worker in self._workers:
            self._workers[self._workers.index(worker)] = _Worker(self.make_actor())

    def _answer(self, chunk: _Chunk, outcomes: list[_Outcome]) -> None:
        try:
            chunk.accept(chunk.index, outcomes)
        except Exception:
            import traceback

            traceback.print_exc()  # a callback of the user; the pool goes on


def _in_chunks(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    if size < 1:
        raise ValueError(f"Chunksize must be 1+, not {size}")
    rest = iter(items)
    while chunk := list(itertools.islice(rest, size)):
        yield chunk
