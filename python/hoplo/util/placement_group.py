"""Placement groups: resources of one or several nodes that are reserved together.

>>> group = placement_group([{"CPU": 1}, {"CPU": 1}])
>>> group.wait(10)
True
>>> from hoplo.util.scheduling_strategies import PlacementGroupSchedulingStrategy
>>> in_group = PlacementGroupSchedulingStrategy(group)
>>> hoplo.get(square.options(scheduling_strategy=in_group).remote(3))
9
>>> remove_placement_group(group)
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .. import _core, _options, _placement
from .._ids import BaseID
from .._labels import NODE_ID_LABEL, NODE_ID_LABEL_OF_RAY
from ..exceptions import HoploError

__all__ = [
    "PlacementGroup",
    "PlacementGroupID",
    "PlacementGroupSchedulingStrategy",
    "get_current_placement_group",
    "get_placement_group",
    "placement_group",
    "placement_group_table",
    "remove_placement_group",
]

STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")
VALID_PLACEMENT_GROUP_STRATEGIES = frozenset(STRATEGIES)
_NODE_LABELS = (NODE_ID_LABEL, NODE_ID_LABEL_OF_RAY)
_HEAD_LOOKED_FOR_EACH = 0.2


class PlacementGroupID(BaseID):
    """The id of a placement group: 8 bytes, made of them or of hexadecimal text.

    Raises ValueError when there are more or fewer.

    >>> PlacementGroupID.nil().is_nil(), PlacementGroupID.from_hex("00" * 8).binary()
    (True, b'\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00')
    """

    __slots__ = ()
    _size = 8


class PlacementGroup:
    """Stands for a placement group. Made by `placement_group`; may be sent to tasks and actors.

    >>> group = placement_group([{"CPU": 1}], strategy="STRICT_PACK")
    >>> group.bundle_specs
    [{'CPU': 1.0}]
    >>> remove_placement_group(group)
    """

    __slots__ = ("_specs", "id")

    id: PlacementGroupID

    def __init__(
        self,
        id: PlacementGroupID,
        bundle_cache: Sequence[Mapping[str, float]] | None = None,
    ) -> None:
        self.id = id
        self._specs = None if bundle_cache is None else [dict(spec) for spec in bundle_cache]

    @staticmethod
    def empty() -> PlacementGroup:
        """That of no group: what is "in" it runs anywhere."""
        return PlacementGroup(PlacementGroupID.nil(), [])

    @property
    def is_empty(self) -> bool:
        return self.id.is_nil()

    def ready(self) -> _core.ObjectRef[PlacementGroup]:
        """A ref that is ready when all bundles are there; its value is the group.

        No worker runs for it. It fails with `TaskPlacementGroupRemoved` if the group is removed.
        """
        if self.is_empty:
            return _core.put(self)
        for value in (self, PlacementGroup(self.id)):  # without its bundles it is small
            ref = _core.group_ready(self.id.hex(), value)
            if ref is not None:
                return ref
        raise AssertionError("an id is no large value")

    def wait(self, timeout_seconds: float = 30) -> bool:
        """Waits until all bundles are there. False if they are not within that time, or the group
        is removed. -1 waits for as long as it takes."""
        timeout = None if timeout_seconds < 0 else float(timeout_seconds)
        return _core.wait_group(self.id.hex(), timeout) == "CREATED"

    @property
    def bundle_specs(self) -> list[dict[str, float]]:
        """The resources of each bundle."""
        if self._specs is None:
            self._specs = list(_row_of(self.id)["bundles"])
        return [dict(spec) for spec in self._specs]

    @property
    def bundle_count(self) -> int:
        return len(self.bundle_specs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlacementGroup) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"PlacementGroup({'empty' if self.is_empty else self.id.hex()})"

    def __reduce__(self) -> tuple[Any, ...]:
        return PlacementGroup, (self.id, self._specs)


@dataclass(frozen=True, slots=True)
class PlacementGroupSchedulingStrategy:
    """Runs the task or actor in a bundle of the group; `None`: in no group, whatever the caller's.

    `placement_group_bundle_index` of -1 is any bundle that has room. With
    `placement_group_capture_child_tasks` what the task or actor itself submits runs in the group as
    well; None does as the caller does.
    """

    placement_group: PlacementGroup | None
    placement_group_bundle_index: int = -1
    placement_group_capture_child_tasks: bool | None = None

    def __post_init__(self) -> None:
        if self.placement_group is not None and not isinstance(
            self.placement_group, PlacementGroup
        ):
            raise TypeError(
                f"placement_group must be a PlacementGroup, not {self.placement_group!r}: make one "
                f"by hoplo.util.placement_group.placement_group"
            )
        _placement._index(self.placement_group_bundle_index)
        _placement._capture(self.placement_group_capture_child_tasks)

    def _in_group(self) -> tuple[PlacementGroup | None, int, bool | None]:
        return (
            self.placement_group,
            self.placement_group_bundle_index,
            self.placement_group_capture_child_tasks,
        )


def placement_group(
    bundles: Sequence[Mapping[str, float]],
    strategy: str | None = None,
    name: str = "",
    lifetime: str | None = None,
    _soft_target_node_id: str | None = None,
    bundle_label_selector: Sequence[Mapping[str, str]] | None = None,
    topology_strategy: Mapping[str, str] | None = None,
    *,
    _max_cpu_fraction_per_node: float | None = None,
) -> PlacementGroup:
    """Reserves all `bundles` together. `ready` and `wait` say when they are there.

    Each bundle is a dict of resources, all on one node. `strategy` says on which: "PACK", as when
    there is none, on few nodes, "SPREAD" on many, "STRICT_PACK" on one or nowhere, "STRICT_SPREAD"
    each on its own or nowhere. `topology_strategy` is another way to say so, of nodes alone:
    {"hoplo.io/node-id": "SPREAD"}. `bundle_label_selector` has labels for each bundle that its node
    must have. The group ends with the job, unless `lifetime="detached"`, or by
    `remove_placement_group`.

    The cluster's head makes it. As long as there is none this waits, and says so on stderr.

    Raises TypeError or ValueError for wrong arguments, and HoploError if it is detached and the
    control store does not take its row: then there is no such group.

    >>> group = placement_group([{"CPU": 1}, {"CPU": 1}], strategy="PACK", name="pair")
    >>> hoplo.get(group.ready(), timeout=10) == group
    True
    >>> remove_placement_group(group)
    """
    for ignored, value in (
        ("_max_cpu_fraction_per_node", _max_cpu_fraction_per_node),
        ("_soft_target_node_id", _soft_target_node_id),
    ):
        if value is not None:
            _say(f"placement_group: {ignored} is ignored")
    strategy = _strategy(strategy, topology_strategy)
    if strategy not in STRATEGIES:
        raise ValueError(f"strategy must be one of {', '.join(STRATEGIES)}, not {strategy!r}")
    if lifetime not in (None, "detached"):
        raise ValueError(f"lifetime must be None or 'detached', not {lifetime!r}")
    name = name or ""
    if name:
        _options.text("name", name)
    specs = _bundles(bundles)
    labels = _labels(bundle_label_selector, len(specs))
    group, never = _core.create_group(
        name, lifetime == "detached", strategy, list(zip(specs, labels, strict=True))
    )
    if never:
        _say(
            f"placement group {name or group} can never be placed as it is: {never}; it stays "
            f"pending"
        )
    return PlacementGroup(PlacementGroupID(group), specs)


def remove_placement_group(placement_group: PlacementGroup) -> None:
    """Gives its resources back, and ends the tasks and actors that run in it.

    >>> group = placement_group([{"CPU": 1}])
    >>> remove_placement_group(group)
    >>> placement_group_table(group)["state"]
    'REMOVED'
    """
    if not isinstance(placement_group, PlacementGroup):
        raise TypeError(f"expected a PlacementGroup, not {type(placement_group).__name__}")
    if not placement_group.is_empty:
        _core.remove_group(placement_group.id.hex())


def get_placement_group(placement_group_name: str) -> PlacementGroup:
    """The group of that name in the namespace of this job.

    Raises ValueError if there is none, and HoploError if the cluster's head, which knows, has not
    answered within 15 s.

    >>> group = placement_group([{"CPU": 1}], name="for later")
    >>> get_placement_group("for later") == group
    True
    >>> remove_placement_group(group)
    """
    if not placement_group_name:
        raise ValueError("give the name of a placement group")
    namespace = _core.runtime_context()["namespace"]
    for row in _rows():
        named = row["name"] == placement_group_name and row["namespace"] == namespace
        if named and row["state"] != "REMOVED":
            return PlacementGroup(PlacementGroupID(row["placement_group_id"]), row["bundles"])
    raise ValueError(
        f"there is no placement group {placement_group_name!r} in the namespace {namespace!r}"
    )


def get_current_placement_group() -> PlacementGroup | None:
    """The group that this code runs in; None in a driver, and outside of groups.

    >>> get_current_placement_group() is None
    True
    """
    group = _core.runtime_context()["placement_group_id"]
    return None if group is None else PlacementGroup(PlacementGroupID(group))


def _strategy(strategy: str | None, by_label: Mapping[str, str] | None) -> str:
    """`topology_strategy` is a strategy for each label; hoplo knows that of nodes."""
    if by_label is None:
        return "PACK" if strategy is None else strategy
    if strategy is not None:
        raise ValueError("give a strategy or a topology_strategy, not both")
    others = [label for label in by_label if label not in _NODE_LABELS]
    if others:
        raise ValueError(
            f"topology_strategy: hoplo places by node, not by {others[0]!r}; give the nodes such "
            f"a label, and the bundles a bundle_label_selector"
        )
    return next(iter(by_label.values()), "PACK")


def placement_group_table(placement_group: PlacementGroup | None = None) -> dict[str, Any]:
    """What is known of the group; without one, of each group by its id.

    Raises ValueError if the group was removed long ago, and HoploError if the cluster's head, which
    knows, has not answered within 15 s.

    >>> group = placement_group([{"CPU": 1}, {"CPU": 0.5}])
    >>> group.wait(10)
    True
    >>> table = placement_group_table(group)
    >>> table["state"], table["bundles"]
    ('CREATED', {0: {'CPU': 1.0}, 1: {'CPU': 0.5}})
    >>> remove_placement_group(group)
    """
    if placement_group is not None:
        return _table(_row_of(placement_group.id))
    return {row["placement_group_id"]: _table(row) for row in _rows()}


def _table(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "placement_group_id": row["placement_group_id"],
        "name": row["name"],
        "namespace": row["namespace"],
        "bundles": dict(enumerate(row["bundles"])),
        "bundles_to_node_id": {index: node or "" for index, node in enumerate(row["nodes"])},
        "strategy": row["strategy"],
        "state": row["state"],
        "is_detached": row["detached"],
        "reason": row["reason"],
        "stats": {},
    }


def _rows() -> list[dict[str, Any]]:
    """All that there are, as the head says: without its word nobody knows that one is not there."""
    until = time.monotonic() + _core.NAME_PATIENCE
    while True:
        missing: list[str] = []
        rows = list(json.loads(_core.query("placement_groups", None, missing)))
        if not missing:
            return rows
        if time.monotonic() >= until:
            raise HoploError(
                f"which placement groups there are is not known now: {'; '.join(missing)}. Try "
                f"again when the head answers; see `hoplo status`"
            )
        time.sleep(_HEAD_LOOKED_FOR_EACH)


def _row_of(group: PlacementGroupID) -> dict[str, Any]:
    for row in _rows():
        if row["placement_group_id"] == group.hex():
            return row
    raise ValueError(f"placement group {group.hex()!r} was removed long ago, or was never here")


def _bundles(bundles: object) -> list[dict[str, float]]:
    if not isinstance(bundles, Sequence) or isinstance(bundles, str | bytes):
        raise TypeError(f"bundles must be a list of dicts, not {type(bundles).__name__}")
    if not bundles:
        raise ValueError("bundles must not be empty: give [{'CPU': 1}, ...]")
    return [_bundle(index, bundle) for index, bundle in enumerate(bundles)]


def _bundle(index: int, bundle: object) -> dict[str, float]:
    what = f"bundles[{index}]"
    if not isinstance(bundle, Mapping):
        raise TypeError(f"{what} must be a dict such as {{'CPU': 1}}, not {type(bundle).__name__}")
    checks: dict[str, _options.Check] = {"GPU": _options.gpus, "memory": _options.memory_bytes}
    spec: dict[str, float] = {}
    for name, amount in bundle.items():
        if not isinstance(name, str) or not name:
            raise TypeError(f"{what} must have names of resources as its keys, not {name!r}")
        _options.text(f"{what}: the name of a resource", name)
        if name in ("bundle", "object_store_memory") or _options.is_of_group(name):
            raise ValueError(f"{what}: {name!r} cannot be reserved")
        number = checks.get(name, _options.quantity)(f"{what}[{name!r}]", amount)
        if number > 0:
            spec[name] = number
    if not spec:
        raise ValueError(f"{what} needs nothing: give it an amount, such as {{'CPU': 1}}")
    return spec


def _labels(selector: object, count: int) -> list[dict[str, str]]:
    if selector is None:
        return [{} for _ in range(count)]
    if not isinstance(selector, Sequence) or isinstance(selector, str | bytes):
        raise TypeError(f"bundle_label_selector must be a list of dicts, not {selector!r}")
    if len(selector) != count:
        raise ValueError(
            f"bundle_label_selector must have one dict for each of the {count} bundles, not "
            f"{len(selector)}"
        )
    return [
        _options.string_map(f"bundle_label_selector[{index}]", labels)
        for index, labels in enumerate(selector)
    ]


def _say(line: str) -> None:
    print(f"hoplo: {line}", file=sys.stderr, flush=True)
