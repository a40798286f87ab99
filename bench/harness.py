"""A small harness: warm-up, rounds, median and spread, a table and JSON with machine and commit."""

import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


@dataclass
class Row:
    """One measure: a value per round, in `unit`."""

    name: str
    unit: str
    rounds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)


def rate(count: int, run: Callable[[], object]) -> float:
    """`count` things a call of `run`: things per second."""
    start = time.perf_counter()
    run()
    return count / (time.perf_counter() - start)


def measure(name: str, unit: str, once: Callable[[], float], *, rounds: int = 5) -> Row:
    """One uncounted round, then `rounds` counted ones; prints the row as it comes."""
    once()
    row = Row(name, unit, [once() for _ in range(rounds)])
    show(row)
    return row


def show(row: Row) -> None:
    low, high = min(row.rounds), max(row.rounds)
    print(f"{row.name:<52}{row.median:>14,.4g} {row.unit:<8} ({low:,.4g} .. {high:,.4g})")


def save(question: str, rows: list[Row]) -> Path:
    """Writes `results/<question>.json`: rows, machine, commit."""
    RESULTS.mkdir(exist_ok=True)
    head = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    report = {
        "question": question,
        "commit": head.stdout.strip(),
        "machine": {
            "cpus": os.cpu_count(),
            "kernel": platform.release(),
            "python": platform.python_version(),
        },
        "rows": [asdict(row) | {"median": row.median} for row in rows],
    }
    path = RESULTS / f"{question}.json"
    path.write_text(json.dumps(report, indent=1) + "\n")
    return path
