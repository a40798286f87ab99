"""Progress bars of many processes, in the driver's terminal, each in its own line.

    a worker: a line on stderr --daemon, with what else it prints--> the driver's printer: `told`
    the driver's own bars ------------------------------------------------------------------^

A line of a worker is text for people, a mark, and JSON. So a log file shows what there was to see,
and whoever does not know of bars prints a line. The driver shows all bars at the bottom of its
terminal and draws them anew in place; what is printed meanwhile goes above them. Without a terminal
each bar is a line every few seconds, and one at its end.

    of a bar            {"id": "PROCESS.NUMBER", "ended": bool}
    at a worker's end   {"gone": "PROCESS"}, by its daemon: nobody else closes its bars
    at a node's death   {"dead": "NODE"}, by the driver's daemon: its processes' ids begin so
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any, TextIO

from hoplo.util import progress

__all__ = ["SHOWN_MAX", "Bars", "marked", "print_text", "told"]

MARK = "\x1fhoplo-bar "
"""Before the JSON. The daemon and the printer of the driver look for it (`BAR_MARK` there)."""

LINE_SECONDS = 2.0
"""Between two lines of one bar, where there is no terminal."""

SHOWN_MAX = 16
"""Bars that are shown at a time: a terminal has not many lines."""

_REDRAW_SECONDS = 0.05


def marked(key: str, line: str, ended: bool) -> str:
    """What a worker prints."""
    return f"{line}{MARK}{json.dumps({'id': key, 'ended': ended})}"


class Bars:
    """The bars that are open, in the order in which they began."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._in_notebook = progress.in_notebook()
        self._is_terminal = stream.isatty() and not self._in_notebook
        self._output: Any = None
        self._lock = threading.Lock()
        self._open: dict[str, str] = {}
        """The last line of each."""
        self._told_at: dict[str, float] = {}
        self._drawn = 0
        """Lines at the bottom of the terminal that are bars."""
        self._drawn_at = 0.0

    def show(self, key: str, line: str, ended: bool) -> None:
        """The bar is this from now on. One that has ended stays above the others."""
        with self._lock:
            if self._in_notebook:
                self._show_in_notebook(key, line, ended)
                return
            if not self._is_terminal:
                self._show_line(key, line, ended)
                return
            if ended:
                self._open.pop(key, None)
                self._draw(above=line)
                return
            is_new = key not in self._open
            self._open[key] = line
            # What is not drawn now is drawn with the next word of any bar, or at its end.
            if is_new or time.monotonic() - self._drawn_at >= _REDRAW_SECONDS:
                self._draw()

    def end_those_of(self, process: str) -> None:
        """The process has ended: so have its bars that are open."""
        self._end(f"{process}.", "its process has ended")

    def end_those_of_node(self, node: str) -> None:
        """The node has died, and all its processes with it."""
        self._end(node, "its node has died")

    def write(self, stream: TextIO, text: str) -> None:
        """Writes text above the bars."""
        with self._lock:
            if self._drawn == 0:
                stream.write(text)
                stream.flush()
                return
            self._clear()
            stream.write(text)
            stream.flush()
            self._draw()

    def close(self) -> None:
        """Nobody tells anything more: the last state of each bar stays."""
        with self._lock:
            if self._is_terminal and self._drawn:
                self._draw()
            self._open.clear()
            self._drawn = 0

    def _end(self, start: str, why: str) -> None:
        """Bars whose keys begin so have ended."""
        with self._lock:
            its = {key: line for key, line in self._open.items() if key.startswith(start)}
        for key, line in its.items():
            self.show(key, f"{line}  ({why})", ended=True)

    def _show_in_notebook(self, key: str, line: str, ended: bool) -> None:
        if ended:
            self._open.pop(key, None)
        else:
            self._open[key] = line
        if self._output is None:
            self._output = progress.notebook_output()
        self._output.draw("\n".join([*self._open.values(), *([line] if ended else [])]))
        if not self._open:
            self._output = None  # the next bars come below what is printed until then

    def _show_line(self, key: str, line: str, ended: bool) -> None:
        now = time.monotonic()
        self._open[key] = line
        if ended:
            self._told_at.pop(key, None)
            del self._open[key]
        elif now - self._told_at.setdefault(key, now) < LINE_SECONDS:
            return
        else:
            self._told_at[key] = now
        self._stream.write(f"{line}\n")
        self._stream.flush()

    def _clear(self) -> None:
        """The cursor is at the beginning of the line below the last bar."""
        if self._drawn:
            # Up to the first bar; erase all below.
            self._stream.write(f"\x1b[{self._drawn}A\r\x1b[J")
            self._drawn = 0

    def _draw(self, above: str | None = None) -> None:
        width = progress.columns(self._stream)
        self._clear()
        lines = list(self._open.values())
        shown = lines[:SHOWN_MAX]
        if len(lines) > len(shown):
            shown[-1] = f"... and {len(lines) - SHOWN_MAX + 1} bars more"
        if above is not None:
            self._stream.write(f"{above}\n")
        # A line that wraps would be two, and stay where it is.
        self._stream.writelines(f"{line[: width - 1]}\n" for line in shown)
        self._stream.flush()
        self._drawn, self._drawn_at = len(shown), time.monotonic()


_bars: Bars | None = None
_lock = threading.Lock()


def _of_stderr() -> Bars | None:
    """Those of what is stderr now: a program may have replaced it."""
    global _bars
    stream = sys.stderr
    if stream is None:
        return None
    with _lock:
        if _bars is None or _bars._stream is not stream:
            if _bars is not None:
                _bars.close()
            _bars = Bars(stream)
        return _bars


def told(printer: str, line: str) -> None:
    """A worker printed this line, which has a mark. `printer`: who, as text in front."""
    text, _, rest = line.partition(MARK)
    try:
        bar: Any = json.loads(rest)
        if "gone" in bar:
            end_those_of(str(bar["gone"]))
            return
        if "dead" in bar:
            end_those_of_node(str(bar["dead"]))
            return
        key, ended = str(bar["id"]), bool(bar["ended"])
    except (ValueError, KeyError, TypeError):
        print_text(sys.stderr, f"{printer}{line}\n")  # not of a bar of ours
        return
    show(key, f"{printer}{text}", ended)


def show(key: str, line: str, ended: bool) -> None:
    """Shows a bar of this driver's terminal."""
    bars = _of_stderr()
    if bars is not None:
        bars.show(key, line, ended)


def end_those_of(process: str) -> None:
    """A worker has ended."""
    bars = _of_stderr()
    if bars is not None:
        bars.end_those_of(process)


def end_those_of_node(node: str) -> None:
    """A node has died."""
    bars = _of_stderr()
    if bars is not None:
        bars.end_those_of_node(node)


def print_text(stream: TextIO, text: str) -> None:
    """Prints text above the bars."""
    bars = _of_stderr()
    if bars is None:
        stream.write(text)
        stream.flush()
    else:
        bars.write(stream, text)


def close() -> None:
    """The session ends: nothing more is told."""
    with _lock:
        if _bars is not None:
            _bars.close()
