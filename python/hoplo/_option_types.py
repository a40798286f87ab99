"""The options of tasks and actors for type checkers: names and types of what `_options` checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict


class Common(TypedDict, total=False):
    """Of both. None is what leaving it out is."""

    num_cpus: float | None
    num_gpus: float | None
    memory: float | None
    resources: Mapping[str, float] | None
    accelerator_type: str | None
    label_selector: Mapping[str, Any] | None
    fallback_strategy: Sequence[Mapping[str, Any]] | None
    name: str | None
    runtime_env: Mapping[str, Any] | None
    scheduling_strategy: Any
    placement_group: Any
    placement_group_bundle_index: int | None
    placement_group_capture_child_tasks: bool | None
    enable_task_events: bool | None
    _metadata: Mapping[str, Any] | None
    _labels: Mapping[str, str] | None


class ForTasks(Common, total=False):
    """But for `num_returns`: it changes what a call gives."""

    max_retries: int | None
    retry_exceptions: bool | Sequence[type[BaseException]] | None
    max_calls: int | None
    _generator_backpressure_num_objects: int | None
    _near_first: bool | None


class ForActors(Common, total=False):
    """Of classes."""

    max_restarts: int | None
    checkpoint_every: int | None
    checkpoint_interval_s: float | None
    max_task_retries: int | None
    max_concurrency: int | None
    concurrency_groups: Mapping[str, int] | None
    max_pending_calls: int | None
    namespace: str | None
    lifetime: str | None
    get_if_exists: bool | None
    allow_out_of_order_execution: bool | None


class ForMethods(TypedDict, total=False):
    """But for `num_returns`."""

    concurrency_group: str | None
    max_task_retries: int | None
    retry_exceptions: bool | Sequence[type[BaseException]] | None
    enable_task_events: bool | None
    name: str | None
    _generator_backpressure_num_objects: int | None


class ForBoth(ForTasks, ForActors, total=False):
    """Before it is known what is decorated."""
