"""The Python half of a worker process: how an actor holds its instance and runs calls at once.

The Rust loop in the main thread runs tasks, and methods of actors that take one call at a time, by
itself. It makes an `ActorRuntime` for every actor:

    runtime = ActorRuntime(cls, max_concurrency, groups, turn or None)
    runtime.construct(args, kwargs)          raises what the constructor raises
    runtime.inline                           true: the loop calls `runtime.method(name)(...)` itself
    runtime.submit([call, ...])              of a threaded actor: they run in threads
    runtime.serve()                          of an async actor: its event loop takes calls
    runtime.cancel(task_id)                  of a call that was submitted or taken
    runtime.stop()                           at the end of the process

Calls of one concurrency group start in the order they are submitted.
"""

from __future__ import annotations

import contextvars
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, cast

from . import _core, _dynamic, _threads
from .actor import OWN_METHODS, ActorExit
from .exceptions import TaskCancelledError

if TYPE_CHECKING:
    import asyncio

    from ._core import ActorCall
    from ._event_loop import Coroutines

current_call: contextvars.ContextVar[ActorCall | None] = contextvars.ContextVar(
    "hoplo_current_call", default=None
)
"""The call that the current coroutine of an async actor serves; elsewhere None."""


class Printed(io.TextIOWrapper):
    """A worker's standard output or error, which knows whether its last line has ended."""

    is_open = False

    def write(self, text: str, /) -> int:
        if text:
            self.is_open = not text.endswith("\n")
            _core.note_print(self.is_open)
        return super().write(text)


