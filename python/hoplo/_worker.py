"""The Python half of a worker process: how an actor holds its instance and runs calls at once.

The Rust loop in the main thread runs tasks, and methods of actors that take one call at a time, by
itself. It makes an `ActorRuntime` for every actor:

    runtime = ActorRuntime(cls, max_concurrency, groups, is_async)
    runtime.construct(args, kwargs)          raises what the constructor raises
    runtime.inline                           true: the loop calls `runtime.method(name)(...)` itself
    runtime.submit([call, ...])              false: they run in threads, or in the event loop
    runtime.cancel(task_id)                  of a call that was submitted
    runtime.stop()                           at the end of the process

Calls of one concurrency group start in the order they are submitted.
"""

from __future__ import annotations

import contextvars
import signal
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from . import _core
from .actor import OWN_METHODS, ActorExit
from .exceptions import TaskCancelledError

if TYPE_CHECKING:
    import asyncio

    from ._core import ActorCall

current_call: contextvars.ContextVar[ActorCall | None] = contextvars.ContextVar(
    "hoplo_current_call", default=None
)
"""The call that the current coroutine of an async actor serves; elsewhere None."""


class TaskInterrupt(KeyboardInterrupt):
    """Raised in the main thread where a cancelled task is, past every `except Exception`."""


def prepare() -> None:
    """Makes this process a worker. The Rust loop calls it once, in the main thread."""
    signal.signal(signal.SIGINT, _on_interrupt)


def _on_interrupt(_signal: int, _frame: object) -> None:
    # The task may have ended since the signal was sent: then there is nothing to interrupt.
    if _core.interrupted():
        raise TaskInterrupt


