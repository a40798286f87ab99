"""Where a task or actor should run: `scheduling_strategy` beside "DEFAULT" and "SPREAD"."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .. import _options, _strategy
from .._strategy import Where
from .placement_group import PlacementGroupSchedulingStrategy

__all__ = [
    "DoesNotExist",
    "Exists",
    "In",
    "NodeAffinitySchedulingStrategy",
    "NodeLabelSchedulingStrategy",
    "NotIn",
    "PlacementGroupSchedulingStrategy",
]


@dataclass(frozen=True, slots=True)
class NodeAffinitySchedulingStrategy:
    """Runs the task or actor on the node of that id, an id that `hoplo.nodes()` shows.

    Without that node it waits. With `soft=True` it runs on another one if that node is gone, or
    could never run it.

    >>> here = hoplo.get_runtime_context().get_node_id()
    >>> strategy = NodeAffinitySchedulingStrategy(here, soft=True)
    >>> hoplo.get(square.options(scheduling_strategy=strategy).remote(3))
    9
    """

    node_id: str
    soft: bool = False

    def __post_init__(self) -> None:
        _strategy.node_id("node_id", self.node_id)
        _options.boolean("soft", self.soft)

    def _where(self) -> Where:
        return Where("NODE", _strategy.node_id("node_id", self.node_id), self.soft)


class _Condition:
    """On one label of a node."""

    _kind = ""

    def __init__(self, *values: str) -> None:
        name = type(self).__name__
        if not values:
            raise ValueError(f"{name} needs at least one value")
        if len(values) > _strategy.TERMS_MAX:
            raise ValueError(f"{name} takes {_strategy.TERMS_MAX} values or less")
        self.values = tuple(sorted({_options.text(f"{name}: a value", v) for v in values}))

    def _term(self) -> tuple[str, tuple[str, ...]]:
        return self._kind, self.values

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Condition) and self._term() == other._term()

    def __hash__(self) -> int:
        return hash(self._term())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.values))})"


class In(_Condition):
    """The label has one of these values."""

    _kind = "in"


class NotIn(_Condition):
    """The label has none of these values, or the node does not have it at all."""

    _kind = "not in"


class Exists(_Condition):
    """The node has the label."""

    _kind = "exists"

    def __init__(self) -> None:
        self.values = ()


class DoesNotExist(_Condition):
    """The node does not have the label."""

    _kind = "absent"

    def __init__(self) -> None:
        self.values = ()


@dataclass(frozen=True, slots=True)
class NodeLabelSchedulingStrategy:
    """Runs the task or actor on a node that has such labels.

    A node must meet all of `hard`. One that meets `soft` as well is preferred.

    >>> strategy = NodeLabelSchedulingStrategy({"zone": NotIn("b")}, soft={"disk": In("ssd")})
    >>> hoplo.get(square.options(scheduling_strategy=strategy).remote(3))
    9
    """

    hard: Mapping[str, _Condition] = field(default_factory=dict)
    soft: Mapping[str, _Condition] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.hard and not self.soft:
            raise ValueError("give hard or soft conditions, such as hard={'zone': In('a')}")
        self._where()

    def _where(self) -> Where:
        hard = _strategy.terms("hard", self.hard, _Condition)
        soft = _strategy.terms("soft", self.soft, _Condition)
        # Who meets no more than `hard` will do as well.
        both = (tuple(sorted({*hard, *soft})), hard) if soft else (hard,)
        return Where(selectors=both)
