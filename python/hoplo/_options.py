"""What can be asked of tasks, actors, methods and `init`: names, checks and defaults.

Values are parsed here, once: the named tuples hold final values that the Rust side reads at
construction, and `given` keeps what the user wrote, for `.options()` to change a part of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from . import _placement, _strategy
from . import runtime_env as _runtime_env
from ._checks import (
    Check,
    boolean,
    custom_resources,
    gpus,
    integer,
    is_of_group,
    memory_bytes,
    path,
    quantity,
    sendable,
    shown,
    string_map,
    text,
    to_float,
    whole,
    whole_gpus,
)

__all__ = [
    "Check",
    "boolean",
    "custom_resources",
    "gpus",
    "integer",
    "is_of_group",
    "memory_bytes",
    "path",
    "quantity",
    "sendable",
    "shown",
    "string_map",
    "text",
    "to_float",
    "whole",
    "whole_gpus",
]
"""What others ask this module for, which is in `_checks`."""

STREAMING: Final = -1
"""`num_returns` of a generator whose values become objects one by one, as they are made."""

NUM_RETURNS_MAX: Final = 65_535
ASYNC_MAX_CONCURRENCY: Final = 1000
CONCURRENCY_MAX: Final = 10_000

CHECKPOINT_EVERY: Final = 100
"""Calls after which an actor with `checkpoint` and `restore` makes a checkpoint."""
CHECKPOINT_INTERVAL_S: Final = 10.0
"""Seconds after which it does, if there were calls."""

_UNSET: Final = None


class TaskOptions(NamedTuple):
    """Options of a remote function, final."""

    resources: Mapping[str, float]
    """What one running task holds: "CPU", "GPU", "memory" (bytes) and custom names; no zeros."""
    num_returns: int
    """Refs that `.remote()` gives; `STREAMING` for a generator."""
    max_retries: int
    """Runs after the first one that a crash may cost; -1: any number."""
    retry_exceptions: bool | tuple[type[BaseException], ...]
    """Whether, or for which types, an exception of the user's code is a reason to run again."""
    max_calls: int
    """Tasks of this function that one worker runs before it ends; 0: any number."""
    name: str
    """What lists and logs call the task; empty: the function's name."""
    runtime_env: str | None
    """Canonical JSON, see `hoplo.runtime_env`; None: that of the caller."""
    where: _strategy.Where
    """On which nodes it may run."""
    accelerator_type: str | None
    backpressure: int
    """Values of a generator that may wait unread before it is paused; -1: any number."""
    enable_task_events: bool
    near_first: bool
    """Of our own tasks: it belongs where the first ref inside its arguments lies, or its first
    argument."""
    group: _placement.Group
    """In which placement group."""
    given: Mapping[str, Any]
    """The options as the user wrote them, decorator and `.options()` together."""


class ActorOptions(NamedTuple):
    """Options of an actor class, final."""

    resources: Mapping[str, float]
    """What the actor holds while it lives; no zeros."""
    placement_resources: Mapping[str, float]
    """What must be free where it is created: `resources`, and one CPU when it asked for none of
    them but memory."""
    max_restarts: int
    """-1: any number."""
    checkpoints: tuple[int, int] | None
    """Of an actor that restarts from checkpoints: after so many calls, and milliseconds, it makes
    one. `hoplo.actor` fills it in, which knows the class."""
    checkpoint_every: int | None
    checkpoint_interval_s: float | None
    max_task_retries: int
    """Of its method calls, when the actor crashes under them; -1: any number."""
    max_concurrency: int
    """Calls that run at once, outside of the concurrency groups; 0: the kind's own default, which
    is 1, and 1000 for a class with `async def` methods."""
    concurrency_groups: Mapping[str, int]
    """Group name to calls of it that run at once."""
    allow_out_of_order_execution: bool | None
    """Later calls go before one that waits for its arguments. None: where several calls run at
    once; `hoplo.actor` fills it in, which knows the class."""
    max_pending_calls: int
    """Unfinished calls that one process may have at the actor; -1: any number."""
    name: str | None
    namespace: str | None
    """None: that of the caller's job."""
    detached: bool
    """Lives on when its creator's job ends."""
    get_if_exists: bool
    runtime_env: str | None
    """Canonical JSON, see `hoplo.runtime_env`; None: that of the caller."""
    where: _strategy.Where
    """On which nodes it may run."""
    accelerator_type: str | None
    enable_task_events: bool
    group: _placement.Group
    """In which placement group."""
    given: Mapping[str, Any]
    """The options as the user wrote them, decorator and `.options()` together."""


class MethodOptions(NamedTuple):
    """Options of one method, or of one call of it; None: as the actor says."""

    num_returns: int | None = None
    concurrency_group: str | None = None
    max_task_retries: int | None = None
    retry_exceptions: bool | tuple[type[BaseException], ...] | None = None
    enable_task_events: bool | None = None
    name: str | None = None
    backpressure: int | None = None