def print_by_lines() -> None:
    """Makes the standard streams of this process such."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        encoding, errors = stream.encoding, stream.errors
        printed = Printed(stream.detach(), encoding, errors, line_buffering=True)
        setattr(sys, name, printed)
        setattr(sys, f"__{name}__", printed)


_when_the_task_ends: list[Callable[[], object]] = []


def when_the_task_ends(callback: Callable[[], object]) -> None:
    """Has it called when the task that runs in the main thread, here, has returned or raised."""
    _when_the_task_ends.append(callback)
    _core.note_print(True)  # so that `end_lines` is called then


def end_lines() -> None:
    """Ends the last line of each stream, where a task left it open. Called when the task ended."""
    while _when_the_task_ends:
        _when_the_task_ends.pop()()
    for stream in (sys.__stdout__, sys.__stderr__):
        if isinstance(stream, Printed) and stream.is_open and not stream.closed:
            stream.write("\n")


class TaskInterrupt(KeyboardInterrupt):
    """Raised in the main thread where a cancelled task is, past every `except Exception`."""


def prepare() -> None:
    """Makes this process a worker. The Rust loop calls it once, in the main thread."""
    signal.signal(signal.SIGINT, _on_interrupt)
    threading.excepthook = _unless_the_actor_leaves(threading.excepthook)
    _threads.begin()
    _import_ray_from_here()
    if "HOPLO_LOGGING" in os.environ:
        from . import _logging

        _logging.configure_worker()


def set_up() -> None:
    """Calls what the environment asks each worker to call first, once it has its session."""
    hook = os.environ.get("HOPLO_WORKER_SETUP")
    if not hook:
        return
    kind, _, text = hook.partition(":")
    function: Any
    if kind == "pickle":
        import base64
        import pickle

        function = pickle.loads(base64.b64decode(text))
    else:
        import importlib

        module, _, name = text.rpartition(".")
        function = getattr(importlib.import_module(module), name)
    function()


def _import_ray_from_here() -> None:
    """For a program of `python -m hoplo.ray` on a node whose hoplo lies in another folder."""
    alias = os.path.join("hoplo", "ray", "_as_ray")
    if any(entry.endswith(alias) for entry in sys.path):
        own = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), alias)
        if own not in sys.path:
            sys.path.append(own)


def _on_interrupt(_signal: int, _frame: object) -> None:
    # The task may have ended since the signal was sent: then there is nothing to interrupt.
    if _core.interrupted():
        raise TaskInterrupt


def _unless_the_actor_leaves(
    hook: Callable[[threading.ExceptHookArgs], object],
) -> Callable[[threading.ExceptHookArgs], object]:
    def told(arguments: threading.ExceptHookArgs) -> None:
        # `exit_actor()` in a thread of the user's own: no error.
        if not issubclass(arguments.exc_type, ActorExit):
            hook(arguments)

    return told


TERMINATED = 128 + signal.SIGTERM
_terminated = False


def _on_terminate(_signal: int, _frame: object) -> None:
    """SIGTERM in an actor whose calls run in threads or coroutines: they end first.

    Where the main thread runs a call itself there is no such handler, and SIGTERM kills.
    """
    global _terminated
    _terminated = True
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # who sends another one does not want to wait
    os.write(
        2, b"SIGTERM: this actor takes no more calls, and ends when those that run have ended\n"
    )
    _core.retire()


def exit_status(status: int) -> int:
    """What this process ends with, whose main loop ended with `status`."""
    return TERMINATED if _terminated and status == 0 else status


_TITLE_MAX = 80
"""Characters of what an actor calls itself that stand in front of each line it prints."""


class ActorRuntime:
    """One actor's instance, and what runs its methods."""

    def __init__(
        self,
        actor_class: type,
        max_concurrency: int,
        groups: Mapping[str, int],
        turn: _core.Turn | None,
    ) -> None:
        self.instance: Any = None
        self.inline = turn is None and max_concurrency == 1 and not groups
        self._class = actor_class
        self._methods: dict[str, Callable[..., Any]] = {}
        self._threads: _Threads | None = None
        self._coroutines: Coroutines | None = None
        limits: dict[str | None, int] = {None: max_concurrency}
        for group, limit in groups.items():
            limits[group] = limit
        if turn is not None:
            from ._event_loop import Coroutines

            self._coroutines = Coroutines(self.method, limits, turn)
        elif not self.inline:
            self._threads = _Threads(self.method, limits)
        if not self.inline:
            signal.signal(signal.SIGTERM, _on_terminate)
            # The main thread sleeps for work, that of an async actor in its event loop.
            reader, writer = os.pipe2(os.O_CLOEXEC)
            os.set_blocking(writer, False)
            signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
            _core.wake_main_thread_by(reader)

    def construct(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Makes the instance. An async actor's inside its event loop, which can start tasks."""
        if self._coroutines is not None:
            self.instance = self._coroutines.call(lambda: self._class(*args, **kwargs))
        else:
            self.instance = self._class(*args, **kwargs)

    def title(self) -> str | None:
        """What the instance calls itself, in one line, if its class defines `__repr__`."""
        own: object = type(self.instance).__repr__
        if own is object.__repr__:
            return None
        try:
            title = " ".join(repr(self.instance).split())
        except Exception:
            return None
        return title if len(title) <= _TITLE_MAX else f"{title[: _TITLE_MAX - 3]}..."

    def checkpoint(self) -> Any:
        """The state of the instance, from which a later process goes on."""
        return self.instance.checkpoint()

    def restore(self, state: Any) -> None:
        """Gives a fresh instance the state that an earlier one had."""
        self.instance.restore(state)

    def method(self, name: str) -> Callable[..., Any]:
        """The bound method; raises AttributeError when the class has none of that name."""
        known = self._methods.get(name)
        if known is None:
            own = OWN_METHODS.get(name)
            known = self._of_class(name) if own is None else own.__get__(self.instance)
            self._methods[name] = known
        return known

    def _of_class(self, name: str) -> Callable[..., Any]:
        """What callers know is the class: the instance's own attributes hide nothing of it."""
        cls = type(self.instance)
        for base in cls.__mro__:
            if name in vars(base):
                function = vars(base)[name]
                bind = getattr(type(function), "__get__", None)
                bound = function if bind is None else bind(function, self.instance, cls)
                return _dynamic.bound(function, cast("Callable[..., Any]", bound))
        # Of a class that answers by `__getattr__`, or whose `__new__` gave something else.
        return cast("Callable[..., Any]", getattr(self.instance, name))

    def submit(self, calls: Sequence[ActorCall]) -> None:
        """Runs calls in threads, as their groups allow; returns at once."""
        assert self._threads is not None, "only a threaded actor's calls are submitted"
        self._threads.submit(calls)

    def serve(self) -> None:
        """Runs the event loop of an async actor, which takes its calls itself, until its end."""
        assert self._coroutines is not None, "only an async actor has an event loop"
        self._coroutines.serve()

    def cancel(self, task_id: str) -> bool:
        """Cancels such a call. False when it cannot be stopped: it runs in a thread."""
        calls = self._threads or self._coroutines
        return calls is not None and calls.cancel(task_id)

    def event_loops(self) -> list[asyncio.AbstractEventLoop]:
        """Those that run calls: of an async actor."""
        return [] if self._coroutines is None else self._coroutines.event_loops()

    def stop(self) -> None:
        """Cancels what runs in the event loop. Threads end with the process.

        Then the instance's `__ray_shutdown__` runs, if its class has one. What it raises is
        printed: nobody waits for it.
        """
        calls = self._threads or self._coroutines
        if calls is not None:
            calls.stop()
        ends = getattr(type(self.instance), "__ray_shutdown__", None)
        if ends is not None:
            try:
                ends(self.instance)
            except Exception:
                import traceback

                traceback.print_exc()


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
                call.fail(no_such_group(call.group))
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
                call.fail(cancelled(call))
                return True
        return False

    def stop(self) -> None:
        for _ in range(self._threads):
            self._queue.put(None)


def no_such_group(group: str | None) -> ValueError:
    return ValueError(
        f"the actor has no concurrency group {group!r}; name it in the class's concurrency_groups"
    )


def cancelled(call: ActorCall) -> TaskCancelledError:
    error = TaskCancelledError(f"call task:{call.task_id[:8]} of {call.method} was cancelled")
    error.task_id = call.task_id
    return error


__all__ = ["ActorExit", "ActorRuntime", "TaskInterrupt", "current_call", "prepare"]
