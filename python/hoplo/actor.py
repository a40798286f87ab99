"""Actors: what `@hoplo.remote` makes of a class. Their calls and handles are in Rust.

ActorClass --remote()--> ActorHandle --.method--> ActorMethod --remote()--> ObjectRef
    \\--options()--> ActorClass, sharing one ActorTemplate (the exported class)
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    NamedTuple,
    Never,
    NoReturn,
    ParamSpec,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from . import _core, _options, _signature
from ._option_types import ForActors, ForMethods
from ._options import ActorOptions, MethodOptions

if TYPE_CHECKING:
    from ._typed import ActorProxy, ManyDecorator, MethodDecorator, TypedMethod
else:
    ActorProxy = _core.ActorHandle

__all__ = [
    "ActorClass",
    "ActorExit",
    "ActorHandle",
    "ActorMethod",
    "ActorProxy",
    "checkpoint",
    "exit_actor",
    "method",
]

ActorHandle = _core.ActorHandle
ActorMethod = _core.ActorMethod

_T = TypeVar("_T")
_P = ParamSpec("_P")
_F = TypeVar("_F", bound=Callable[..., Any])

_MARK = "__hoplo_method__"


class ActorExit(BaseException):
    """What `exit_actor` raises, so that the code that called it does not go on."""


def exit_actor() -> NoReturn:
    """Ends the actor that this code runs in, for good: it is not restarted.

    For their callers, the call that does this, calls that wait and later calls raise
    `ActorDiedError`. Other calls that run in threads or coroutines have 5 s to end; then they raise
    the same. It may be called anywhere in the actor's process, also in a thread or an asyncio task
    of your own. Raises RuntimeError outside of an actor.

    >>> @hoplo.remote
    ... class Guest:
    ...     def leave(self):
    ...         hoplo.exit_actor()
    >>> guest = Guest.remote()
    >>> hoplo.get(guest.leave.remote())
    Traceback (most recent call last):
    hoplo.exceptions.ActorDiedError: ...Guest... left by exit_actor()
    """
    if not _core.is_initialized() or _core.runtime_context()["actor_id"] is None:
        raise RuntimeError("exit_actor() ends an actor, and this code does not run in one")
    _core.leave_actor()
    raise ActorExit


def checkpoint() -> None:
    """Asks for a checkpoint of the actor that this code runs in, once its call has returned.

    For an actor whose class has the methods `checkpoint` and `restore`, and that may restart: the
    next process goes on from there. It makes checkpoints by itself, too (`checkpoint_every`).
    Raises RuntimeError elsewhere.

    >>> @hoplo.remote(max_restarts=-1)
    ... class Account:
    ...     def __init__(self):
    ...         self.balance = 0
    ...     def checkpoint(self):
    ...         return self.balance
    ...     def restore(self, state):
    ...         self.balance = state
    ...     def close_day(self):
    ...         hoplo.checkpoint()
    ...         return self.balance
    >>> hoplo.get(Account.remote().close_day.remote())
    0
    """
    if not _core.is_initialized() or not _core.ask_for_checkpoint():
        raise RuntimeError(
            "checkpoint() is for actors that restart from checkpoints: a class with the methods "
            "checkpoint and restore, and max_restarts"
        )


@overload
def method(function: Callable[..., Never], /) -> Any: ...
@overload
def method(
    function: Callable[Concatenate[Any, _P], Coroutine[Any, Any, _T]], /
) -> TypedMethod[_P, Coroutine[Any, Any, _T], _core.ObjectRef[_T]]: ...
@overload
def method(  # type: ignore[overload-overlap]
    function: Callable[Concatenate[Any, _P], Iterator[_T]], /
) -> TypedMethod[_P, Iterator[_T], _core.ObjectRefGenerator[_T]]: ...
@overload
def method(  # type: ignore[overload-overlap]
    function: Callable[Concatenate[Any, _P], AsyncIterator[_T]], /
) -> TypedMethod[_P, AsyncIterator[_T], _core.ObjectRefGenerator[_T]]: ...
@overload
def method(
    function: Callable[Concatenate[Any, _P], _T], /
) -> TypedMethod[_P, _T, _core.ObjectRef[_T]]: ...
@overload
def method(function: Callable[..., Any], /) -> Any: ...
@overload
def method(*, num_returns: int | str, **options: Unpack[ForMethods]) -> ManyDecorator: ...
@overload
def method(**options: Unpack[ForMethods]) -> MethodDecorator: ...
def method(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Sets options of one method of an actor class, for all of its calls.

    They are `num_returns`, `concurrency_group`, `max_task_retries`, `retry_exceptions`, `name`,
    `enable_task_events` and `_generator_backpressure_num_objects`. Raises TypeError or
    ValueError for a wrong one.

    >>> @hoplo.remote
    ... class Splitter:
    ...     @hoplo.method(num_returns=2)
    ...     def halves(self, values):
    ...         return values[: len(values) // 2], values[len(values) // 2 :]
    >>> splitter = Splitter.remote()
    >>> left, right = splitter.halves.remote([1, 2, 3, 4])
    >>> hoplo.get([left, right])
    [[1, 2], [3, 4]]

    Without options it changes nothing. Type checkers know methods with it, of what is an
    `ActorProxy`: they refuse wrong arguments, and know what the refs are of.
    """
    marked = _options.method_options(options)

    def mark(function: _F) -> _F:
        setattr(function, _MARK, marked)
        if options.get("num_returns") == "dynamic":
            from . import _dynamic

            _dynamic.refuse_others(function.__qualname__, function)
            _dynamic.mark(function)
        return function

    return mark if function is None else mark(function)


