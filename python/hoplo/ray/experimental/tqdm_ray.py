"""`tqdm` for tasks and actors: a bar in the driver's terminal, lines elsewhere.

Many processes print at the same time, so a process that has no terminal prints whole lines: one
every few seconds, and one at the end. The driver shows them with the name of the task or actor in
front, as all that workers print.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sized
from typing import Any

from hoplo.util.progress import Progress

from .._absent import absent

__all__ = ["safe_print", "tqdm"]

LINE_SECONDS = 2.0
"""Between two lines of one bar."""


class tqdm:  # noqa: N801
    """Counts steps and shows them. Also iterates over `iterable`, a step for each item.

    `total` is the number of steps, by default the iterable's length. A line is shown at most every
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
        self._interval = LINE_SECONDS if flush_interval_s is None else flush_interval_s
        self._is_closed = False
        self._told_at = time.monotonic()
        self._told: int | None = None
        self._progress = Progress(desc or "", total)

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

    def update(self, n: int = 1) -> None:
        """Counts `n` more steps."""
        self._progress.advance(n)
        if not self._has_terminal() and time.monotonic() - self._told_at >= self._interval:
            self._tell()

    def refresh(self) -> None:
        """Shows what is so far, now."""
        if not self._has_terminal():
            self._tell()

    def close(self) -> None:
        """Shows the end. Done again, it does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._has_terminal():
            self._progress.__exit__(None, None, None)
        elif self._told != self.n:
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

    def _has_terminal(self) -> bool:
        return self._progress._display is not None

    def _tell(self) -> None:
        self._told_at, self._told = time.monotonic(), self.n
        print(self._progress.line(), file=sys.stderr, flush=True)


def safe_print(*args: Any, **kwargs: Any) -> None:
    """`print`."""
    print(*args, **kwargs)


__getattr__ = absent(__name__, __all__)
__path__: list[str] = []
