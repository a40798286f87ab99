"""Placement groups among the options of tasks and actors: in which one, in which bundle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from . import _options

Group = tuple[str, int, bool | None] | Literal[False] | None
"""Id, index of the bundle (-1: any), whether children are captured (None: as the caller's are).
False: in none. None: in that of the caller, if that captures."""

_OLD_STYLE: Final = (
    "placement_group",
    "placement_group_bundle_index",
    "placement_group_capture_child_tasks",
)
_STRATEGY: Final = "scheduling_strategy"


def others(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options that say nothing of placement groups."""
    rest = {name: value for name, value in given.items() if name not in _OLD_STYLE}
    if _is_strategy(rest.get(_STRATEGY)):
        del rest[_STRATEGY]
    return rest


def group(given: Mapping[str, Any], resources: Mapping[str, float]) -> Group:
    """What the options say of placement groups. Raises where no bundle could ever do."""
    strategy: Any = given.get(_STRATEGY)
    old = [name for name in _OLD_STYLE if name in given]
    if _is_strategy(strategy):
        if old:
            raise ValueError(f"{old[0]} and a PlacementGroupSchedulingStrategy: leave one out")
        group, index, capture = strategy._in_group()
    elif "placement_group" in given and given["placement_group"] != "default":
        if strategy is not None:
            raise ValueError("placement_group and scheduling_strategy: leave one out")
        group = given["placement_group"]
        index = _index(given.get("placement_group_bundle_index"))
        capture = _capture(given.get("placement_group_capture_child_tasks"))
    elif strategy is not None:
        return False
    elif len(old) > ("placement_group" in given):
        raise ValueError(f"{old[-1]} needs placement_group=")
    else:
        return None
    if group is None or group.is_empty:
        return False
    _fit(group, index, resources)
    return group.id.hex(), index, capture


def _is_strategy(value: object) -> bool:
    return hasattr(value, "_in_group")


def _index(value: object) -> int:
    check = _options.integer(-1, "-1 means any bundle")
    return -1 if value is None else int(check("placement_group_bundle_index", value))


def _capture(value: object) -> bool | None:
    if value is None:
        return None
    return _options.boolean("placement_group_capture_child_tasks", value)


def _fit(group: Any, index: int, resources: Mapping[str, float]) -> None:
    """Raises ValueError if the bundle, or each that may be taken, holds too little."""
    specs: Sequence[Mapping[str, float]] = group.bundle_specs
    if index >= len(specs):
        raise ValueError(
            f"placement_group_bundle_index is {index}, and the group has the bundles 0 to "
            f"{len(specs) - 1}; -1 means any"
        )
    may = specs if index < 0 else [specs[index]]
    if any(all(spec.get(name, 0) >= resources[name] for name in resources) for spec in may):
        return
    which = f"bundle {index}" if index >= 0 else "any bundle"
    raise ValueError(
        f"{dict(resources)} does not fit into {which} of the placement group: "
        f"{[dict(spec) for spec in may]}; ask for less, or give the group larger bundles"
    )
