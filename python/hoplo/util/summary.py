"""What a job did so far, in numbers."""

from __future__ import annotations

import json
from dataclasses import dataclass

from hoplo import _core

__all__ = ["JobSummary", "job_summary"]


@dataclass(frozen=True, slots=True)
class JobSummary:
    """Counts since the job began, of all its processes.

    >>> JobSummary(tasks_finished=1, method_calls_finished=0, objects_stored=0, bytes_stored=0)
    JobSummary(tasks_finished=1, method_calls_finished=0, objects_stored=0, bytes_stored=0)
    """

    tasks_finished: int
    method_calls_finished: int
    objects_stored: int
    """Objects written to the object store. Small ones travel inside messages and do not count."""
    bytes_stored: int


def job_summary() -> JobSummary:
    """What this job did so far. Raises RuntimeError when there is no session.

    >>> hoplo.get([square.remote(i) for i in range(3)])
    [0, 1, 4]
    >>> job_summary().tasks_finished >= 3
    True
    """
    if not _core.is_initialized():
        raise RuntimeError("hoplo.util.job_summary() needs a session: call hoplo.init() first")
    counts = json.loads(_core.query("summary"))
    return JobSummary(**{name: int(counts[name]) for name in JobSummary.__dataclass_fields__})