def task_options(given: Mapping[str, Any], *, is_generator: bool = False) -> TaskOptions:
    """Parses options of a remote function. Raises TypeError or ValueError with the remedy."""
    value = _checked(_placement.others(given), _TASK, "a task")
    resources = _resources(value, default_cpus=1.0)
    max_calls = value["max_calls"]
    if max_calls is None:
        # Libraries keep GPU memory for as long as their process lives: each task gets a fresh one.
        max_calls = 1 if value["num_gpus"] else 0
    num_returns = value["num_returns"]
    if num_returns is None:
        num_returns = STREAMING if is_generator else 1
    return TaskOptions(
        resources=resources,
        num_returns=num_returns,
        max_retries=_retries_of_tasks() if value["max_retries"] is None else value["max_retries"],
        retry_exceptions=value["retry_exceptions"] or False,
        max_calls=max_calls,
        name=value["name"] or "",
        runtime_env=value["runtime_env"],
        where=_strategy.where(value),
        accelerator_type=value["accelerator_type"],
        backpressure=_or(value["_generator_backpressure_num_objects"], -1),
        enable_task_events=_or(value["enable_task_events"], True),
        near_first=_or(value["_near_first"], False),
        group=_placement.group(given, resources),
        given=dict(given),
    )


def actor_options(given: Mapping[str, Any]) -> ActorOptions:
    """Parses options of an actor class. Raises TypeError or ValueError with the remedy."""
    value = _checked(_placement.others(given), _ACTOR, "an actor")
    if value["get_if_exists"] and value["name"] is None:
        raise ValueError("get_if_exists=True needs a name: write name='...' beside it")
    # An actor that asked for nothing is placed like a task, and holds nothing while it lives. How
    # much memory it may use says nothing about CPUs.
    asked = any(value[name] is not None for name in ("num_cpus", "num_gpus", "resources"))
    resources = _resources(value, default_cpus=1.0 if asked else 0.0)
    placement_resources = resources if asked else {**resources, "CPU": 1.0}
    return ActorOptions(
        resources=resources,
        placement_resources=placement_resources,
        max_restarts=value["max_restarts"] or 0,
        checkpoints=None,
        checkpoint_every=value["checkpoint_every"],
        checkpoint_interval_s=value["checkpoint_interval_s"],
        max_task_retries=value["max_task_retries"] or 0,
        max_concurrency=value["max_concurrency"] or 0,
        concurrency_groups=value["concurrency_groups"] or {},
        allow_out_of_order_execution=value["allow_out_of_order_execution"],
        max_pending_calls=_or(value["max_pending_calls"], -1),
        name=value["name"],
        namespace=value["namespace"],
        detached=value["lifetime"] == "detached",
        get_if_exists=value["get_if_exists"] or False,
        runtime_env=value["runtime_env"],
        where=_strategy.where(value),
        accelerator_type=value["accelerator_type"],
        enable_task_events=_or(value["enable_task_events"], True),
        group=_placement.group(given, placement_resources),
        given=dict(given),
    )


def method_options(given: Mapping[str, Any]) -> MethodOptions:
    """Parses options of `@hoplo.method` and of a method's `.options()`."""
    value = _checked(given, _METHOD, "a method")
    return MethodOptions(
        # The actor makes one list of the refs of all its values (`_dynamic`).
        num_returns=1 if given.get("num_returns") == "dynamic" else value["num_returns"],
        concurrency_group=value["concurrency_group"],
        max_task_retries=value["max_task_retries"],
        retry_exceptions=value["retry_exceptions"],
        enable_task_events=value["enable_task_events"],
        name=value["name"],
        backpressure=value["_generator_backpressure_num_objects"],
    )


def refuse_unknown(given: Iterable[str], known: Iterable[str], what: str) -> None:
    """Raises TypeError for the first name that is not known, naming the nearest that is."""
    known = tuple(known)
    for name in given:
        if name not in known:
            import difflib

            near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            remedy = (
                f"did you mean {near[0]!r}?"
                if near
                else f"the options are {', '.join(k for k in known if not k.startswith('_'))}"
            )
            raise TypeError(f"{what} has no option {name!r}; {remedy}")


# ------------------------------------------------------------------------------------ checks


def _checked(given: Mapping[str, Any], known: Mapping[str, Check], what: str) -> dict[str, Any]:
    """A value for every known option: parsed where it was given, else None."""
    refuse_unknown(given, known, what)
    parsed: dict[str, Any] = dict.fromkeys(known, _UNSET)
    for name, value in given.items():
        if value is not None:
            parsed[name] = known[name](name, value)
    return parsed


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value


