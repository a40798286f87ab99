"""The processes of a pool, and the thread that gives them work.

    caller --chunks--> Dispatcher (one thread) --run.remote()--> PoolWorker actors
       ^                   |  ^----------- done -------------------'
       '---- results ------'

The dispatcher alone owns the workers and what each has under way, so nothing here is locked. A
`Feeder` is the thread of one `imap`: it takes entries from the user's iterable, which may block or
never end, as far ahead as the workers are busy.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

import hoplo
from hoplo import _errors

from ._pool_results import Errors

UNDER_WAY_MAX = 2
"""Chunks handed to one worker at once: the next is there when it ends the first."""

_FED_AHEAD = 2
"""Chunks of an `imap` that wait for each one under way."""

CALL, ITEM, STAR = range(3)
"""What an entry of a chunk is: (args, kwargs), one argument, or several."""


class Function:
    """Carries a function in a `put`, which a bare remote function or handle would not be."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function


class PoolWorker:
    def __init__(self, initializer: Callable[..., Any] | None, initargs: tuple[Any, ...]) -> None:
        if initializer is not None:
            initializer(*initargs)

    def run(
        self, carried: Function, how: int, entries: list[Any], stop: bool
    ) -> tuple[list[Any], dict[int, bytes]]:
        """The results, None where the call raised, and its encoded error by place there.

        `stop`: the first that raises is the last that is called.
        """
        function = carried.function
        calls: Iterator[Any]
        if how == ITEM:
            calls = map(function, entries)
        elif how == STAR:
            calls = itertools.starmap(function, entries)
        else:
            calls = (function(*args, **kwargs) for args, kwargs in entries)
        results: list[Any] = []
        errors: dict[int, bytes] = {}
        while len(results) < len(entries):
            try:
                # No frame of ours for each call. What came before an error stays in the list, and
                # the iterator goes on behind it.
                results.extend(calls)
                if len(results) < len(entries):
                    raise StopIteration  # the function's own, which looked like the end
            except Exception as error:
                name = getattr(function, "__qualname__", repr(function))
                errors[len(results)] = _errors.encode_error(error, name, os.getpid())
                if stop or how == CALL:
                    break
                results.append(None)
        return results, errors


@dataclass(slots=True)
class Chunk:
    function: Any
    how: int
    entries: list[Any]
    index: int
    accept: Callable[[int, list[Any], Errors], None]
    stop: bool = True


@dataclass(slots=True, eq=False)
class _Worker:
    actor: Any
    under_way: int = 0
    given: int = 0


@dataclass(slots=True)
class _Done:
    worker: _Worker
    chunk: Chunk
    future: Any


@dataclass(slots=True)
class _Close:
    pass


@dataclass(slots=True)
class _Terminate:
    pass


@dataclass(slots=True)
class _Fed:
    feeder: Feeder


