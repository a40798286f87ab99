"""`init` as Ray's: its options and variables, those without meaning here said once, in one line."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

import hoplo
from hoplo import _api, _options
from hoplo._logging import LoggingConfig

from .job_config import JobConfig

__all__ = ["init", "shutdown"]

WITHOUT_EFFECT = (
    "cgroup_path",
    "configure_logging",
    "dashboard_host",
    "dashboard_port",
    "enable_resource_isolation",
    "include_dashboard",
    "local_mode",
    "logging_format",
    "proxy_server_url",
    "storage",
    "system_reserved_cpu",
    "system_reserved_memory",
    "_cluster_id",
    "_driver_object_store_memory",
    "_enable_object_reconstruction",
    "_metrics_export_port",
    "_node_ip_address",
    "_node_name",
    "_object_spilling_directory",
    "_plasma_directory",
    "_redis_max_memory",
    "_redis_password",
    "_redis_username",
    "_skip_env_hook",
    "_system_config",
    "_tracing_startup_hook",
    "object_spilling_directory",
)
"""Options of Ray's `init` that are taken, and change nothing."""
_UNSAID: tuple[object, ...] = (None, False, {}, "127.0.0.1", "localhost")
"""Values that ask for nothing, so nobody needs to hear of them."""

WITH_EFFECT = (
    "RAY_ADDRESS",
    "RAY_DEDUP_LOGS",
    "RAY_NAMESPACE",
    "RAY_TASK_MAX_RETRIES",
    "RAY_TMPDIR",
)
"""Environment variables of Ray's that mean something here."""

_said = False


def init(address: str | None = None, **options: Any) -> _api.Context:
    """`hoplo.init`, which takes Ray's other options as well.

    Those without a meaning here, and variables that begin with RAY_, are named once on stderr.
    `job_config` gives the namespace, the runtime environment and the logging of the job;
    `logging_config` says how records of `logging` look in all of its processes. Raises TypeError
    for an option that neither knows.

    >>> with hoplo.ray.init(num_cpus=2, include_dashboard=False) as context:
    ...     hoplo.ray.cluster_resources()["CPU"]
    2.0
    """
    take_variables()
    without = {name: options.pop(name) for name in WITHOUT_EFFECT if name in options}
    _take_job_config(options)
    logging_config = _take_logging_config(options)
    if "_memory" in options:
        options.setdefault("memory", options.pop("_memory"))
    if isinstance(options.get("logging_level"), str):
        options["logging_level"] = options["logging_level"].upper()
    if address is None:
        options.setdefault("namespace", os.environ.get("RAY_NAMESPACE") or None)
    if address is not None and str(address).startswith("ray://"):
        raise ValueError(
            f"init(address={address!r}): hoplo has no client of ray://; "
            f"init(address='HOST:PORT') joins the cluster of the head that listens there"
        )
    _options.refuse_unknown(options, (*_api._INIT_OPTIONS, *WITHOUT_EFFECT), "init")
    _say_what_has_no_effect(without)
    context = hoplo.init(address, **options)
    if logging_config is not None:
        logging_config.apply()
    return context


def shutdown(*, wait_for_processes: bool = False, _exiting_interpreter: bool = False) -> None:
    """`hoplo.shutdown`, which always waits for the processes.

    >>> hoplo.ray.shutdown()
    >>> hoplo.ray.is_initialized()
    False
    """
    hoplo.shutdown()


def take_variables() -> None:
    """What some of Ray's variables say, for hoplo, where its own variables say nothing."""
    for theirs in ("RAY_ADDRESS", "RAY_TASK_MAX_RETRIES", "RAY_TMPDIR"):
        ours = theirs.replace("RAY_", "HOPLO_")
        if os.environ.get(theirs):
            os.environ.setdefault(ours, os.environ[theirs])
    if os.environ.get("RAY_DEDUP_LOGS") == "0":
        os.environ.setdefault("HOPLO_FOLD_OUTPUT", "off")


def _take_job_config(options: dict[str, Any]) -> None:
    job = options.pop("job_config", None)
    if job is None:
        return
    if not isinstance(job, JobConfig):
        raise TypeError(f"job_config must be a JobConfig, not {type(job).__name__}")
    given: Mapping[str, Any] = {
        "runtime_env": job.runtime_env,
        "namespace": job.ray_namespace,
        "logging_config": job.py_logging_config,
    }
    for name, value in given.items():
        if value and options.get(name) is None:
            options[name] = value


def _take_logging_config(options: dict[str, Any]) -> LoggingConfig | None:
    """It goes into the job's environment, so that workers have it, too."""
    config = options.pop("logging_config", None)
    if config is None:
        return None
    if not isinstance(config, LoggingConfig):
        raise TypeError(f"logging_config must be a LoggingConfig, not {type(config).__name__}")
    env = dict(options.get("runtime_env") or {})
    env["env_vars"] = {**env.get("env_vars", {}), **config.to_variable()}
    options["runtime_env"] = env
    return config


def _say_what_has_no_effect(options: Mapping[str, Any]) -> None:
    global _said
    names = [
        f"{name}="
        for name, value in options.items()
        if value not in _UNSAID and not (name == "configure_logging" and value is True)
    ]
    names += sorted(n for n in os.environ if n.startswith("RAY_") and n not in WITH_EFFECT)
    if names and not _said:
        _said = True
        print(f"hoplo: no effect here: {', '.join(names)}", file=sys.stderr)