class MethodInfo(NamedTuple):
    """A method of an actor class, as callers need to know it. Picklable; travels with handles."""

    name: str
    num_returns: int
    """`_options.STREAMING` for a generator."""
    concurrency_group: str | None
    max_task_retries: int | None
    """None: as the actor says."""
    retry_exceptions: bool | tuple[type[BaseException], ...]
    enable_task_events: bool
    backpressure: int
    """Values of a generator that may wait unread before it is paused; -1: any number."""
    is_async: bool
    is_generator: bool
    arity: tuple[int, int]
    """(least, most) positional arguments that certainly fit; see `_core.RemoteFunction`."""
    shape: _signature.Shape | None


class _Export:
    """What all copies of an actor class share: the template, made at the first `remote()`.

    Not earlier, because a class that is being unpickled may still be without its methods.
    """

    __slots__ = ("_class", "_template", "methods")

    def __init__(self, actor_class: type) -> None:
        self._class = actor_class
        self._template: _core.ActorTemplate | None = None
        self.methods: list[MethodInfo] = []

    def template(self) -> _core.ActorTemplate:
        if self._template is None:
            self.methods = methods_of(self._class)
            self._template = _core.ActorTemplate(
                self._class,
                self._class.__qualname__,
                self.methods,
                any(info.is_async for info in self.methods),
            )
        return self._template


