"""Where code runs, with what `ray.get_runtime_context()` has beside hoplo's own."""

from __future__ import annotations

import os
from typing import Any

from hoplo import _core
from hoplo._api import initialize_once
from hoplo.runtime_context import RuntimeContext as _RuntimeContext

from ._absent import absent
from ._ids import ActorID, JobID, NodeID, TaskID
from ._nodes import nodes

__all__ = ["RuntimeContext", "get_runtime_context"]


class RuntimeContext(_RuntimeContext):
    """`hoplo.runtime_context.RuntimeContext`, with ids as types and Ray's older properties.

    >>> context = hoplo.ray.get_runtime_context()
    >>> context.node_id.hex() == context.get_node_id()
    True
    """

    def get(self) -> dict[str, Any]:
        """Everything at once, by name. What this code has not, such as an actor, is left out."""
        typed = {"job_id": JobID, "node_id": NodeID, "task_id": TaskID, "actor_id": ActorID}
        known = {name: value for name, value in super().get().items() if value is not None}
        return {name: typed[name](v) if name in typed else v for name, v in known.items()}

    @property
    def job_id(self) -> JobID:
        return JobID(self.get_job_id())

    @property
    def node_id(self) -> NodeID:
        return NodeID(self.get_node_id())

    @property
    def task_id(self) -> TaskID | None:
        """None in a driver."""
        text = self.get_task_id()
        return None if text is None else TaskID(text)

    @property
    def actor_id(self) -> ActorID | None:
        """None outside of an actor."""
        text = self.get_actor_id()
        return None if text is None else ActorID(text)

    @property
    def current_placement_group_id(self) -> str | None:
        return self.get_placement_group_id()

    def get_node_labels(self) -> dict[str, str]:
        """The labels of this node; `ray.io/node-id` is its id."""
        here = self.get_node_id()
        mine = [node["Labels"] for node in nodes() if node["NodeID"] == here]
        return dict(mine[0]) if mine else {}

    def get_session_name(self) -> str:
        """The name of the session's folder."""
        return os.path.basename(str(super().get()["session_dir"]))

    def get_temp_dir(self) -> str:
        """The folder in which the session's folder is."""
        return os.path.dirname(str(super().get()["session_dir"]))

    def get_resource_ids(self) -> dict[str, list[str]]:
        """The same as `get_accelerator_ids`."""
        return self.get_accelerator_ids()


def get_runtime_context() -> RuntimeContext:
    """Where this code runs. Begins a session if there is none.

    >>> hoplo.ray.get_runtime_context().worker_mode
    'driver'
    """
    if not _core.is_initialized():
        initialize_once()
    return RuntimeContext()


__getattr__ = absent(__name__, __all__)
__path__: list[str] = []
