"""Where the code of this process stands, for `hoplo why`: asked by a thread of the client's own.

Of threads the place of the user's innermost frame is told. The calls of an async actor are tasks of
its event loops: each is followed through what it awaits, to the refs at the end. A coroutine of
hoplo's own may know better what it waits for: a local of it, `waits_for`, is called and says so.

asyncio is imported where there are loops: it takes as long as a late `get` gives all processes to
answer, and most have none.
"""

from __future__ import annotations

import linecache
import os
import sys
import time
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

from . import _core

if TYPE_CHECKING:
    import asyncio

    from ._worker import ActorRuntime

OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep

DEPTH_MAX = 64
"""Awaits within awaits that are followed."""

AwaitingCall = tuple[str, str, float, str | None, list[str]]
"""Task id, name, seconds since it began, place, ids of the refs that it awaits."""


def look(
    threads: list[int], runtime: ActorRuntime | None
) -> tuple[list[str | None], list[AwaitingCall]]:
    """The place of each of these threads (`threading.get_ident`), and the actor's coroutines."""
    frames = sys._current_frames()
    places = [place(frames.get(thread)) for thread in threads]
    # The frame of this call is among them: a cycle that would keep what all threads have, refs too.
    frames.clear()
    loops = [] if runtime is None else runtime.event_loops()
    return places, [call for loop in loops for call in calls_of(loop)]


def place(frame: FrameType | None) -> str | None:
    """The user's innermost frame: `f at program.py:12: x = g()`; None if there is none."""
    while frame is not None and frame.f_code.co_filename.startswith((OWN, "<frozen")):
        frame = frame.f_back
    if frame is None:
        return None
    return place_of_line(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname)


def place_of_line(file: str, line: int, function: str) -> str:
    code = linecache.getline(file, line).strip()
    function = function.rsplit("<locals>.", 1)[-1]
    return f"{function} at {file}:{line}" + (f": {code}" if code else "")


def calls_of(loop: asyncio.AbstractEventLoop) -> Iterator[AwaitingCall]:
    import asyncio

    now = time.monotonic()
    for task in asyncio.all_tasks(loop):
        call: object = task.get_coro()
        if isinstance(call, _core.CallRun):
            where, refs = follow(task)
            yield call.task_id, call.name, now - call.began, where, refs


def follow(task: asyncio.Task[Any], depth: int = 0) -> tuple[str | None, list[str]]:
    """Where a task stands, and the ids of the refs that it awaits, in tasks of its own as well."""
    import asyncio

    where, inner = innermost(task.get_coro())
    refs = [inner.object_id] if isinstance(inner, _core._Awaiter) and inner.object_id else []
    awaited = getattr(task, "_fut_waiter", None)
    children = getattr(awaited, "_children", [awaited])
    for child in children if depth < DEPTH_MAX else []:
        if isinstance(child, asyncio.Task) and not child.done():
            refs += follow(child, depth + 1)[1]
    return where, refs


def innermost(coroutine: Any) -> tuple[str | None, object]:
    """The user's innermost frame of a chain of coroutines, and what stands at its end."""
    where = None
    for _ in range(DEPTH_MAX):
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "ag_frame", None)
        if isinstance(frame, FrameType):
            code = frame.f_code
            if not code.co_filename.startswith(OWN):
                where = place_of_line(code.co_filename, frame.f_lineno, code.co_qualname)
            elif callable(waits_for := frame.f_locals.get("waits_for")):
                return waits_for(), coroutine
        awaited = getattr(coroutine, "cr_await", None) or getattr(coroutine, "ag_await", None)
        if awaited is None:
            break
        coroutine = awaited
    return where, coroutine
