"""`tqdm` for tasks and actors: live bars in the driver's terminal, each in a line of its own.

A worker tells its driver of a bar several times a second, and at its end. Without a terminal the
driver prints a line every 2 s, and one at the end. See `hoplo._bars`.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sized
from typing import Any

from hoplo import _bars, _core
from hoplo.util.progress import Progress

from .._absent import absent

__all__ = ["safe_print", "tqdm"]

FLUSH_SECONDS = 0.25
"""Between two words of one bar."""

_numbers = itertools.count()


class tqdm:  # noqa: N801
    """Counts steps and shows them. Also iterates over `iterable`, a step for each item.

    `total` is the number of steps, by default the iterable's length. The bar is told at most every
    `flush_interval_s` seconds. `unit` and `position` have no effect.

    >>> bar = tqdm(desc="files", total=3)
    >>> bar.update(2)
    >>> bar.n, bar.total
    (2, 3)
    """

    def __init__(
        self,
        iterable: Iterable[Any] | None = None,
        desc: str | None = None,
        total: int | None = None,
        unit: str | None = None,
        position: int | None = None,
        *,
        flush_interval_s: float | None = None,
    ) -> None:
        if total is None and isinstance(iterable, Sized):
            total = len(iterable)
        self._iterable = iterable
        self._interval = FLUSH_SECONDS if flush_interval_s is None else flush_interval_s
        self._is_closed = False
        context = _core.runtime_context() if _core.is_initialized() else {}
        self._key = f"{context.get('worker_id', os.getpid())}.{next(_numbers)}"
        self._in_worker = context.get("worker_mode") == "worker"
        self._told_at = 0.0
        self._progress = Progress(desc or "", total, shown=False)

    @property
    def n(self) -> int:
        """Steps so far."""
        return self._progress.done

    @property
    def total(self) -> int | None:
        return self._progress.total

    @total.setter
    def total(self, total: int | None) -> None:
        self._progress.total = total

    @property
    def desc(self) -> str:
        return self._progress.label

    def set_description(self, desc: str) -> None:
        """Changes the text in front."""
        self._progress.label = desc
        self._tell_seldom()

    def update(self, n: int = 1) -> None:
        """Counts `n` more steps."""
        self._progress.advance(n)
        self._tell_seldom()

    def refresh(self) -> None:
        """Shows what is so far, now."""
        self._tell()

    def close(self) -> None:
        """Shows the end. Done again, it does nothing."""
        if not self._is_closed:
            self._is_closed = True
            self._tell()

    def __iter__(self) -> Iterator[Any]:
        if self._iterable is None:
            raise TypeError("this bar was given nothing to iterate over: call update()")
        for item in self._iterable:
            yield item
            self.update()
        self.close()

    def __enter__(self) -> tqdm:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _tell_seldom(self) -> None:
        if not self._is_closed and time.monotonic() - self._told_at >= self._interval:
            self._tell()

    def _tell(self) -> None:
        self._told_at = time.monotonic()
        line = self._progress.line()
        if not self._in_worker:
            _bars.show(self._key, line, self._is_closed)
        elif sys.__stderr__ is not None:
            # Not what a task may have put in its place: the driver is to hear of it.
            text = _bars.marked(self._key, line, self._is_closed)
            print(text, file=sys.__stderr__, flush=True)


def safe_print(*args: Any, **kwargs: Any) -> None:
    """`print`, above the bars of this process."""
    stream = kwargs.pop("file", None) or sys.stdout
    kwargs.pop("flush", None)
    sep, end = kwargs.pop("sep", None), kwargs.pop("end", None)
    if kwargs:
        raise TypeError(f"safe_print() got an unexpected keyword argument {next(iter(kwargs))!r}")
    text = (" " if sep is None else sep).join(map(str, args)) + ("\n" if end is None else end)
    _bars.print_text(stream, text)


__getattr__ = absent(__name__, __all__)
__path__: list[str] = []