class ActorRuntime:
    """One actor's instance, and what runs its methods."""

    def __init__(
        self, actor_class: type, max_concurrency: int, groups: Mapping[str, int], is_async: bool
    ) -> None:
        self.instance: Any = None
        self.inline = not is_async and max_concurrency == 1 and not groups
        self._class = actor_class
        self._methods: dict[str, Callable[..., Any]] = {}
        self._calls: _Threads | _Coroutines | None = None
        limits: dict[str | None, int] = {None: max_concurrency}
        for group, limit in groups.items():
            limits[group] = limit
        if is_async:
            self._calls = _Coroutines(self.method, limits)
        elif not self.inline:
            self._calls = _Threads(self.method, limits)

    def construct(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Makes the instance. An async actor's inside its event loop, which can start tasks."""
        if isinstance(self._calls, _Coroutines):
            self.instance = self._calls.call(lambda: self._class(*args, **kwargs))
        else:
            self.instance = self._class(*args, **kwargs)

    def method(self, name: str) -> Callable[..., Any]:
        """The bound method; raises AttributeError when the class has none of that name."""
        known = self._methods.get(name)
        if known is None:
            own = OWN_METHODS.get(name)
            known = getattr(self.instance, name) if own is None else own.__get__(self.instance)
            self._methods[name] = known
        return known

    def submit(self, calls: Sequence[ActorCall]) -> None:
        """Runs calls as their groups allow; from the main thread, returns at once."""
        assert self._calls is not None, "an inline actor's calls are run by the loop itself"
        self._calls.submit(calls)

    def cancel(self, task_id: str) -> bool:
        """Cancels a submitted call. False when it cannot be stopped: it runs in a thread."""
        return self._calls is not None and self._calls.cancel(task_id)

    def stop(self) -> None:
        """Ends the event loop, cancelling what runs in it. Threads end with the process."""
        if self._calls is not None:
            self._calls.stop()


class _Threads:
    """A threaded actor: for each concurrency group, as many threads as it has been busy."""

    def __init__(
        self, method: Callable[[str], Callable[..., Any]], limits: Mapping[str | None, int]
    ) -> None:
        self._groups = {name: _ThreadGroup(method, limit, name) for name, limit in limits.items()}

    def submit(self, calls: Sequence[ActorCall]) -> None:
        for call in calls:
            group = self._groups.get(call.group)
            if group is None:
                call.fail(_no_such_group(call.group))
            else:
                group.submit(call)

    def cancel(self, task_id: str) -> bool:
        return any(group.cancel(task_id) for group in self._groups.values())

    def stop(self) -> None:
        for group in self._groups.values():
            group.stop()


class _ThreadGroup:
    def __init__(
        self, method: Callable[[str], Callable[..., Any]], limit: int, name: str | None
    ) -> None:
        self._method = method
        self._limit = limit
        self._name = name or "default"
        self._queue: SimpleQueue[ActorCall | None] = SimpleQueue()
        self._waiting: set[ActorCall] = set()
        self._idle = threading.Semaphore(0)
        self._threads = 0

    def submit(self, call: ActorCall) -> None:
        self._waiting.add(call)
        self._queue.put(call)
        if self._threads < self._limit and not self._idle.acquire(blocking=False):
            self._threads += 1
            threading.Thread(
                target=self._serve, name=f"hoplo:{self._name}:{self._threads}", daemon=True
            ).start()

    def _serve(self) -> None:
        while True:
            call = self._queue.get()
            if call is None:
                return
            self._waiting.discard(call)
            self._run(call)
            del call  # or its arguments would live until the next one comes
            self._idle.release()

    def _run(self, call: ActorCall) -> None:
        try:
            method = self._method(call.method)
        except AttributeError as error:
            call.fail(error)
        else:
            call.run(method)

    def cancel(self, task_id: str) -> bool:
        """Ends a call that waits; the thread that comes to it finds it ended."""
        for call in list(self._waiting):
            if call.task_id == task_id:
                call.fail(_cancelled(call))
                return True
        return False

    def stop(self) -> None:
        for _ in range(self._threads):
            self._queue.put(None)


class _Coroutines:
    """An async actor: one event loop, in a thread of its own, that every group's calls share."""

    def __init__(
        self, method: Callable[[str], Callable[..., Any]], limits: Mapping[str | None, int]
    ) -> None:
        import asyncio

        self._method = method
        self._gates = {name: _Gate(limit) for name, limit in limits.items()}
        self._running: dict[ActorCall, asyncio.Task[Any]] = {}
        self._current_task = asyncio.current_task
        self._cancelled = asyncio.CancelledError
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="hoplo:asyncio", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        import asyncio

        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def call(self, function: Callable[[], Any]) -> Any:
        """Calls a plain function in the loop, and waits for its result."""
        import asyncio

        async def within_the_loop() -> Any:
            return function()

        return asyncio.run_coroutine_threadsafe(within_the_loop(), self._loop).result()

    def submit(self, calls: Sequence[ActorCall]) -> None:
        self._loop.call_soon_threadsafe(self._accept, calls)

    def cancel(self, task_id: str) -> bool:
        self._loop.call_soon_threadsafe(self._cancel, task_id)
        return True

    def stop(self) -> None:
        import asyncio

        async def end_all() -> None:
            running = list(self._running.values())
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            await self._loop.shutdown_asyncgens()

        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            ended = asyncio.run_coroutine_threadsafe(end_all(), self._loop)
            try:
                ended.result(timeout=1.0)
            except Exception:
                pass  # a coroutine that refuses to end; the process ends anyway
            self._loop.call_soon_threadsafe(self._loop.stop)

    # From here on, everything runs in the loop's thread.

    def _accept(self, calls: Sequence[ActorCall]) -> None:
        for call in calls:
            gate = self._gates.get(call.group)
            if gate is None:
                call.fail(_no_such_group(call.group))
            elif gate.running < gate.limit:
                self._start(call, gate)
            else:
                gate.waiting.append(call)

    def _start(self, call: ActorCall, gate: _Gate) -> None:
        gate.running += 1
        self._loop.create_task(self._run(call, gate))

    def _cancel(self, task_id: str) -> None:
        for call, task in self._running.items():
            if call.task_id == task_id:
                task.cancel()
                return
        for gate in self._gates.values():
            for call in gate.waiting:
                if call.task_id == task_id:
                    gate.waiting.remove(call)
                    call.fail(_cancelled(call))
                    return
        # Else it is about to start: `begin` finds that it was cancelled.

    async def _run(self, call: ActorCall, gate: _Gate) -> None:
        current_call.set(call)
        try:
            if not call.begin():
                return
            self._running[call] = self._current_task(self._loop)  # type: ignore[assignment]
            args, kwargs = call.arguments()
            result = self._method(call.method)(*args, **kwargs)
            if call.streaming:
                await self._stream(call, result)
                result = None
            elif hasattr(result, "__await__") and not isinstance(result, _core.ObjectRef):
                result = await result
        except self._cancelled:
            call.fail(_cancelled(call))
        except BaseException as error:
            # SystemExit too: what it means for the process is decided by the Rust loop.
            call.fail(error)
        else:
            call.finish(result)
        finally:
            self._running.pop(call, None)
            gate.running -= 1
            if gate.waiting:
                self._start(gate.waiting.popleft(), gate)

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
        room: asyncio.Future[None] = self._loop.create_future()

        def open_up() -> None:
            if not room.done():
                room.set_result(None)

        def wake() -> None:
            self._loop.call_soon_threadsafe(open_up)

        call.when_room(wake)
        await room


class _Gate:
    """How many calls of one concurrency group run, and which wait."""

    __slots__ = ("limit", "running", "waiting")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.running = 0
        self.waiting: deque[ActorCall] = deque()


def _no_such_group(group: str | None) -> ValueError:
    return ValueError(
        f"the actor has no concurrency group {group!r}; name it in the class's concurrency_groups"
    )


def _cancelled(call: ActorCall) -> TaskCancelledError:
    error = TaskCancelledError(f"call task:{call.task_id[:8]} of {call.method} was cancelled")
    error.task_id = call.task_id
    return error


__all__ = ["ActorExit", "ActorRuntime", "TaskInterrupt", "current_call", "prepare"]
