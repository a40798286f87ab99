"""Functions of Ray's that take a little more than hoplo's own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Never, ParamSpec, TypeVar, Unpack, overload

import hoplo
from hoplo import ActorHandle, ObjectRef, ObjectRefGenerator, _api, _core
from hoplo._core import RemoteFunction
from hoplo._option_types import ForBoth
from hoplo.actor import ActorProxy

from ._absent import OPTIONS

if TYPE_CHECKING:
    from hoplo._typed import TypedActorClass

__all__ = ["cancel", "get", "put", "remote", "wait"]

_T = TypeVar("_T")
_C = TypeVar("_C", bound=type[Any])
_P = ParamSpec("_P")


@overload
def get(
    object_refs: ObjectRef[_T], *, timeout: float | None = None, _use_object_store: bool = False
) -> _T: ...
@overload
def get(
    object_refs: list[ObjectRef[_T]],
    *,
    timeout: float | None = None,
    _use_object_store: bool = False,
) -> list[_T]: ...
@overload
def get(
    object_refs: Any, *, timeout: float | None = None, _use_object_store: bool = False
) -> Any: ...
def get(object_refs: Any, *, timeout: float | None = None, _use_object_store: bool = False) -> Any:
    """`hoplo.get`. A generator of refs is given back as it is.

    >>> hoplo.ray.get(hoplo.ray.put(1))
    1
    """
    if type(object_refs) is ObjectRefGenerator:
        return object_refs
    return _core.get(object_refs, timeout=timeout)


def put(
    value: _T, *, _owner: ActorProxy[Any] | None = None, _tensor_transport: str | None = None
) -> ObjectRef[_T]:
    """`hoplo.put`. An object lives while somebody has a ref of it, whoever its `_owner` is.

    Raises TypeError when `_owner` is no actor's handle, and for `_tensor_transport`.

    >>> hoplo.ray.get(hoplo.ray.put("a", _owner=Counter.remote()))
    'a'
    """
    if _owner is not None and not isinstance(_owner, ActorHandle):
        raise TypeError(f"_owner must be an actor's handle, not {type(_owner).__name__}")
    if _tensor_transport is not None:
        _refuse_options({"_tensor_transport": _tensor_transport}, "put")
    return _core.put(value)


def wait(
    ray_waitables: Sequence[_T],
    *,
    num_returns: int = 1,
    timeout: float | None = None,
    fetch_local: bool = True,
) -> tuple[list[_T], list[_T]]:
    """`hoplo.wait`.

    >>> ready, waiting = hoplo.ray.wait([square.remote(2)])
    >>> len(ready), len(waiting)
    (1, 0)
    """
    return hoplo.wait(
        ray_waitables, num_returns=num_returns, timeout=timeout, fetch_local=fetch_local
    )


def cancel(
    ray_waitable: ObjectRef[Any] | ObjectRefGenerator[Any],
    *,
    force: bool = False,
    recursive: bool = True,
) -> None:
    """`hoplo.cancel`.

    >>> hoplo.ray.cancel(square.remote(2))
    """
    hoplo.cancel(ray_waitable, force=force, recursive=recursive)


@overload
def remote(target: _C, /) -> TypedActorClass[_C]: ...  # type: ignore[overload-overlap]
@overload
def remote(target: Callable[..., Never], /) -> RemoteFunction: ...
@overload
def remote(  # type: ignore[overload-overlap]
    target: Callable[_P, Iterator[_T] | AsyncIterator[_T]], /
) -> RemoteFunction[ObjectRefGenerator[_T], _P]: ...
@overload
def remote(target: Callable[_P, _T], /) -> RemoteFunction[ObjectRef[_T], _P]: ...
@overload
def remote(*, num_returns: int | str, **options: Unpack[ForBoth]) -> Callable[[Any], Any]: ...
@overload
def remote(**options: Unpack[ForBoth]) -> _api.Decorator: ...
def remote(*targets: Any, **options: Any) -> Any:
    """`hoplo.remote`. Options that hoplo has not raise TypeError, and say what to use.

    >>> @hoplo.ray.remote(num_cpus=1)
    ... def one():
    ...     return 1
    >>> hoplo.ray.get(one.remote())
    1
    """
    _refuse_options(options, "remote")
    return hoplo.remote(*targets, **options)


def _refuse_options(options: dict[str, Any], where: str) -> None:
    for name, value in options.items():
        if name in OPTIONS and value is not None and value is not False:
            raise TypeError(f"{where}({name}=) is not in hoplo; {OPTIONS[name]}")