class Feeder:
    """Cuts an iterable into chunks, in a thread of its own, and posts them as there is room."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        chunks: Iterator[list[Any]],
        post: Callable[[int, list[Any]], None],
        end: Callable[[int, BaseException | None], None],
    ) -> None:
        self._dispatcher = dispatcher
        self._chunks = chunks
        self._post = post
        self._end = end
        self._stopped = False
        self._room = threading.Semaphore(dispatcher.size * UNDER_WAY_MAX * _FED_AHEAD)

    def start(self) -> None:
        self._dispatcher.post(self)
        threading.Thread(target=self._feed, name="hoplo:pool-feeder", daemon=True).start()

    def more(self) -> None:
        """One of the chunks was answered."""
        self._room.release()

    def stop(self) -> None:
        self._stopped = True
        self._room.release()

    def _feed(self) -> None:
        count, error = 0, None
        try:
            while self._room.acquire() and not self._stopped:
                chunk = next(self._chunks, None)
                if chunk is None:
                    break
                self._post(count, chunk)
                count += 1
        except Exception as raised:  # by the user's iterable
            error = raised
        self._end(count, error)
        self._dispatcher.post(_Fed(self))


@dataclass
class Dispatcher:
    """A thread that hands chunks to workers, the least busy first, and results to callers."""

    make_actor: Callable[[], Any]
    size: int
    chunks_per_worker_max: int | None
    _events: SimpleQueue[Any] = field(default_factory=SimpleQueue)
    _waiting: deque[Chunk] = field(default_factory=deque)
    _workers: list[_Worker] = field(default_factory=list)
    _feeders: list[Feeder] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._workers = [_Worker(self.make_actor()) for _ in range(self.size)]
        self._thread = threading.Thread(target=self._serve, name="hoplo:pool", daemon=True)
        self._thread.start()

    def post(self, event: Chunk | Feeder | _Fed | _Done) -> None:
        self._events.put(event)

    def close(self) -> None:
        self._events.put(_Close())

    def terminate(self) -> None:
        self._events.put(_Terminate())

    def join(self) -> None:
        self._thread.join()

    def _serve(self) -> None:
        closed = False
        while not (closed and self._is_idle()):
            event = self._events.get()
            if isinstance(event, Chunk):
                self._waiting.append(event)
            elif isinstance(event, _Done):
                self._finish(event)
            elif isinstance(event, Feeder):
                self._feeders.append(event)
            elif isinstance(event, _Fed):
                self._feeders.remove(event.feeder)
            elif isinstance(event, _Close):
                closed = True
            else:
                for feeder in self._feeders:
                    feeder.stop()
                for worker in self._workers:
                    hoplo.kill(worker.actor)
                break
            self._hand_out()
            del event
        self._workers.clear()

    def _is_idle(self) -> bool:
        busy = any(worker.under_way for worker in self._workers)
        return not (busy or self._waiting or self._feeders)

    def _hand_out(self) -> None:
        while self._waiting:
            worker = min(self._workers, key=lambda w: (self._is_full(w), w.under_way))
            if self._is_full(worker):
                return
            chunk = self._waiting.popleft()
            worker.under_way += 1
            worker.given += 1
            try:
                ref = worker.actor.run.remote(chunk.function, chunk.how, chunk.entries, chunk.stop)
            except Exception as error:
                worker.under_way -= 1
                self._answer(chunk, [None], {0: error})
                continue
            chunk.entries = []
            ref.future().add_done_callback(self._when_done(worker, chunk))

    def _when_done(self, worker: _Worker, chunk: Chunk) -> Callable[[Any], None]:
        return lambda future: self.post(_Done(worker, chunk, future))

    def _is_used_up(self, worker: _Worker) -> bool:
        most = self.chunks_per_worker_max
        return most is not None and worker.given >= most

    def _is_full(self, worker: _Worker) -> bool:
        return self._is_used_up(worker) or worker.under_way >= UNDER_WAY_MAX

    def _finish(self, done: _Done) -> None:
        worker = done.worker
        worker.under_way -= 1
        errors: dict[int, BaseException]
        try:
            values, encoded = done.future.result()
        except Exception as error:
            # The worker's process died, or the whole list cannot be sent: one error for the chunk.
            values, errors = [None], {0: error}
            if isinstance(error, hoplo.exceptions.ActorError):
                worker.given = self.chunks_per_worker_max or worker.given
                self._replace(worker)
        else:
            errors = {at: _errors.make_task_error(payload) for at, payload in encoded.items()}
        if self._is_used_up(worker) and worker.under_way == 0:
            self._replace(worker)
        self._answer(done.chunk, values, errors)

    def _replace(self, worker: _Worker) -> None:
        if worker in self._workers:
            self._workers[self._workers.index(worker)] = _Worker(self.make_actor())

    def _answer(self, chunk: Chunk, values: list[Any], errors: Errors) -> None:
        try:
            chunk.accept(chunk.index, values, errors)
        except Exception:
            import traceback

            traceback.print_exc()  # a callback of the user; the pool goes on


def in_chunks(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    if size < 1:
        raise ValueError(f"Chunksize must be 1+, not {size}")
    return _slices(items, size) if isinstance(items, list) else _cuts(iter(items), size)


def _slices(items: list[Any], size: int) -> Iterator[list[Any]]:
    return (items[at : at + size] for at in range(0, len(items), size))


def _cuts(rest: Iterator[Any], size: int) -> Iterator[list[Any]]:
    while chunk := list(itertools.islice(rest, size)):
        yield chunk
