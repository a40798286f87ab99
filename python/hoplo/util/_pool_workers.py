"""The processes of a pool, and the thread that gives them work.

    caller --chunks--> Dispatcher (one thread) --run.remote()--> PoolWorker actors
       ^                   |  ^------ started, done ---------------'
       '---- results ------'

A chunk is given to a worker that has started: one that waits for a CPU keeps nobody waiting. What a
worker has not begun is called back for one that is idle, since its first chunk may wait for it. The
dispatcher alone owns the workers and what each has under way, so nothing here is locked. When it
ends before all chunks are answered (terminated, or hoplo was shut down), it fails the others. A
`Feeder` is the thread of one `imap`: it takes entries from the user's iterable, which may block or
never end, as far ahead as the workers are busy.
"""

from __future__ import annotations

import atexit
import itertools
import os
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any

import hoplo
from hoplo import _api, _errors

from ._pool_results import Errors, Results

UNDER_WAY_MAX = 2
"""Chunks handed to one worker at once: the next is there when it ends the first."""

_FED_AHEAD = 2
"""Chunks of an `imap` that wait for each one under way."""

_LEAVES_WITHIN = 5.0
"""At the end of the program the thread of a pool is waited for, so many seconds at most."""

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


@dataclass(slots=True, eq=False)
class Chunk:
    function: Any
    how: int
    entries: list[Any]
    index: int
    results: Results
    stop: bool = True
    ref: Any = None
    """Of the call that runs it."""
    is_recalled: bool = False


@dataclass(slots=True, eq=False)
class _Worker:
    actor: Any
    has_started: bool = False
    under_way: list[Chunk] = field(default_factory=list)
    given: int = 0


@dataclass(slots=True)
class _Done:
    worker: _Worker
    chunk: Chunk
    future: Any


