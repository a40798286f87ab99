"""Where code runs: what `hoplo.get_runtime_context()` returns."""

from __future__ import annotations

import json
import os
from typing import Any

from . import _core
from . import runtime_env as _runtime_env

__all__ = ["RuntimeContext"]


class RuntimeContext:
    """Ids, names and resources of the job, node, worker, task and actor that this code runs in.

    Each method looks when it is called, so one context may be kept. Ids are hexadecimal text.
    Outside of a session all raise RuntimeError.

    >>> @hoplo.remote(name="who")
    ... def asks():
    ...     return hoplo.get_runtime_context().get_task_name()
    >>> hoplo.get(asks.remote())
    'who'
    """

    def get(self) -> dict[str, Any]:
        """Everything at once, by name."""
        return _asked()

    def get_job_id(self) -> str:
        return str(_asked()["job_id"])

    def get_node_id(self) -> str:
        return str(_asked()["node_id"])

    def get_worker_id(self) -> str:
        return str(_asked()["worker_id"])

    def get_task_id(self) -> str | None:
        """None in a driver."""
        return _text("task_id")

    def get_task_name(self) -> str | None:
        """The `name` option of the task, else its function's name; None in a driver."""
        return _text("task_name")

    def get_task_function_name(self) -> str | None:
        """None in a driver."""
        return _text("task_function_name")

    def get_actor_id(self) -> str | None:
        """None outside of an actor."""
        return _text("actor_id")

    def get_actor_name(self) -> str | None:
        """The `name` option of the actor; None without one, and outside of an actor."""
        return _text("actor_name")

    def get_attempt_number(self) -> int:
        """How often the task has run before: 0 the first time."""
        return int(_asked()["attempt"])

    def is_canceled(self) -> bool:
        """Whether somebody has called `cancel` on the task, or on the call of a plain method.

        A method that runs long may ask from time to time, and return or raise early: nothing else
        stops it. Raises RuntimeError in a driver, and in an async actor, whose calls are cancelled
        where they wait.

        >>> @hoplo.remote
        ... class Searcher:
        ...     def search(self):
        ...         while not hoplo.get_runtime_context().is_canceled():
        ...             time.sleep(0.01)
        ...         raise hoplo.exceptions.TaskCancelledError("as asked")
        >>> searcher = Searcher.remote()
        >>> ref = searcher.search.remote()
        >>> hoplo.cancel(ref)
        >>> hoplo.get(ref)
        Traceback (most recent call last):
        hoplo.exceptions.TaskCancelledError: task:... of Searcher.search was cancelled
        """
        if not _core.is_initialized():
            raise _no_session()
        return _core.is_cancelled()

    def get_assigned_resources(self) -> dict[str, float]:
        """What the task or actor holds, by name, `memory` in bytes; empty in a driver."""
        asked = _asked()
        if asked["actor_id"] or asked["worker_mode"] == "driver":
            return dict(asked["assigned_resources"])
        # A task's come with its worker's lease: the daemon of this node knows.
        workers = json.loads(_core.query("workers", "here"))
        mine = [row["resources"] for row in workers if row["pid"] == os.getpid()]
        return dict(mine[0] or {}) if mine else {}

    def get_accelerator_ids(self) -> dict[str, list[str]]:
        """The GPUs that the task or actor may use, under "GPU"."""
        return {"GPU": [str(gpu) for gpu in _core.gpu_ids()]}

    def get_placement_group_id(self) -> str | None:
        """The placement group that this code runs in; None outside of groups."""
        return _text("placement_group_id")

    @property
    def should_capture_child_tasks_in_placement_group(self) -> bool:
        """Whether what this code submits runs in the same placement group."""
        return bool(_asked()["captures"])

    def get_runtime_env_string(self) -> str:
        """The runtime environment as JSON."""
        return json.dumps(self.runtime_env, sort_keys=True, separators=(",", ":"))

    @property
    def runtime_env(self) -> dict[str, Any]:
        """The runtime environment that this code runs in."""
        return _runtime_env.read(_asked()["runtime_env"] or "{}")

    @property
    def namespace(self) -> str:
        """Where names of actors are looked up."""
        return str(_asked()["namespace"])

    @property
    def worker_mode(self) -> str:
        """Either "driver" or "worker"."""
        return str(_asked()["worker_mode"])

    @property
    def was_current_actor_reconstructed(self) -> bool:
        """Whether the actor has been restarted since it was created."""
        return bool(_asked()["reconstructed"])

    @property
    def current_actor(self) -> _core.ActorHandle:
        """A handle of the actor that this code runs in. Raises RuntimeError elsewhere."""
        return _core.current_actor()

    @property
    def gcs_address(self) -> str:
        """The path of the daemon's socket."""
        return str(_asked()["address"])


def _asked() -> dict[str, Any]:
    if not _core.is_initialized():
        raise _no_session()
    return _core.runtime_context()


def _no_session() -> RuntimeError:
    return RuntimeError("there is no runtime context before hoplo.init()")


def _text(key: str) -> str | None:
    value = _asked()[key]
    return None if value is None else str(value)
