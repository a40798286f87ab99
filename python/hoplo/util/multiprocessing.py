"""The standard library's `multiprocessing.Pool`, with actors for processes.

`_pool_workers` says who runs the calls, `_pool_results` what the methods return.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from multiprocessing import TimeoutError
from types import TracebackType
from typing import Any

import hoplo

from ._pool_results import Arrivals, AsyncResult, IMapIterator
from ._pool_workers import (
    CALL,
    ITEM,
    STAR,
    Chunk,
    Dispatcher,
    Feeder,
    Function,
    PoolWorker,
    in_chunks,
)

__all__ = ["AsyncResult", "IMapIterator", "Pool", "TimeoutError"]

_CHUNKS_PER_WORKER = 4
"""Into how many chunks `map` divides the share of one worker, when `chunksize` is not given."""


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
        # They hold no CPU: all are there at once, however many, and a pool within a pool has room.
        worker_class = hoplo.remote(**{"num_cpus": 0, **(actor_options or {})})(PoolWorker)
        arguments = (initializer, tuple(initargs))
        self._processes = processes
        self._closed = False
        self._dispatcher = Dispatcher(
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
        return self._submit(func, [[call]], 1, CALL, callback, error_callback, single=True)

    # Many calls, all results together.

    def map(
        self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int | None = None
    ) -> list[Any]:
        """`func` of each item, in order."""
        values: list[Any] = self.map_async(func, iterable, chunksize).get()
        return values

    def map_async(
        self,
        func: Callable[[Any], Any],
        iterable: Iterable[Any],
        chunksize: int | None = None,
        callback: Callable[[Any], Any] | None = None,
        error_callback: Callable[[BaseException], Any] | None = None,
    ) -> AsyncResult:
        """`map`, without waiting."""
        chunks, count = self._chunks(iterable, chunksize)
        return self._submit(func, chunks, count, ITEM, callback, error_callback)

    def starmap(
        self,
        func: Callable[..., Any],
        iterable: Iterable[Iterable[Any]],
        chunksize: int | None = None,
    ) -> list[Any]:
        """`func(*item)` of each item, in order."""
        values: list[Any] = self.starmap_async(func, iterable, chunksize).get()
        return values

    def starmap_async(
        self,
        func: Callable[..., Any],
        iterable: Iterable[Iterable[Any]],
        chunksize: int | None = None,
        callback: Callable[[Any], Any] | None = None,
        error_callback: Callable[[BaseException], Any] | None = None,
    ) -> AsyncResult:
        """`starmap`, without waiting."""
        chunks, count = self._chunks(iterable, chunksize)
        return self._submit(func, chunks, count, STAR, callback, error_callback)

    # Many calls, each result as it comes.

    def imap(
        self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int | None = 1
    ) -> IMapIterator:
        """`func` of each item, in order; an iterator with `next(timeout)`."""
        return self._submit_lazily(func, iterable, chunksize, ordered=True)

    def imap_unordered(
        self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int | None = 1
    ) -> IMapIterator:
        """`imap`, each result as soon as it is there."""
        return self._submit_lazily(func, iterable, chunksize, ordered=False)

    # Its life.

    def close(self) -> None:
        """Takes no more work; workers end when what was given is done."""
        self._closed = True
        self._dispatcher.close()

    def terminate(self) -> None:
        """Ends the workers at once; who waits for results that are not there gets RuntimeError."""
        self._closed = True
        self._dispatcher.terminate()
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
            dispatcher.terminate()

    def __reduce__(self) -> tuple[Any, ...]:
        raise NotImplementedError("pool objects cannot be passed between processes or pickled")

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise ValueError("Pool not running")

    def _chunks(
        self, iterable: Iterable[Any], chunksize: int | None
    ) -> tuple[Iterator[list[Any]], int]:
        """The chunks, which are cut as they are taken, and how many."""
        # Any other is taken whole: what its iterator raises comes before the first call.
        as_it_is = type(iterable) in (list, tuple, range)
        items: Any = iterable if as_it_is else list(iterable)
        if chunksize is None:
            chunksize = max(1, -(-len(items) // (self._processes * _CHUNKS_PER_WORKER)))
        elif chunksize < 1:
            raise ValueError(f"Chunksize must be 1+, not {chunksize}")
        starts = range(0, len(items), chunksize)
        pieces = (items[start : start + chunksize] for start in starts)
        return pieces if type(items) is list else map(list, pieces), len(starts)

    def _submit(
        self,
        func: Callable[..., Any],
        chunks: Iterable[list[Any]],
        count: int,
        how: int,
        callback: Callable[[Any], Any] | None,
        error_callback: Callable[[BaseException], Any] | None,
        single: bool = False,
    ) -> AsyncResult:
        self._refuse_when_closed()
        result = AsyncResult(count, callback, self._for_errors(error_callback), single, self)
        function = hoplo.put(Function(func))
        for index, chunk in enumerate(chunks):
            self._dispatcher.post(Chunk(function, how, chunk, index, result))
        return result

    def _for_errors(
        self, callback: Callable[[BaseException], Any] | None
    ) -> Callable[[BaseException], Any] | None:
        """What is called with an error where the program gave this `error_callback`."""
        return callback

    def _submit_lazily(
        self,
        func: Callable[[Any], Any],
        iterable: Iterable[Any],
        chunksize: int | None,
        ordered: bool,
    ) -> IMapIterator:
        self._refuse_when_closed()
        chunksize = 1 if chunksize is None else chunksize
        function = hoplo.put(Function(func))
        dispatcher = self._dispatcher
        arrivals = Arrivals(ordered)

        def post(index: int, chunk: list[Any]) -> None:
            dispatcher.post(Chunk(function, ITEM, chunk, index, arrivals, stop=False))

        def end(count: int, error: BaseException | None) -> None:
            if error is not None:
                arrivals.accept(count, [None], {0: error})
                count += 1
            arrivals.expect(count)

        feeder = Feeder(dispatcher, arrivals, in_chunks(iterable, chunksize), post, end)
        arrivals.on_accept = feeder.more
        feeder.start()
        return IMapIterator(arrivals, self)
