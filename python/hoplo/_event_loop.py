"""An async actor's event loops.

The default concurrency group's is in the worker's main thread, asleep at the process's bell. Each
other group has one of asyncio's own in a thread of its own, so that a call that blocks stops its
group alone.

    asyncio --select(timeout)--> _Selector --take(timeout)--> _core.Turn
            <--a task of each call that is there---------------'

A call's task is made while the main loop selects, so it runs in the same turn, and replies from
there. Calls of one concurrency group start in the order in which they came.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import selectors
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from . import _core
from .actor import ActorExit

if TYPE_CHECKING:
    from ._core import ActorCall


class Coroutines:
    """The calls of an async actor, in the event loops of their groups."""

    def __init__(
        self,
        method: Callable[[str], Callable[..., Any]],
        limits: Mapping[str | None, int],
        turn: _core.Turn,
    ) -> None:
        self._turn = turn
        self._selector = _Selector(turn)
        self._groups = {name: _GroupLoop(name) for name in limits if name is not None}
        self._loop = _Loop(self._selector, turn)
        asyncio.set_event_loop(self._loop)
        starters = {name: group.start for name, group in self._groups.items()}
        turn.prepare(self._loop, dict(limits), starters, method, self._stream)

    def event_loops(self) -> list[asyncio.AbstractEventLoop]:
        return [self._loop, *(group.loop for group in self._groups.values())]

    def call(self, function: Callable[[], Any]) -> Any:
        """Calls a plain function in the loop, before it serves."""

        async def within_the_loop() -> Any:
            return function()

        return self._loop.run_until_complete(within_the_loop())

    def serve(self) -> None:
        """Takes calls until the actor ends."""
        self._selector.serves = True
        try:
            self._loop.run_forever()
        finally:
            self._selector.serves = False

    def cancel(self, task_id: str) -> bool:
        """From any thread."""
        self._loop.call_soon_threadsafe(self._cancel, task_id)
        return True

    def stop(self) -> None:
        """Cancels what runs, after the loop has served."""
        until = time.monotonic() + _ENDING_SECONDS_MAX
        ends = [group.end_all() for group in self._groups.values() if group.has_started]
        try:
            self._loop.run_until_complete(asyncio.wait_for(_end_all(), _ENDING_SECONDS_MAX))
            for end in ends:
                end.result(max(0, until - time.monotonic()))
        except Exception:
            pass  # a coroutine that refuses to end; the process ends anyway

    def _cancel(self, task_id: str) -> None:
        if self._turn.cancel_waiting(task_id):
            return
        for loop in (self._loop, *(group.loop for group in self._groups.values())):
            for call, task in _running(loop):
                if call.task_id == task_id:
                    loop.call_soon_threadsafe(task.cancel)
                    return
        # Else it has not come here yet, and will not begin.

    async def _stream(self, call: ActorCall, values: Any) -> None:
        if hasattr(values, "__await__"):
            values = await values
        if hasattr(values, "__aiter__"):
            async for value in values:
                if not call.item(value):
                    await self._room(call)
        else:
            for value in values:
                if not call.item(value):
                    await self._room(call)

    async def _room(self, call: ActorCall) -> None:
        loop = asyncio.get_running_loop()
        room: asyncio.Future[None] = loop.create_future()

        def open_up() -> None:
            if not room.done():
                room.set_result(None)

        def wake() -> None:
            loop.call_soon_threadsafe(open_up)

        call.when_room(wake)
        await room


_ENDING_SECONDS_MAX = 1.0


def _running(
    loop: asyncio.AbstractEventLoop,
) -> Iterator[tuple[_core.CallRun, asyncio.Task[Any]]]:
    for task in asyncio.all_tasks(loop):
        call: object = task.get_coro()
        if isinstance(call, _core.CallRun):
            yield call, task


async def _end_all() -> None:
    loop = asyncio.get_running_loop()
    running = [task for _, task in _running(loop)]
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    await loop.shutdown_asyncgens()


class _GroupLoop:
    """The event loop of a concurrency group: its thread starts with its first call."""

    def __init__(self, name: str) -> None:
        self.loop = _OwnLoop()
        self.has_started = False
        self._name = name

    def start(self, call: Any, name: str) -> None:
        """From any thread: makes a task of a call."""
        if not self.has_started:  # the first call comes from the main thread
            self.has_started = True
            threading.Thread(target=self._serve, name=f"hoplo:{self._name}", daemon=True).start()
        self.loop.call_soon_threadsafe(self._make_task, call, name)

    def end_all(self) -> concurrent.futures.Future[None]:
        return asyncio.run_coroutine_threadsafe(_end_all(), self.loop)

    def _make_task(self, call: Any, name: str) -> None:
        self.loop.create_task(call, name=name)

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        while True:
            try:
                self.loop.run_forever()
            except SystemExit:
                _core.leave_actor()  # by a task of the user's own


class _Selector(selectors.EpollSelector):
    """Sleeps at the process's bell instead of in epoll, and takes calls."""

    def __init__(self, turn: _core.Turn) -> None:
        super().__init__()
        self.serves = False
        self._turn = turn
        # The loop's own pipe, which is its first file, stays empty unless signals are handled.
        self._files = -1
        self._has_files = False

    def watch(self) -> None:
        """From now on one more file counts."""
        self._files += 1
        self._has_files = self._files > 0
        if self._has_files:
            self._turn.watch(self.fileno())

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = super().register(fileobj, events, data)
        self.watch()
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        key = super().unregister(fileobj)
        self._files -= 1
        self._has_files = self._files > 0
        return key

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self._has_files and timeout != 0:
            # What is still in there does not end the wait.
            events = super().select(0)
            if events:
                self._turn.take(0, self.serves)
                return events
        if self._turn.take(timeout, self.serves) or self._has_files:
            return super().select(0)
        return []


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self, selector: _Selector, turn: _core.Turn) -> None:
        self._hoplo_turn = turn
        self._watch = selector.watch
        super().__init__(selector)

    def add_signal_handler(  # type: ignore[override]
        self, sig: int, callback: Any, *args: Any
    ) -> None:
        # A handler writes to the loop's pipe. It does not interrupt a sleep by itself.
        self._watch()
        super().add_signal_handler(sig, callback, *args)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        # The actor leaves: a task that nobody awaits may have said so.
        if not isinstance(context.get("exception"), ActorExit):
            super().call_exception_handler(context)

    def _write_to_self(self) -> None:
        # How other threads wake the loop. (asyncio's own pipe would do as well, by the watcher.)
        self._hoplo_turn.nudge()


class _OwnLoop(asyncio.SelectorEventLoop):
    """A group's."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not isinstance(context.get("exception"), ActorExit):
            super().call_exception_handler(context)