class ActorClass(Generic[_T]):
    """A class whose instances live in processes of their own. Made by `hoplo.remote`.

    >>> @hoplo.remote
    ... class Counter:
    ...     def __init__(self):
    ...         self.value = 0
    ...     def add(self, amount=1):
    ...         self.value += amount
    ...         return self.value
    >>> counter = Counter.remote()
    >>> hoplo.get([counter.add.remote(), counter.add.remote(10)])
    [1, 11]
    """

    def __init__(self, actor_class: type[_T], options: ActorOptions, export: _Export) -> None:
        self._class = actor_class
        self._options = options
        self._export = export
        self.__name__ = actor_class.__name__
        self.__qualname__ = actor_class.__qualname__
        self.__module__ = actor_class.__module__
        self.__doc__ = actor_class.__doc__
        self.__wrapped__ = actor_class

    def remote(self, *args: Any, **kwargs: Any) -> _core.ActorHandle[_T]:
        """Starts an actor with these arguments of the constructor; returns its handle at once.

        Raises TypeError when the arguments do not fit, ValueError when the `name` is taken, and
        ActorUnavailableError when nobody said within 15 s whether it is: see `hoplo.get_actor`.
        """
        _signature.check_shape(
            _signature.shape_of(_constructor(self._class), bound=True), args, kwargs, self.__name__
        )
        template = self._export.template()
        self._refuse_unknown_groups()
        options = self._options
        if options.max_restarts or options.checkpoint_every or options.checkpoint_interval_s:
            options = self._with_checkpoints()
        if options.allow_out_of_order_execution is None:
            several = self._why_several_at_once() is not None
            options = options._replace(allow_out_of_order_execution=several)
        return template.create(options, args, kwargs)

    def options(self, **options: Unpack[ForActors]) -> ActorClass[_T]:
        """The same class with some of the options changed that `hoplo.remote` takes."""
        changed = _options.actor_options({**self._options.given, **options})
        return ActorClass(self._class, changed, self._export)

    def _with_checkpoints(self) -> ActorOptions:
        """The options of an actor that restarts from checkpoints, if this is one."""
        options, name = self._options, self.__name__
        every, interval = options.checkpoint_every, options.checkpoint_interval_s
        if every == 0:
            return options
        has = _takes(self._class, "checkpoint", 0) and _takes(self._class, "restore", 1)
        if every is not None or interval is not None:
            asked = "checkpoint_every" if every is not None else "checkpoint_interval_s"
            if not has:
                raise ValueError(
                    f"{asked} is for classes with the methods checkpoint(self), which returns the "
                    f"state, and restore(self, state): give {name} both"
                )
            if options.max_restarts == 0:
                raise ValueError(
                    f"{asked} is for actors that restart: write max_restarts=-1 beside it, or the "
                    f"number of restarts that {name} may have"
                )
        if not has:
            return options
        self._refuse_what_has_no_order()
        return options._replace(
            checkpoints=(
                _options.CHECKPOINT_EVERY if every is None else every,
                int(1000 * (_options.CHECKPOINT_INTERVAL_S if interval is None else interval)),
            ),
            max_task_retries=-1,
        )

    def _why_several_at_once(self) -> str | None:
        """Why its calls may overlap; None: they run one after the other."""
        options = self._options
        if any(info.is_async for info in self._export.methods):
            return "it has async methods"
        if options.concurrency_groups or options.max_concurrency > 1:
            return "it runs several calls at once"
        return None

    def _refuse_what_has_no_order(self) -> None:
        why = self._why_several_at_once()
        for info in self._export.methods:
            if info.is_generator:
                why = f"{info.name} is a generator, whose values are sent while it runs"
        if why is not None:
            raise ValueError(
                f"{self.__name__} has checkpoint() and restore(), so its calls are replayed in "
                f"their order when it restarts; that cannot be, since {why}. Change that, or write "
                f"checkpoint_every=0: it restarts by its constructor alone"
            )

    def _refuse_unknown_groups(self) -> None:
        groups = self._options.concurrency_groups
        for info in self._export.methods:
            if info.concurrency_group is not None and info.concurrency_group not in groups:
                raise ValueError(
                    f"{self.__name__}.{info.name} is in concurrency group "
                    f"{info.concurrency_group!r}, which the class does not have; add it with "
                    f"concurrency_groups={{{info.concurrency_group!r}: 1}}"
                )

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(
            f"{self.__name__}() makes no actor; call {self.__name__}.remote(), "
            f"or {self.__name__}.__wrapped__() for a plain object in this process"
        )

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        """Makes `class Child(Parent)` inherit from the plain class behind an actor class."""
        return (self._class,)

    def __reduce__(self) -> tuple[Any, ...]:
        given = self._options.given
        if given.get("runtime_env") and _core._packs():
            from . import _packages

            assert self._options.runtime_env is not None
            given = _packages.portable_given(
                given, _packages.packed(self._options.runtime_env, True)
            )
        return (make, (self._class, given))

    def __repr__(self) -> str:
        return f"ActorClass({self.__qualname__})"


def make(actor_class: type[_T], given: Mapping[str, Any]) -> ActorClass[_T]:
    """The actor class of `actor_class`, with the options given to the decorator."""
    return ActorClass(actor_class, _options.actor_options(given), _Export(actor_class))


def methods_of(actor_class: type) -> list[MethodInfo]:
    """Every method that a handle offers: inherited, static and class methods too, by name."""
    found = {
        name: _method_info(name, getattr(actor_class, name), bound)
        for name, bound in _method_names(actor_class)
    }
    for name in OWN_METHODS:
        found[name] = _method_info(name, OWN_METHODS[name], bound=True)
    return [found[name] for name in sorted(found)]


