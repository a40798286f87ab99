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
    """An array that lies in a member, in place of it: it is fetched from there.

    It does not name the member. A ref in each item of each member would have to be held and told of
    as often as there are items.
    """

    path: tuple[Any, ...]
    """From the member to it: indices and keys."""
    node: int
    """Has the member in its store."""
    start: int
    """Of its first byte in the bytes of the member."""
    dtype: Any
    shape: tuple[int, ...]

    def read(self, member: Ref) -> Any:
        value = _core.get(member)
        for key in self.path:
            value = value[key]
        return value


class _Laid(NamedTuple):
    """A value with a `Place` for each large array."""

    value: Any

    def filled(self, fill: Callable[[Place, Ref], Any], member: Ref) -> Any:
        def leaf(item: Any, _: tuple[Any, ...]) -> Any:
            return fill(item, member) if isinstance(item, Place) else item

        return _mapped(self.value, leaf)


class _Whole(NamedTuple):
    """In place of a value that comes as it is: there are other things than arrays in it."""


def _filled(
    members: Sequence[Ref], parts: Sequence[Any], fill: Callable[[Place, Ref], Any]
) -> list[Any]:
    each = zip(members, parts, strict=True)
    return [part.filled(fill, ref) if isinstance(part, _Laid) else part for ref, part in each]


def collect(_lies_near: list[Ref], members: list[Ref], *given: Any) -> Any:
    """A list of the values of these parts, one of each member. If all are values, no member need be
    named."""
    parts = list(given)
    if not members:
        return parts
    each = list(zip(members, parts, strict=True))
    whole = list({ref: None for ref, part in each if isinstance(part, _Whole)})
    if whole:
        _core.wait(whole, len(whole), None, True)  # they come together
        parts = [_core.get(ref) if isinstance(part, _Whole) else part for ref, part in each]
    if not any(isinstance(part, _Laid) for part in parts):
        return parts
    return _assembled(members, parts) or _filled(members, parts, Place.read)


def _assembled(members: Sequence[Ref], parts: Sequence[Any]) -> Any:
    """A list of them, with arrays that lie at other nodes fetched into it. None: they cannot be had
    so."""
    import numpy as np

    here = _core.this_node()
    wanted = []

    def fill(place: Place, member: Ref) -> Any:
        if place.node == here:
            return place.read(member)
        # Nobody touches its memory.
        array = np.empty(place.shape, place.dtype)
        address = array.__array_interface__["data"][0]
        wanted.append((address, array.nbytes, member, place.node, place.start))
        array.flags.writeable = False
        return array

    items = _filled(members, parts, fill)
    return _core.assemble(items, wanted) if wanted else items


def look(member: list[Ref]) -> Any:
    """How the value of a member comes to another node."""
    [ref] = member
    _core.wait([ref], 1, None, True)
    places = _core.places_of(ref)
    # What is not made of arrays is not read here.
    laid = laid_out(_core.get(ref), places) if places else None
    return _Whole() if laid is None else laid


def deal(value: Any, n: int, whose: str, member: Sequence[Ref] = ()) -> Any:
    kind = type(value).__name__
    if not isinstance(value, list | tuple):
        raise TypeError(f"{whose} is of type {kind}: a list or tuple of {n} items is needed")
    if len(value) != n:
        raise ValueError(
            f"{whose} is a {kind} of {len(value)} items: {n} are needed, one for each part"
        )
    laid = laid_out(value, _core.places_of(member[0])) if member else None
    if laid is None:
        return value[0] if n == 1 else value
    # An array that stayed is an object of its own. (A `Place` is a tuple.)
    dealt = [_Laid(item) if isinstance(item, dict | list | tuple) else item for item in laid.value]
    return dealt[0] if n == 1 else dealt


def laid_out(value: Any, places: list[tuple[int, int]] | None) -> _Laid | None:
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
        return Place(path, here, start, item.dtype, item.shape)

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
