"""Where a task or actor may run: the options that say so, parsed.

What the Rust side reads is a `Where`: a strategy, and selectors in order of preference.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from . import _options

Term = tuple[str, str, tuple[str, ...]]
"""A label's name, "in", "not in", "exists" or "absent", and the values that it speaks of."""
Selector = tuple[Term, ...]

TERMS_MAX: Final = 64
"""Conditions of one selector, and values of one condition."""
FALLBACKS_MAX: Final = 16

REMEDY: Final = "'DEFAULT', 'SPREAD' or a strategy of hoplo.util.scheduling_strategies"


class Where(NamedTuple):
    """Final."""

    kind: str = "DEFAULT"
    """Or "SPREAD", or "NODE"."""
    node: str = ""
    """Of "NODE": its id, six hexadecimal digits."""
    soft: bool = False
    """Of "NODE": elsewhere if that node is gone."""
    selectors: tuple[Selector, ...] = ()
    """In order of preference; none: any node will do."""


def where(value: Mapping[str, Any]) -> Where:
    """What the parsed options say together."""
    strategy: Where = value["scheduling_strategy"] or Where()
    selector: Selector = value["label_selector"] or ()
    fallbacks: tuple[Selector, ...] = value["fallback_strategy"] or ()
    if fallbacks and not selector:
        raise ValueError(
            "fallback_strategy needs a label_selector: it says where to run when no node meets that"
        )
    if strategy.selectors and selector:
        raise ValueError(
            "label_selector and a NodeLabelSchedulingStrategy say the same thing: leave one out"
        )
    if selector:
        return strategy._replace(selectors=(selector, *fallbacks))
    return strategy


def strategy(name: str, value: object) -> Where:
    """Checks `scheduling_strategy`."""
    if isinstance(value, str):
        if value not in ("DEFAULT", "SPREAD"):
            raise ValueError(f"{name} must be {REMEDY}, not {value!r}")
        return Where(kind=value)
    parsed = getattr(value, "_where", None)
    if parsed is None or isinstance(value, type):
        raise TypeError(f"{name} must be {REMEDY}, not {type(value).__name__}")
    result = parsed()
    assert isinstance(result, Where)
    return result


def node_id(name: str, value: object) -> str:
    """The id of a node, as `hoplo.nodes()` shows it."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be the id of a node, not {_options.shown(value)}")
    if not re.fullmatch("[0-9a-fA-F]{6}", value) or int(value, 16) == 0:
        raise ValueError(
            f"{name} must be the id of a node, six hexadecimal digits as hoplo.nodes() shows "
            f"them, not {_options.shown(value)}"
        )
    return value.lower()


def selector(name: str, value: object) -> Selector:
    """Checks `label_selector`: {"zone": "a"}, "!a", "in(a,b)" or "!in(a,b)"."""
    conditions = _options.string_map(name, value)
    if len(conditions) > TERMS_MAX:
        raise ValueError(f"{name} must have {TERMS_MAX} labels or less, not {len(conditions)}")
    return tuple(sorted(_term(name, key, text) for key, text in conditions.items()))


def fallbacks(name: str, value: object) -> tuple[Selector, ...]:
    """Checks `fallback_strategy`: [{"label_selector": {...}}, ...]."""
    if not isinstance(value, list | tuple):
        raise TypeError(
            f"{name} must be a list such as [{{'label_selector': {{'zone': 'a'}}}}], "
            f"not {type(value).__name__}"
        )
    if len(value) > FALLBACKS_MAX:
        raise ValueError(f"{name} must have {FALLBACKS_MAX} entries or less, not {len(value)}")
    return tuple(_fallback(f"{name}[{at}]", entry) for at, entry in enumerate(value))


def terms(name: str, conditions: object, condition: type) -> Selector:
    """Checks `hard` or `soft` of a NodeLabelSchedulingStrategy."""
    if not isinstance(conditions, Mapping):
        raise TypeError(
            f"{name} must be a dict such as {{'zone': In('a', 'b')}}, "
            f"not {type(conditions).__name__}"
        )
    if len(conditions) > TERMS_MAX:
        raise ValueError(f"{name} must have {TERMS_MAX} labels or less, not {len(conditions)}")
    parsed = []
    for key, value in conditions.items():
        key = label_key(name, key)
        if not isinstance(value, condition):
            raise TypeError(
                f"{name}[{key!r}] must be In(...), NotIn(...), Exists() or DoesNotExist(), "
                f"not {_options.shown(value)}"
            )
        parsed.append((key, *value._term()))  # type: ignore[attr-defined]
    return tuple(sorted(parsed))


def label_key(name: str, key: object) -> str:
    if not isinstance(key, str):
        raise TypeError(f"{name} must have names of labels as its keys, not {_options.shown(key)}")
    if not key.strip():
        raise ValueError(f"{name} must not have an empty label as its key")
    return _options.text(f"{name}: a key", key)


def _fallback(name: str, entry: object) -> Selector:
    if not isinstance(entry, Mapping):
        raise TypeError(
            f"{name} must be a dict such as {{'label_selector': {{'zone': 'a'}}}}, "
            f"not {_options.shown(entry)}"
        )
    if set(entry) != {"label_selector"}:
        raise ValueError(
            f"{name} must have the one key 'label_selector', not {sorted(map(str, entry))}"
        )
    return selector(f"{name}['label_selector']", entry["label_selector"])


def _term(name: str, key: str, text: str) -> Term:
    key = label_key(name, key)
    negated = text.startswith("!")
    rest = text[1:] if negated else text
    several = re.fullmatch(r"in\((.*)\)", rest, re.DOTALL)
    values = [part.strip() for part in several[1].split(",")] if several else [rest]
    # No label has brackets in it: who wrote one meant a list, and mistyped it.
    if not all(values) or any(set(value) & set("()!") for value in values):
        raise ValueError(
            f"{name}[{key!r}] must be 'a', '!a', 'in(a,b)' or '!in(a,b)', its values not empty and "
            f"without ( ) !, not {_options.shown(text)}"
        )
    if len(values) > TERMS_MAX:
        raise ValueError(f"{name}[{key!r}] must have {TERMS_MAX} values or less")
    return key, "not in" if negated else "in", tuple(sorted(set(values)))
