"""Checks of single values that users give: each takes the value's name for its message.

Each gives the value as the rest of hoplo wants it, or raises TypeError or ValueError with a remedy.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

Check = Callable[[str, Any], Any]

NAME_CHARACTERS_MAX: Final = 512
QUANTITY_MAX: Final = 1e14
"""Of any resource, in units, of memory in bytes: `AMOUNT_MAX` of the Rust side."""
INTEGER_MAX: Final = (1 << 63) - 1
RESOURCES_MAX: Final = 256


def quantity(name: str, value: object) -> float:
    """A resource quantity: a finite number, zero or more, as a multiple of 0.0001."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        try:
            value = float(value.__float__())  # type: ignore[attr-defined]
        except Exception:
            raise TypeError(f"{name} must be a number, not {type(value).__name__}") from None
    number = to_float(value)
    if number != number or number == math.inf == value:
        raise ValueError(f"{name} must be a finite number, not {value}")
    if number < 0:
        raise ValueError(f"{name} must be 0 or more, not {shown(value)}")
    if number > QUANTITY_MAX:
        raise ValueError(f"{name} must be {QUANTITY_MAX:g} or less, not {shown(value)}")
    if 0 < number < 0.0001:
        raise ValueError(f"{name} must be 0 or at least 0.0001, not {value}")
    return round(number, 4)


def to_float(value: int | float) -> float:
    """The number as a float; an integer that is beyond all of them is infinite."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def shown(value: object) -> str:
    """A value for a message: a number may have more digits than Python writes, or than fit."""
    try:
        text = repr(value)
    except ValueError:
        return "a number of thousands of digits"
    return text if len(text) <= 80 else f"{text[:60]}... ({len(text)} characters)"


def gpus(name: str, value: object) -> float:
    """A quantity of GPUs: a fraction of one, or whole ones."""
    number = quantity(name, value)
    if number > 1 and not number.is_integer():
        raise ValueError(
            f"{name} above 1 must be a whole number, not {value}: several GPUs go whole"
        )
    return number


def whole_gpus(name: str, value: object) -> float:
    """How many GPUs a node has."""
    number = quantity(name, value)
    if not number.is_integer():
        raise ValueError(f"{name} of a node must be a whole number, not {value}")
    return number


def memory_bytes(name: str, value: object) -> float:
    """A number of bytes."""
    number = quantity(name, value)
    if 0 < number < 1:
        raise ValueError(f"{name} is in bytes; {value} is less than one")
    return float(int(number))


def custom_resources(name: str, value: object) -> dict[str, float]:
    """Named quantities beside CPU, GPU and memory."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must be a dict such as {{'disk': 1}}, not {type(value).__name__}")
    if len(value) > RESOURCES_MAX:
        raise ValueError(f"{name} must have {RESOURCES_MAX} names or less, not {len(value)}")
    parsed: dict[str, float] = {}
    for key, number in value.items():
        if not isinstance(key, str) or not key:
            raise TypeError(f"{name} must have names as its keys, not {key!r}")
        text(f"{name}: the name of a resource", key)
        if is_of_group(key):
            raise ValueError(
                f"{name} must not hold {key!r}, which is of a placement group: give a "
                f"PlacementGroupSchedulingStrategy"
            )
        if key in _OWN_OPTION:
            raise ValueError(f"{name} must not hold {key!r}: use {_OWN_OPTION[key]}= for it")
        parsed[key] = quantity(f"{name}[{key!r}]", number)
    return parsed


def is_of_group(resource: str) -> bool:
    """Whether a node has that resource of a placement group."""
    return _OF_GROUP.search(resource) is not None


_OF_GROUP: Final = re.compile(r"._group_([0-9]+_)?[0-9a-f]{16}\Z")

_OWN_OPTION: Final = {
    "CPU": "num_cpus",
    "GPU": "num_gpus",
    "memory": "memory",
    "object_store_memory": "init(object_store_memory)",
}


def whole(name: str, value: object, otherwise: str = "") -> int:
    """Whatever numbers an item of a list, such as numpy.int64(2), but no bool."""
    try:
        if isinstance(value, bool):
            raise TypeError
        return int(value.__index__())  # type: ignore[attr-defined]
    except (TypeError, AttributeError):
        raise TypeError(f"{name} must be a whole number{otherwise}, not {shown(value)}") from None


def integer(
    minimum: int, remedy: str = "", maximum: int = INTEGER_MAX, not_zero: bool = False
) -> Check:
    """A check for whole numbers."""

    def check(name: str, value: object) -> int:
        number = whole(name, value)
        if number < minimum or (not_zero and number == 0):
            limit = f"{minimum} or more" + (", and not 0" if not_zero else "")
        elif number > maximum:
            limit = f"{maximum} or less"
        else:
            return number
        raise ValueError(f"{name} must be {limit}, not {shown(number)}{remedy and f' ({remedy})'}")

    return check


copies = integer(
    1, maximum=8, remedy="so many nodes are to have what is put, the one that it is put on included"
)
"""Of `hoplo.put`."""


def boolean(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, not {value!r}")
    return value


def text(name: str, value: object) -> str:
    return sendable(name, path(name, value))


def path(name: str, value: object) -> str:
    """Text that the system takes: a path may be any bytes but 0."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {type(value).__name__}")
    if not value:
        raise ValueError(f"{name} must not be empty; leave it out instead")
    if len(value) > NAME_CHARACTERS_MAX:
        raise ValueError(f"{name} must be {NAME_CHARACTERS_MAX} characters or less")
    return value


def sendable(name: str, value: str) -> str:
    """The text, if it has UTF-8: what was decoded from other bytes has none."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{name} must be text that UTF-8 can hold, and has {value[error.start]!r} at place "
            f"{error.start}"
        ) from None
    return value


def string_map(name: str, value: object) -> dict[str, str]:
    if not isinstance(value, Mapping) or not all(
        isinstance(k, str) and isinstance(v, str) for k, v in value.items()
    ):
        raise TypeError(f"{name} must be a dict of str to str, not {shown(value)}")
    return {sendable(f"{name}: a key", k): sendable(f"{name}[{k!r}]", v) for k, v in value.items()}