@dataclass(slots=True)
class _Started:
    """Or failed to: then the first chunk that it is given tells why."""

    worker: _Worker


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
        results: Results,
        chunks: Iterator[list[Any]],
        post: Callable[[int, list[Any]], None],
        end: Callable[[int, BaseException | None], None],
    ) -> None:
        self.results = results
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
    _under_way: set[Chunk] = field(default_factory=set)
    _workers: list[_Worker] = field(default_factory=list)
    _feeders: list[Feeder] = field(default_factory=list)
    _over: BaseException | None = None
    """What chunks fail with that come too late."""

    def __post_init__(self) -> None:
        self._workers = [self._new_worker() for _ in range(self.size)]
        self._thread = threading.Thread(target=self._serve, name="hoplo:pool", daemon=True)
        self._thread.start()
        atexit.register(self._leave)

    def post(self, event: Chunk | Feeder | _Fed | _Started | _Done) -> None:
        self._events.put(event)
        self._refuse_if_over()

    def close(self) -> None:
        self._events.put(_Close())

    def terminate(self) -> None:
        self._events.put(_Terminate())

    def join(self) -> None:
        self._thread.join()

    def _leave(self) -> None:
        """At the end of the program, before Python ends its daemon threads wherever they are.

        In the middle of a call into hoplo that would abort the program.
        """
        self.terminate()
        self._thread.join(_LEAVES_WITHIN)

    def _serve(self) -> None:
        try:
            self._serve_and_end()
        finally:
            atexit.unregister(self._leave)

    def _serve_and_end(self) -> None:
        _api.begin_no_session_here()
        try:
            if self._serve_until_the_end():
                for worker in self._workers:
                    hoplo.kill(worker.actor)
        except Exception as error:
            self._end(error)  # hoplo was shut down, or its node has died
        else:
            self._end(RuntimeError("the pool was terminated before this result was there"))
        self._workers.clear()

    def _serve_until_the_end(self) -> bool:
        """Whether the pool was terminated; else it is closed, and everything is answered."""
        closed = False
        while not (closed and self._is_idle()):
            event = self._events.get()
            if isinstance(event, Chunk):
                self._waiting.append(event)
            elif isinstance(event, _Done):
                self._finish(event)
            elif isinstance(event, _Started):
                event.worker.has_started = True
            elif isinstance(event, Feeder):
                self._feeders.append(event)
            elif isinstance(event, _Fed):
                self._feeders.remove(event.feeder)
            elif isinstance(event, _Close):
                closed = True
            else:
                return True
            self._hand_out()
            del event
        return False

    def _end(self, error: BaseException) -> None:
        """Fails what is not answered; from now on `post` fails what comes."""
        self._over = error
        for feeder in self._feeders:
            feeder.stop()
            self._fail(feeder.results)
        for chunk in (*self._under_way, *self._waiting):
            self._fail(chunk.results)
        self._feeders.clear()
        self._under_way.clear()
        self._waiting.clear()
        self._refuse_if_over()

    def _refuse_if_over(self) -> None:
        # Looked at by who posts, after it posted, and by the end: one of them finds the event.
        while self._over is not None:
            try:
                event = self._events.get_nowait()
            except Empty:
                return
            if isinstance(event, Feeder):
                event.stop()
            if isinstance(event, Chunk | Feeder):
                self._fail(event.results)

    def _fail(self, results: Results) -> None:
        assert self._over is not None, "only the end fails results"
        try:
            results.fail(self._over)
        except Exception:
            traceback.print_exc()  # a callback of the user

    def _is_idle(self) -> bool:
        return not (self._under_way or self._waiting or self._feeders)

    def _hand_out(self) -> None:
        while self._waiting:
            started = [worker for worker in self._workers if worker.has_started]
            worker = min(started, key=lambda w: (self._is_full(w), len(w.under_way)), default=None)
            if worker is None or self._is_full(worker):
                return
            chunk = self._waiting.popleft()
            run = worker.actor.run
            try:
                chunk.ref = run.remote(chunk.function, chunk.how, chunk.entries, chunk.stop)
            except Exception as error:
                self._answer(chunk, [None], {0: error})
                continue
            worker.given += 1
            worker.under_way.append(chunk)
            self._under_way.add(chunk)
            chunk.ref.future().add_done_callback(self._when_done(worker, chunk))
        self._call_back()

    def _call_back(self) -> None:
        """For each idle worker one chunk that another has not begun, if it can be taken back."""
        idle = sum(w.has_started and not w.under_way for w in self._workers)
        idle -= sum(chunk.is_recalled for chunk in self._under_way)
        for worker in self._workers:
            behind = worker.under_way[1:]
            if idle > 0 and behind and not behind[-1].is_recalled:
                behind[-1].is_recalled = True
                hoplo.cancel(behind[-1].ref, recursive=False)
                idle -= 1

    def _when_done(self, worker: _Worker, chunk: Chunk) -> Callable[[Any], None]:
        return lambda future: self.post(_Done(worker, chunk, future))

    def _new_worker(self) -> _Worker:
        worker = _Worker(self.make_actor())
        started = worker.actor.__hoplo_ready__.remote().future()
        started.add_done_callback(lambda _: self.post(_Started(worker)))
        return worker

    def _is_used_up(self, worker: _Worker) -> bool:
        most = self.chunks_per_worker_max
        return most is not None and worker.given >= most

    def _is_full(self, worker: _Worker) -> bool:
        return self._is_used_up(worker) or len(worker.under_way) >= UNDER_WAY_MAX

    def _finish(self, done: _Done) -> None:
        worker = done.worker
        if done.chunk not in worker.under_way:
            return  # finished before the one behind it
        # Who was answered while its future was made is told of by this thread, and may be told of
        # before an earlier one, whose word is still on its way from another thread.
        for chunk in worker.under_way[: worker.under_way.index(done.chunk)]:
            if hoplo.wait([chunk.ref], timeout=0)[0]:
                self._finish_one(worker, chunk, chunk.ref.future())
        self._finish_one(worker, done.chunk, done.future)

    def _finish_one(self, worker: _Worker, chunk: Chunk, future: Any) -> None:
        worker.under_way.remove(chunk)
        self._under_way.discard(chunk)
        errors: dict[int, BaseException]
        try:
            values, encoded = future.result()
        except hoplo.exceptions.TaskCancelledError as error:
            if not chunk.is_recalled:
                self._answer(chunk, [None], {0: error})
                return
            chunk.is_recalled = False
            worker.given -= 1
            self._waiting.appendleft(chunk)
            return
        except Exception as error:
            # The worker's process died, or the whole list cannot be sent: one error for the chunk.
            values, errors = [None], {0: error}
            is_dead = isinstance(error, hoplo.exceptions.ActorError)
        else:
            errors = {at: _errors.make_task_error(payload) for at, payload in encoded.items()}
            is_dead = False
        # First: a new worker cannot be had once hoplo is shut down, and the result is there.
        self._answer(chunk, values, errors)
        if is_dead:
            worker.given = self.chunks_per_worker_max or worker.given
        if is_dead or (self._is_used_up(worker) and not worker.under_way):
            self._replace(worker)

    def _replace(self, worker: _Worker) -> None:
        if worker in self._workers:
            self._workers[self._workers.index(worker)] = self._new_worker()

    def _answer(self, chunk: Chunk, values: list[Any], errors: Errors) -> None:
        try:
            chunk.results.accept(chunk.index, values, errors)
        except Exception:
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
