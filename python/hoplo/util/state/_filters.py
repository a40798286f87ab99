"""`filters=[("state", "=", "RUNNING")]`: which rows a listing has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from .errors import StateError
from .rows import StateSchema

Filter = tuple[str, str, Any]
Row = TypeVar("Row", bound=StateSchema)

PREDICATES = ("=", "!=")


def parsed(filters: object, kind: type[StateSchema], what: str) -> list[Filter]:
    """Checked filters. Raises StateError, which names what there is."""
    if filters is None:
        return []
    if isinstance(filters, str) or not isinstance(filters, Iterable):
        raise StateError(
            f"filters must be a list such as [('state', '=', 'RUNNING')], not {filters!r}"
        )
    return [_one(one, kind, what) for one in filters]


def _one(one: object, kind: type[StateSchema], what: str) -> Filter:
    if isinstance(one, str) or not isinstance(one, Sequence) or len(one) != 3:
        raise StateError(f"a filter is (key, '=' or '!=', value), not {one!r}")
    key, predicate, value = one
    if predicate not in PREDICATES:
        raise StateError(f"{predicate!r} compares nothing: a filter has {' or '.join(PREDICATES)}")
    known = kind.list_columns()
    if key not in known:
        import difflib

        near = difflib.get_close_matches(str(key), known, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise StateError(f"{what} have no {key!r}: {hint}they have {', '.join(known)}")
    return key, predicate, value


def kept(rows: Iterable[Row], filters: list[Filter]) -> list[Row]:
    """The rows that all filters let through."""
    checks: list[Callable[[Row], bool]] = [_check(one) for one in filters]
    return [row for row in rows if all(check(row) for check in checks)]


def excludes(filters: list[Filter], key: str, value: str) -> bool:
    """No row with this value passes."""
    of_key = [one for one in filters if one[0] == key]
    return any((_comparable(given) == value.lower()) != (how == "=") for _, how, given in of_key)


def _check(one: Filter) -> Callable[[StateSchema], bool]:
    key, predicate, value = one
    wanted = _comparable(value)
    equal = predicate == "="
    return lambda row: (_comparable(row[key]) == wanted) is equal


def plain(value: object) -> object:
    """Text in place of an id that has a type of its own."""
    if isinstance(value, str):
        return value[:]
    is_id = not isinstance(value, float | bytes) and callable(getattr(value, "hex", None))
    return value.hex() if is_id else value  # type: ignore[attr-defined]


def _comparable(value: object) -> str:
    """As people write it: `True`, `true` and True are the same, and so are `3` and 3."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(plain(value)).lower()
