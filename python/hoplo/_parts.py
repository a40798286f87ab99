"""Arrays of members that come to their places in a list, for `gather` and `all_to_all`.

A task at the node of a member says where its arrays lie (`look`, `deal`). Another one fetches them
from there into its list (`collect`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _core

if TYPE_CHECKING:
    Ref = _core.ObjectRef[Any]

_PART_BYTES_MIN = 64 * 1024
"""Arrays of a `gather` or `all_to_all` from this size on come to their place from the member
itself. Smaller ones come with calls."""


class Place(NamedTuple):
    """An array that lies in a member, in place of it: it is fetched from there."""

    member: Ref
    path: tuple[Any, ...]
    """From the member to it: indices and keys."""
    node: int
    """Has the member in its store."""
    start: int
    """Of its first byte in the bytes of the member."""
    dtype: Any
    shape: tuple[int, ...]

    def read(self) -> Any:
        value = _core.get(self.member)
        for key in self.path:
            value = value[key]
        return value


class _Laid(NamedTuple):
    """A value with a `Place` for each large array."""

    value: Any

    def filled(self, fill: Callable[[Place], Any]) -> Any:
        return _mapped(self.value, lambda item, _: fill(item) if isinstance(item, Place) else item)


def _filled(parts: Sequence[Any], fill: Callable[[Place], Any]) -> list[Any]:
    return [part.filled(fill) if isinstance(part, _Laid) else part for part in parts]


class _Whole(NamedTuple):
    """A value that comes as it is, since there are other things than arrays in it."""

    member: Ref


def collect(_lies_near: list[Ref], *parts: Any) -> Any:
    """A list of their values."""
    whole = list({part.member: None for part in parts if isinstance(part, _Whole)})
    if whole:
        _core.wait(whole, len(whole), None, True)  # they come together
        parts = tuple(_core.get(it.member) if isinstance(it, _Whole) else it for it in parts)
    if not any(isinstance(part, _Laid) for part in parts):
        return list(parts)
    return _assembled(parts) or _filled(parts, Place.read)


def _assembled(parts: Sequence[Any]) -> Any:
    """A list of them, with arrays that lie at other nodes fetched into it. None: they cannot be had
    so."""
    import numpy as np

    here = _core.this_node()
    wanted = []

    def fill(place: Place) -> Any:
        if place.node == here:
            return place.read()
        # Nobody touches its memory.
        array = np.empty(place.shape, place.dtype)
        address = array.__array_interface__["data"][0]
        wanted.append((address, array.nbytes, place.member, place.node, place.start))
        array.flags.writeable = False
        return array

    items = _filled(parts, fill)
    return _core.assemble(items, wanted) if wanted else items


def look(member: list[Ref]) -> Any:
    """How the value of a member comes to another node."""
    [ref] = member
    _core.wait([ref], 1, None, True)
    places = _core.places_of(ref)
    # What is not made of arrays is not read here.
    laid = laid_out(_core.get(ref), ref, places) if places else None
    return _Whole(ref) if laid is None else laid


def deal(value: Any, n: int, whose: str, member: Sequence[Ref] = ()) -> Any:
    kind = type(value).__name__
    if not isinstance(value, list | tuple):
        raise TypeError(f"{whose} is of type {kind}: a list or tuple of {n} items is needed")
    if len(value) != n:
        raise ValueError(
            f"{whose} is a {kind} of {len(value)} items: {n} are needed, one for each part"
        )
    laid = laid_out(value, member[0], _core.places_of(member[0])) if member else None
    if laid is None:
        return value[0] if n == 1 else value
    # An array that stayed is an object of its own. (A `Place` is a tuple.)
    dealt = [_Laid(item) if isinstance(item, dict | list | tuple) else item for item in laid.value]
    return dealt[0] if n == 1 else dealt


def laid_out(value: Any, member: Ref, places: list[tuple[int, int]] | None) -> _Laid | None:
    """The value of a member, whose arrays lie at these places of its bytes. None: there is
    something else than arrays in it, or no large one."""
    import numpy as np

    if not places or max(size for _, size in places) < _PART_BYTES_MIN:
        return None
    here, starts = _core.this_node(), iter(places)

    def place(item: Any, path: tuple[Any, ...]) -> Any:
        if not isinstance(item, np.ndarray):
            return item
        start, size = next(starts, (0, 0)) if item.nbytes else (0, 0)
        if size != item.nbytes:
            raise LookupError
        if size < _PART_BYTES_MIN or not item.flags.c_contiguous:
            return item
        return Place(member, path, here, start, item.dtype, item.shape)

    try:
        laid = _Laid(_mapped(value, place))
    except LookupError:
        return None
    return laid if next(starts, None) is None else None


def _mapped(
    value: Any, leaf: Callable[[Any, tuple[Any, ...]], Any], path: tuple[Any, ...] = ()
) -> Any:
    """It, with `leaf(item, path)` for each thing in its dicts, lists and tuples."""
    if type(value) is dict:
        return {key: _mapped(item, leaf, (*path, key)) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_mapped(item, leaf, (*path, at)) for at, item in enumerate(value))
    return leaf(value, path)
