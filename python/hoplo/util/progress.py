"""A progress bar for a terminal or a notebook; nothing elsewhere."""

from __future__ import annotations

import os
import sys
import time
from types import TracebackType
from typing import Any, TextIO

__all__ = ["Progress"]

_REDRAW_SECONDS = 0.1
_WIDTH = 28


class Progress:
    """Counts steps towards a total and shows them.

    >>> with Progress("rollouts", total=100) as bar:
    ...     bar.advance()
    >>> bar.line()
    'rollouts  [............................]   1%  1/100  ... left'
    """

    def __init__(
        self,
        label: str = "",
        total: int | None = None,
        shown: bool = True,
        rated: bool = True,
    ) -> None:
        """`rated` shows steps a second and the time left as well."""
        self.label = label
        self.total = total
        self.done = 0
        self.note = ""
        self._rated = rated
        self._started = self._drawn = time.monotonic()
        self._display = _display() if shown else None

    @classmethod
    def asked_for(cls, progress: bool | str, total: int | None) -> Progress:
        """The bar for a `progress` argument: True, a label, or False for one that is not shown."""
        label = progress if isinstance(progress, str) else ""
        return cls(label, total, shown=bool(progress))

    def advance(self, steps: int = 1, note: str | None = None) -> None:
        """Counts steps, and sets the text behind the bar."""
        self.done += steps
        if note is not None:
            self.note = note
        if self._display is not None:
            now = time.monotonic()
            if now - self._drawn >= _REDRAW_SECONDS:
                self._drawn = now
                self._display.draw(self.line())

    def line(self) -> str:
        """What is shown now."""
        seconds = time.monotonic() - self._started
        rate = self.done / seconds if seconds > 0 else 0.0
        parts = [self.label] if self.label else []
        if self.total:
            share = min(1.0, self.done / self.total)
            full = int(share * _WIDTH)
            parts.append(f"[{'#' * full}{'.' * (_WIDTH - full)}] {share:4.0%}")
            parts.append(f"{self.done}/{self.total}")
        else:
            parts.append(str(self.done))
        if self._rated:
            parts.append(f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s")
        if self._rated and self.total and 0 < self.done < self.total and rate > 0:
            parts.append(f"{_clock((self.total - self.done) / rate)} left")
        else:
            parts.append(_clock(seconds))
        if self.note:
            parts.append(self.note)
        return "  ".join(parts)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._display is not None:
            self._display.draw(self.line())
            self._display.end()


class _Terminal:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def draw(self, line: str) -> None:
        # Carriage return, text, erase to the end of the line.
        self._stream.write(f"\r{line}\x1b[K")
        self._stream.flush()

    def end(self) -> None:
        self._stream.write("\n")
        self._stream.flush()


class _Notebook:
    def __init__(self, ipython_display: Any) -> None:
        self._handle = ipython_display({"text/plain": ""}, raw=True, display_id=True)

    def draw(self, line: str) -> None:
        self._handle.update({"text/plain": line}, raw=True)

    def end(self) -> None:
        pass


def _display() -> _Terminal | _Notebook | None:
    if in_notebook():
        return notebook_output()
    if sys.stderr is not None and sys.stderr.isatty():
        return _Terminal(sys.stderr)
    return None


def in_notebook() -> bool:
    """Whether this is the process of a notebook."""
    # IPython is asked only where it runs already: importing it would take longer than most loops.
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
    shell = get_ipython() if get_ipython is not None else None
    return shell is not None and hasattr(shell, "kernel")


def notebook_output() -> _Notebook:
    """A place below the cell, for text that changes."""
    from IPython.display import display

    return _Notebook(display)


def columns(stream: TextIO) -> int:
    """How wide this terminal is."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError, AttributeError):
        return 80


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02}" if minutes else f"{seconds:.1f}s"
