"""How long something takes, over its last few times."""

from __future__ import annotations

import time
from collections import deque

__all__ = ["Timer"]


class Timer:
    """Measures what runs inside of `with timer:`. Means are of the last `window_size` times.

    >>> timer = Timer()
    >>> timer.push(0.25)
    >>> timer.push(0.75)
    >>> timer.push_units_processed(10)
    >>> timer.count, timer.mean, timer.mean_throughput
    (2, 0.5, 10.0)
    """

    def __init__(self, window_size: int = 10) -> None:
        self.count = 0
        self._times: deque[float] = deque(maxlen=window_size)
        self._units: deque[float] = deque(maxlen=window_size)
        self._began: float | None = None

    def __enter__(self) -> None:
        if self._began is not None:
            raise RuntimeError("this timer runs already")
        self._began = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        assert self._began is not None
        self.push(time.perf_counter() - self._began)
        self._began = None

    def push(self, time_delta: float) -> None:
        """Takes a time in seconds that was measured elsewhere."""
        self.count += 1
        self._times.append(time_delta)

    def push_units_processed(self, n: float) -> None:
        """So much was done in that time."""
        self._units.append(n)

    def has_units_processed(self) -> bool:
        return len(self._units) > 0

    @property
    def mean(self) -> float:
        """Seconds; 0.0 when nothing was measured."""
        return sum(self._times) / len(self._times) if self._times else 0.0

    @property
    def mean_units_processed(self) -> float:
        """Units a time; 0.0 without any."""
        return sum(self._units) / len(self._units) if self._units else 0.0

    @property
    def mean_throughput(self) -> float:
        """Units a second; 0.0 when no time was measured."""
        seconds = sum(self._times)
        return sum(self._units) / seconds if seconds else 0.0


_Timer = Timer