def _retries_of_tasks() -> int:
    """What HOPLO_TASK_MAX_RETRIES says; else 3."""
    text = os.environ.get("HOPLO_TASK_MAX_RETRIES") or "3"
    try:
        retries = int(text)
    except ValueError:
        retries = -2
    if retries < -1:
        raise ValueError(
            f"the environment variable HOPLO_TASK_MAX_RETRIES is {text!r}: set it to a whole "
            f"number from -1 on"
        )
    return retries


def _num_returns(name: str, value: object) -> int:
    if isinstance(value, str):
        if value in ("streaming", "dynamic"):
            return STREAMING
        raise ValueError(f"{name} must be a whole number or 'streaming', not {value!r}")
    count = integer(0, maximum=NUM_RETURNS_MAX, remedy="use 'streaming' for many results")
    return int(count(name, value))


def _retry_exceptions(name: str, value: object) -> bool | tuple[type[BaseException], ...]:
    if isinstance(value, bool):
        return value
    if isinstance(value, type):
        value = [value]
    if not isinstance(value, list | tuple):
        raise TypeError(f"{name} must be True, False or a list of exception types, not {value!r}")
    for kind in value:
        if not isinstance(kind, type) or not issubclass(kind, BaseException):
            raise TypeError(f"{name} must hold exception types only, not {kind!r}")
    return tuple(value) if value else False


def _lifetime(name: str, value: object) -> str:
    if value not in ("detached", "non_detached"):
        raise ValueError(f"{name} must be None, 'detached' or 'non_detached', not {value!r}")
    return str(value)


def _concurrency_groups(name: str, value: object) -> dict[str, int]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must be a dict such as {{'io': 4}}, not {type(value).__name__}")
    at_least_one = integer(1, maximum=CONCURRENCY_MAX)
    return {
        text(f"{name}: a group's name", group): at_least_one(f"{name}[{group!r}]", limit)
        for group, limit in value.items()
    }


def _env(name: str, value: object) -> str | None:
    return _runtime_env.normalized(value, name)


def _metadata(name: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must be a dict, not {type(value).__name__}")
    return value


_COMMON: Final[Mapping[str, Check]] = {
    "num_cpus": quantity,
    "num_gpus": gpus,
    "memory": memory_bytes,
    "resources": custom_resources,
    "accelerator_type": text,
    "label_selector": _strategy.selector,
    "fallback_strategy": _strategy.fallbacks,
    "name": text,
    "runtime_env": _env,
    "scheduling_strategy": _strategy.strategy,
    "enable_task_events": boolean,
    "_metadata": _metadata,
    "_labels": string_map,
}
_RETRIES = "-1 means any number"
_TASK: Final[Mapping[str, Check]] = {
    **_COMMON,
    "num_returns": _num_returns,
    "max_retries": integer(-1, _RETRIES),
    "retry_exceptions": _retry_exceptions,
    "max_calls": integer(0, "0 means any number"),
    "_near_first": boolean,
    "_generator_backpressure_num_objects": integer(-1, _RETRIES, not_zero=True),
}
_ACTOR: Final[Mapping[str, Check]] = {
    **_COMMON,
    "max_restarts": integer(-1, _RETRIES),
    "checkpoint_every": integer(0, "0 means never: it restarts without its state"),
    "checkpoint_interval_s": quantity,
    "max_task_retries": integer(-1, _RETRIES),
    "max_concurrency": integer(1, maximum=CONCURRENCY_MAX),
    "concurrency_groups": _concurrency_groups,
    "max_pending_calls": integer(-1, _RETRIES, not_zero=True),
    "namespace": text,
    "lifetime": _lifetime,
    "get_if_exists": boolean,
    "allow_out_of_order_execution": boolean,
}
_METHOD: Final[Mapping[str, Check]] = {
    "num_returns": _num_returns,
    "concurrency_group": text,
    "max_task_retries": integer(-1, _RETRIES),
    "retry_exceptions": _retry_exceptions,
    "enable_task_events": boolean,
    "name": text,
    "_generator_backpressure_num_objects": integer(-1, _RETRIES, not_zero=True),
}


def _resources(value: Mapping[str, Any], default_cpus: float) -> dict[str, float]:
    """Every resource asked for, in one map without zeros."""
    merged = {
        "CPU": _or(value["num_cpus"], default_cpus),
        "GPU": _or(value["num_gpus"], 0.0),
        "memory": _or(value["memory"], 0.0),
        **(value["resources"] or {}),
    }
    if value["accelerator_type"] is not None:
        # Nodes offer one unit of each type they have: a sliver of it pins the task to them.
        merged[f"accelerator_type:{value['accelerator_type']}"] = 0.001
    return {name: amount for name, amount in merged.items() if amount > 0}
