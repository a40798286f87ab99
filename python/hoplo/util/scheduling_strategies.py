"""Where a task or actor should run: `scheduling_strategy` beside "DEFAULT" and "SPREAD"."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .placement_group import PlacementGroupSchedulingStrategy

__all__ = ["NodeAffinitySchedulingStrategy", "PlacementGroupSchedulingStrategy"]


@dataclass(frozen=True, slots=True)
class NodeAffinitySchedulingStrategy:
    """Runs the task or actor on the node of that id. No effect on one machine.

    With `soft=True` it may run on another node if that one is gone.

    >>> here = hoplo.get_runtime_context().get_node_id()
    >>> strategy = NodeAffinitySchedulingStrategy(here, soft=True)
    >>> hoplo.get(square.options(scheduling_strategy=strategy).remote(3))
    9
    """

    node_id: str
    soft: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.node_id, str) or not self.node_id:
            raise TypeError(f"node_id must be the id of a node, not {self.node_id!r}")

    def _fields_for_scheduler(self) -> dict[str, Any]:
        return {"kind": "NODE_AFFINITY", "node_id": self.node_id, "soft": bool(self.soft)}
