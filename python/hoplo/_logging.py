"""How log records of a job look, in its driver and in all of its workers.

The driver's `init` puts the configuration into the job's environment, under `VARIABLE`; a worker
that finds it there does the same as the driver did. Each record says which job, node, process, task
and actor it is of.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar, Self, TextIO

from . import _core

__all__ = ["LoggingConfig"]

VARIABLE = "HOPLO_LOGGING"

_IDS = (
    "job_id",
    "node_id",
    "worker_id",
    "task_id",
    "task_name",
    "task_func_name",
    "actor_id",
    "actor_name",
)
_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) - {"msg", "args", "message"}


@dataclass(frozen=True)
class LoggingConfig:
    """What the standard `logging` of a job prints, on stderr.

    `encoding` is "TEXT", or "JSON" for an object a line. `log_level` is that of the root logger,
    such as "INFO". `additional_log_standard_attrs` names attributes of `logging.LogRecord` that are
    shown as well. Raises ValueError for a wrong one.

    >>> LoggingConfig(encoding="JSON", log_level="WARNING").log_level
    'WARNING'
    """

    encoding: str = "TEXT"
    log_level: str = "INFO"
    additional_log_standard_attrs: Sequence[str] = field(default_factory=list)

    ENCODINGS: ClassVar[tuple[str, ...]] = ("TEXT", "JSON")

    def __post_init__(self) -> None:
        if self.encoding not in self.ENCODINGS:
            raise ValueError(f"encoding must be 'TEXT' or 'JSON', not {self.encoding!r}")
        if self.log_level not in logging.getLevelNamesMapping():
            names = ", ".join(logging.getLevelNamesMapping())
            raise ValueError(f"log_level must be one of {names}, not {self.log_level!r}")
        for name in self.additional_log_standard_attrs:
            if name not in _ATTRIBUTES:
                raise ValueError(
                    f"additional_log_standard_attrs: a log record has no attribute {name!r}"
                )

    def to_dict(self) -> dict[str, Any]:
        """Its fields by name."""
        return asdict(self)

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Self:
        """One with these fields; what else is in `given` is left aside.

        >>> LoggingConfig.from_dict(LoggingConfig("JSON").to_dict()).encoding
        'JSON'
        """
        return cls(**{one.name: given[one.name] for one in fields(cls) if one.name in given})

    def to_variable(self) -> dict[str, str]:
        """The environment variable by which workers learn of it."""
        more = list(self.additional_log_standard_attrs)
        return {VARIABLE: json.dumps([self.encoding, self.log_level, more])}

    def apply(self) -> None:
        """From now on the root logger of this process is like that."""
        root = logging.getLogger()
        root.setLevel(self.log_level)
        for handler in [h for h in root.handlers if isinstance(h, _Handler)]:
            root.removeHandler(handler)
        root.addHandler(_Handler(self))


def configure_worker() -> None:
    """Does what the job's driver asked for."""
    encoding, level, more = json.loads(os.environ[VARIABLE])
    LoggingConfig(encoding, level, more).apply()


class _Handler(logging.StreamHandler[TextIO]):
    """Writes to what is stderr at that time."""

    def __init__(self, config: LoggingConfig) -> None:
        logging.Handler.__init__(self)
        self.setFormatter(_Json(config) if config.encoding == "JSON" else _Text(config))

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        return sys.stderr


class _Formatter(logging.Formatter):
    def __init__(self, config: LoggingConfig) -> None:
        super().__init__()
        self._more = tuple(config.additional_log_standard_attrs)

    def context(self, record: logging.LogRecord) -> dict[str, Any]:
        """The ids, and what was asked for beside them."""
        found: dict[str, Any] = {}
        if _core.is_initialized():
            here = _core.runtime_context()
            here["task_func_name"] = here["task_function_name"]
            found = {name: here[name] for name in _IDS if here[name] is not None}
        found.update({name: getattr(record, name, None) for name in self._more})
        return found


class _Text(_Formatter):
    def format(self, record: logging.LogRecord) -> str:
        text = (
            f"{self.formatTime(record)} {record.levelname} {record.filename}:{record.lineno} -- "
            f"{record.getMessage()}"
        )
        text += "".join(f" {name}={value}" for name, value in self.context(record).items())
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


class _Json(_Formatter):
    """An object a line. By how it begins, the driver knows one of a worker (`is_log_record`)."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "asctime": self.formatTime(record),
            "levelname": record.levelname,
            "message": record.getMessage(),
            "filename": record.filename,
            "lineno": record.lineno,
            "process": record.process,
            **self.context(record),
            "timestamp_ns": int(record.created * 1e9),
        }
        if record.exc_info:
            fields["exc_text"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str)