def with_method_options(method: _core.ActorMethod, given: Mapping[str, Any]) -> _core.ActorMethod:
    """The same method with the options `given` in place of those it has."""
    options = _options.method_options(given)
    if given.get("num_returns") == "dynamic":
        from ._dynamic import DynamicMethod

        return cast("_core.ActorMethod", DynamicMethod(method, given))
    return method._with(options)


def no_such_method(class_name: str, name: str, known: Iterable[str]) -> AttributeError:
    """What to raise for an attribute of a handle that is no method."""
    import difflib

    public = sorted(n for n in known if not n.startswith("_"))
    near = difflib.get_close_matches(name, public, n=1)
    remedy = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(public) or 'none'}"
    return AttributeError(
        f"actor {class_name} has no method {name!r}; {remedy} (attributes of the instance are "
        f"reached through a method)"
    )


def no_such_group(class_name: str, group: str, known: Iterable[str]) -> ValueError:
    """What to raise for a call in a concurrency group that the actor does not have."""
    groups = ", ".join(repr(name) for name in sorted(known)) or "none"
    return ValueError(
        f"actor {class_name} has no concurrency group {group!r}, it has {groups}; name it in the "
        f"class's concurrency_groups={{{group!r}: 1}}"
    )


def _method_names(actor_class: type) -> Iterable[tuple[str, bool]]:
    """The names of methods, each with whether its first parameter is `self`."""
    seen: set[str] = set()
    for cls in actor_class.__mro__:
        if cls in (object, Generic):
            continue
        for name, value in vars(cls).items():
            if name in seen or name in _NOT_OFFERED:
                continue
            seen.add(name)
            if isinstance(value, staticmethod | classmethod):
                yield name, False
            elif callable(value) and not isinstance(value, type):
                yield name, True


_NOT_OFFERED = frozenset(
    {
        "__class_getitem__",
        "__del__",
        "__getattribute__",
        "__init__",
        "__init_subclass__",
        "__new__",
        "__subclasshook__",
    }
)


def _method_info(name: str, function: Callable[..., Any], bound: bool) -> MethodInfo:
    own: MethodOptions = getattr(function, _MARK, None) or MethodOptions()
    is_async_generator = inspect.isasyncgenfunction(function)
    is_generator = is_async_generator or inspect.isgeneratorfunction(function)
    num_returns = own.num_returns
    if num_returns is None:
        num_returns = _options.STREAMING if is_generator else 1
    shape = _signature.shape_of(function, bound=bound)
    return MethodInfo(
        name=name,
        num_returns=num_returns,
        concurrency_group=own.concurrency_group,
        max_task_retries=own.max_task_retries,
        retry_exceptions=own.retry_exceptions or False,
        enable_task_events=own.enable_task_events is not False,
        backpressure=-1 if own.backpressure is None else own.backpressure,
        is_async=is_async_generator or inspect.iscoroutinefunction(function),
        is_generator=is_generator,
        arity=_signature.arity(shape),
        shape=shape,
    )


def _takes(actor_class: type, method: str, count: int) -> bool:
    """Whether instances have such a method, to be called with so many arguments."""
    function = getattr(actor_class, method, None)
    try:
        inspect.signature(function).bind(None, *range(count))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False  # it is another thing of the same name
    return True


def _constructor(actor_class: Any) -> Callable[..., Any]:
    """`__init__`, or `__new__` where only that takes the arguments; both have one leading self."""
    if actor_class.__init__ is not object.__init__:
        return actor_class.__init__  # type: ignore[no-any-return]
    if actor_class.__new__ is not object.__new__:
        return actor_class.__new__  # type: ignore[no-any-return]
    return _no_arguments


def _no_arguments(self: object) -> None:
    """The constructor of a class that has none."""


# Methods that every actor has beside its class's own; `_worker` runs them.


def _terminate(self: object) -> NoReturn:
    """Ends the actor after the calls made before this one."""
    raise ActorExit


def _ready(self: object) -> bool:
    """Answers once the actor's constructor has run."""
    return True


def _call(self: object, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Runs `function(instance, *args, **kwargs)` inside the actor."""
    return function(self, *args, **kwargs)


OWN_METHODS: Mapping[str, Callable[..., Any]] = {
    "__hoplo_terminate__": _terminate,
    "__hoplo_ready__": _ready,
    "__hoplo_call__": _call,
}
