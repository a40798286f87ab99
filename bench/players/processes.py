"""Processes as the kernel counts them: who descends from whom, memory, CPU time."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def family(pid: int) -> list[int]:
    """Every process that descends from `pid`."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            fields = _stat(int(entry))
            if fields:
                children.setdefault(int(fields[1]), []).append(int(entry))
    found, todo = [], [pid]
    while todo:
        more = children.get(todo.pop(), [])
        found += more
        todo += more
    return found


def memory_mb(pid: int, key: str) -> float:
    """`key`: "Rss:" or "Pss:"; 0 for a process that is gone."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith(key)) / 1024


def ticks(pids: Iterable[int]) -> int:
    """CPU time of processes, in the kernel's clock ticks."""
    return sum(int(fields[11]) + int(fields[12]) for fields in map(_stat, pids) if fields)


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return []
