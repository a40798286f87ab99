"""What type checkers are told of actors. There is no such module: only they read it.

hoplo.remote(Counter)            TypedActorClass[C]; C is what they know of calling the class
    .remote(1)                   ActorHandle[Counter], if Counter(1) is right
        .add                     Any, so that methods need no decorator
an ActorProxy[Counter]           a handle, or the class itself: they look at both
        .add                     of the handle Never, which goes; of the class what TypedMethod says
"""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import (
    Any,
    Concatenate,
    Generic,
    Never,
    ParamSpec,
    Protocol,
    Self,
    TypeAlias,
    TypeVar,
    overload,
)

from typing_extensions import Unpack

from ._core import ActorHandle, ObjectRef, ObjectRefGenerator, _Handle, _Remote
from ._option_types import ForActors, ForMethods
from .actor import ActorClass

_T = TypeVar("_T")
_C = TypeVar("_C", covariant=True)
_P = ParamSpec("_P")
_Given = TypeVar("_Given")

ActorProxy: TypeAlias = _Handle[_T] | type[_T]

class TypedActorClass(ActorClass[Any], Generic[_C]):
    """What `hoplo.remote` makes of a class. Its calls are as `_Remote` has them.

    Mypy takes the first one for one that takes all. It does not, once `_P` is known.
    """

    @overload
    def remote(
        self: TypedActorClass[Callable[_P, _T]], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> ActorHandle[_T]: ...
    @overload
    def remote(  # type: ignore[overload-cannot-match]
        self: TypedActorClass[Callable[..., _T]], _1: ObjectRef[Any], /, *args: Any, **kwargs: Any
    ) -> ActorHandle[_T]: ...
    @overload
    def remote(  # type: ignore[overload-cannot-match]
        self: TypedActorClass[Callable[..., _T]],
        _1: Any,
        _2: ObjectRef[Any],
        /,
        *args: Any,
        **kwargs: Any,
    ) -> ActorHandle[_T]: ...
    @overload
    def remote(  # type: ignore[overload-cannot-match]
        self: TypedActorClass[Callable[..., _T]],
        _1: Any,
        _2: Any,
        _3: ObjectRef[Any],
        /,
        *args: Any,
        **kwargs: Any,
    ) -> ActorHandle[_T]: ...
    @overload
    def remote(  # type: ignore[overload-cannot-match]
        self: TypedActorClass[Callable[..., _T]],
        _1: Any,
        _2: Any,
        _3: Any,
        _4: ObjectRef[Any],
        /,
        *args: Any,
        **kwargs: Any,
    ) -> ActorHandle[_T]: ...
    @overload
    def remote(  # type: ignore[overload-cannot-match]
        self: TypedActorClass[Callable[..., _T]],
        _1: Any,
        _2: Any,
        _3: Any,
        _4: Any,
        _5: ObjectRef[Any],
        /,
        *args: Any,
        **kwargs: Any,
    ) -> ActorHandle[_T]: ...
    @overload
    def remote(  # type: ignore[overload-cannot-match]
        self: TypedActorClass[Callable[..., _T]],
        _1: Any,
        _2: Any,
        _3: Any,
        _4: Any,
        _5: Any,
        _6: ObjectRef[Any],
        /,
        *args: Any,
        **kwargs: Any,
    ) -> ActorHandle[_T]: ...
    def options(self, **options: Unpack[ForActors]) -> Self: ...

class TypedMethod(Generic[_P, _T, _Given]):
    """What `hoplo.method` makes of a method: of an instance it is the plain one."""

    @overload
    def __get__(self, instance: None, owner: Any, /) -> RemoteMethod[_P, _T, _Given]: ...
    @overload
    def __get__(self, instance: object, owner: Any, /) -> Callable[_P, _T]: ...
    def __call__(self, instance: Any, /, *args: _P.args, **kwargs: _P.kwargs) -> _T: ...

class RemoteMethod(_Remote[_Given, _P], Generic[_P, _T, _Given]):
    """Such a method of a class, and so of an `ActorProxy`."""

    def __call__(self, instance: Any, /, *args: _P.args, **kwargs: _P.kwargs) -> _T: ...
    @overload
    def options(
        self, *, num_returns: int | str, **options: Unpack[ForMethods]
    ) -> RemoteMethod[_P, _T, Any]: ...
    @overload
    def options(self, **options: Unpack[ForMethods]) -> RemoteMethod[_P, _T, _Given]: ...

class MethodDecorator(Protocol):
    """What `method` gives when it is given options."""

    @overload
    def __call__(self, function: Callable[..., Never], /) -> Any: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[Any, _P], Coroutine[Any, Any, _T]], /
    ) -> TypedMethod[_P, Coroutine[Any, Any, _T], ObjectRef[_T]]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[Concatenate[Any, _P], Iterator[_T]], /
    ) -> TypedMethod[_P, Iterator[_T], ObjectRefGenerator[_T]]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[Concatenate[Any, _P], AsyncIterator[_T]], /
    ) -> TypedMethod[_P, AsyncIterator[_T], ObjectRefGenerator[_T]]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[Any, _P], _T], /
    ) -> TypedMethod[_P, _T, ObjectRef[_T]]: ...
    @overload
    def __call__(self, function: Any, /) -> Any: ...

class ManyDecorator(Protocol):
    """What it gives when `num_returns` is one of them."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[Any, _P], _T], /
    ) -> TypedMethod[_P, _T, Any]: ...
    @overload
    def __call__(self, function: Any, /) -> Any: ...
