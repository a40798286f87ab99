"""Asks a question: rows of numbers, every system measured in the same run.

    Question --> for each row: open + warm-up, then round by round, each system in turn --> JSON

A *player* (`players/`) is a process that holds one system up and runs one round when told to, so
that what else the machine does hits all systems alike. What takes less than `ROUND_SECONDS_MIN` is
run several times in a round, by the same rule for all. A *row* is one measure in several columns:
hoplo, its rivals, the limits. A *goal* compares the median of hoplo's column with another's, or
with a number. One program of this folder is one question; its results go to `results/<name>.json`,
from which `report.py` writes RESULTS.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from select import select
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "players"))
from processes import family  # noqa: E402

RESULTS = HERE / "results" / ("quick" if "--quick" in sys.argv else ".")
"""A quick run's numbers mean nothing: they replace no others."""

LIMITS = (
    *("ring", "ring, one core", "2 rings", "memcpy", "memcpy, 2 threads", "fork", "local"),
    *("tcp", "tls", "optimum", "1 stream", "2 streams", "4 streams", "8 streams"),
)
"""Columns that are not rivals but what the machine can do."""

ORDER = [
    "tasks",
    "million",
    "actors",
    "objects",
    "footprint",
    "store",
    "serving",
    "simulation",
    "direct",
]
"""The questions of `make bench`."""

CONTROL = [
    "control_throughput",
    "control_cost",
    "control_flush",
    "control_failover",
    "control_commit",
]
"""Of the control store: `make bench-control`, since their rivals are the paper's figures."""

CLUSTER = ["cluster"]
"""Of several nodes: `make bench-cluster`, since it needs root."""

FAULTS = ["faults"]
"""Of nodes that die: `make bench-faults`, since it takes minutes and needs root."""

COLLECTIVES = ["collectives"]
"""Of many nodes at once: `make bench-collectives`, since it needs root."""

FIGURES = ["collectives_figures"]
"""Papers' figures of that: `make bench-collectives-figures`. No goals."""

SCALE = ["scale"]
"""Of clusters larger than we have: `make bench-scale`, since it is simulated and needs root."""

ROUND_SECONDS_MIN = 0.15
"""A system's turn in a round goes on for so long: what takes 3 ms would be a throw of dice."""

RUNS_PER_ROUND_MAX = 25

ROUND_SECONDS_MAX = 120
"""A player that takes longer is taken for stuck."""

# ------------------------------------------------------------------------------- rows and goals


@dataclass(frozen=True)
class Goal:
    """What hoplo's median is to reach: `factor` times the best of `of`, or `factor` itself."""

    text: str
    factor: float
    of: tuple[str, ...] = ()
    at_most: bool = False

    def ratio(self, medians: Mapping[str, float]) -> float | None:
        """1 or more: reached. None: nothing to compare with."""
        found = [medians[name] for name in self.of if name in medians]
        if "hoplo" not in medians or (self.of and not found):
            return None
        best = (min if self.at_most else max)(found) if found else 1.0
        wanted, got = self.factor * best, medians["hoplo"]
        return wanted / max(got, 1e-12) if self.at_most else got / wanted


def times(factor: float, *of: str) -> Goal:
    share = f"{factor:.0%} of" if factor < 1 else f"{factor:g}x"
    return Goal(f">= {share} {' or '.join(of)}", factor, of)


def fraction(divisor: float, *of: str) -> Goal:
    return Goal(f"<= 1/{divisor:g} of {' or '.join(of)}", 1 / divisor, of, at_most=True)


def at_least(value: float, unit: str) -> Goal:
    return Goal(f">= {value:,g} {unit}".replace(" /s", "/s"), value)


def at_most(value: float, unit: str) -> Goal:
    return Goal(f"<= {value:,g} {unit}", value, at_most=True)


@dataclass(frozen=True)
class Cell:
    """One column of a row: which player runs which measure, how often in a round."""

    player: str
    measure: str
    count: int


@dataclass
class Row:
    """One measure. `kind` says how seconds become the value: see `VALUES`."""

    name: str
    kind: str
    cells: dict[str, Cell]
    goals: list[Goal] = field(default_factory=list)
    size: int = 1
    """Bytes of one thing, for kind GB/s."""
    rounds: int = 7
    warm_up: bool = True
    """Without: the first round counts as well."""
    seconds_max: float = float("inf")
    """A rival that has taken so long has no more rounds, once it has three."""
    note: str = ""
    values: dict[str, list[float]] = field(default_factory=dict)
    rounds_medians: dict[str, list[float]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    """Why a column has no value."""

    @property
    def medians(self) -> dict[str, float]:
        return {name: statistics.median(values) for name, values in self.values.items() if values}


VALUES: dict[str, Callable[[Row, int, float], float]] = {
    "/s": lambda row, count, seconds: count / seconds,
    "s": lambda row, count, seconds: seconds / count,
    "ms": lambda row, count, seconds: 1e3 * seconds / count,
    "us": lambda row, count, seconds: 1e6 * seconds / count,
    "GB/s": lambda row, count, seconds: row.size * count / seconds / 1e9,
    "steps/s": lambda row, count, seconds: count / seconds,
    "states/s": lambda row, count, seconds: count / seconds,
}


def row(name: str, kind: str, measure: str, on: Mapping[str, int | Cell], **more: Any) -> Row:
    """A row whose columns are named after their players, with a count for each."""
    cells = {
        column: cell if isinstance(cell, Cell) else Cell(column, measure, cell)
        for column, cell in on.items()
    }
    return Row(name, kind, cells, **more)


# ------------------------------------------------------------------------------- players


class PlayerError(Exception):
    """The player's own words on why there is no value."""


@dataclass(frozen=True)
class Seat:
    """A player that runs elsewhere: what its command line begins with, and more variables."""

    command: Sequence[str]
    prefix: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


class Player:
    """A process of `players/`, told by a pipe what to do: one line of JSON each way."""

    def __init__(self, name: str, command: Sequence[str] | Seat) -> None:
        self.name = name
        self._log = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        seat = command if isinstance(command, Seat) else Seat(command)
        environment = os.environ | {
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONPATH": str(HERE / "players"),
            **seat.environment,
        }
        self._process = subprocess.Popen(
            [*seat.prefix, sys.executable, *seat.command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=HERE / "players",
            env=environment,
        )
        self.dead = False

    def ask(self, request: dict[str, Any], seconds_max: float = ROUND_SECONDS_MAX) -> Any:
        """Sends one request; raises PlayerError with the player's own reason, or why it died."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            ready, _, _ = select([self._process.stdout], [], [], seconds_max)
            line = self._process.stdout.readline() if ready else b""
        except BrokenPipeError:
            ready, line = [self], b""
        if not line:
            self.kill()
            why = "died" if ready else f"no answer in {seconds_max:.0f} s"
            raise PlayerError(f"{self.name}: {why}: {self._last_words()}")
        answer = json.loads(line)
        if "error" in answer:
            raise PlayerError(answer["error"])
        return answer

    def close(self) -> None:
        """Asks it to end; whatever is left of it after that is killed."""
        if not self.dead:
            try:
                self.ask({"do": "quit"}, seconds_max=30)
            except PlayerError:
                pass
            self.kill()

    def kill(self) -> None:
        self.dead = True
        rest = [*family(self._process.pid), self._process.pid]
        for pid in rest:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self._process.wait()

    def _last_words(self) -> str:
        self._log.seek(0)
        return " | ".join(self._log.read().strip().splitlines()[-3:])[-400:]


# ------------------------------------------------------------------------------- questions


class Question:
    """The rows of one program: runs them, shows them, keeps them."""

    def __init__(
        self,
        name: str,
        title: str,
        players: Mapping[str, Sequence[str] | Seat],
        more_options: Callable[[argparse.ArgumentParser], None] = lambda parser: None,
    ) -> None:
        self.name, self.title = name, title
        self._commands: dict[str, Sequence[str] | Seat] = dict(players)
        self._players: dict[str, Player] = {}
        self.rows: list[Row] = []
        self.facts: dict[str, Any] = {}
        self.options = _options(title, more_options)
        self._noise = Noise()
        print(f"\n== {title}", flush=True)

    def ask(self, rows: Sequence[Row]) -> None:
        """Measures rows one after the other, their columns in turn."""
        for asked in rows:
            if self.wants(asked):
                self.measure(asked, asked.cells)
                self.add(asked)

    def wants(self, asked: Row) -> bool:
        return self.options.only in asked.name

    def add(self, asked: Row) -> None:
        self.rows.append(asked)
        show(asked)

    def measure(self, asked: Row, cells: Mapping[str, Cell]) -> None:
        """These columns of a row; others of it may be measured elsewhere."""
        columns = {
            column: cell
            for column, cell in cells.items()
            if cell.player.partition(",")[0] not in self.options.without
        }
        for column in list(columns):
            cell = columns[column]
            try:
                self._play(cell, "open")
                if asked.warm_up:
                    self._play(cell, "run", max(1, self._count(cell) // 2))
            except PlayerError as error:
                asked.missing[column] = str(error)
                del columns[column]
        order = list(columns)
        spent = dict.fromkeys(columns, 0.0)
        rivals = set(columns) - {"hoplo", *LIMITS}
        for done in range(min(asked.rounds, 2) if self.options.quick else asked.rounds):
            for column in list(order):
                if column not in columns:
                    continue
                if done >= 3 and column in rivals and spent[column] > asked.seconds_max:
                    continue
                began = time.monotonic()
                try:
                    values = self._round(asked, columns[column])
                except PlayerError as error:
                    asked.missing[column] = str(error)
                    del columns[column]
                    continue
                spent[column] += time.monotonic() - began
                asked.values.setdefault(column, []).extend(values)
                asked.rounds_medians.setdefault(column, []).append(statistics.median(values))
            order = order[1:] + order[:1]
        for cell in columns.values():
            try:
                self._play(cell, "close")
            except PlayerError as error:
                print(f"  {cell.player}: {error}", file=sys.stderr)

    def player(self, name: str) -> Player:
        if name not in self._commands:
            raise PlayerError(f"skipped: {name} is not here")
        player = self._players.get(name)
        if player is None or player.dead:
            player = self._players[name] = Player(name, self._commands[name])
        return player

    def seat(self, name: str, seat: Seat) -> None:
        """A player that is known only now."""
        self._commands[name] = seat

    def clear_seats(self) -> None:
        """None of its players is there any more."""
        self.close_players()
        self._commands.clear()

    def close_players(self) -> None:
        for player in self._players.values():
            player.close()
        self._players.clear()

    def finish(self) -> None:
        """Ends the players, writes `results/<name>.json`."""
        self.close_players()
        RESULTS.mkdir(parents=True, exist_ok=True)
        report = {
            "question": self.name,
            "title": self.title,
            "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
            "commit": commit(),
            "quick": self.options.quick,
            "machine": machine(),
            "versions": versions(),
            "noise": self._noise.figures(),
            "facts": self.facts,
            "rows": [_as_json(asked) for asked in self.rows],
        }
        path = RESULTS / f"{self.name}.json"
        if not self.options.only:
            path.write_text(json.dumps(report, indent=1) + "\n")
            print(f"written to {path.relative_to(HERE.parent)}", flush=True)

    def _round(self, asked: Row, cell: Cell) -> list[float]:
        values: list[float] = []
        count, until = self._count(cell), time.monotonic() + ROUND_SECONDS_MIN
        while not values or (time.monotonic() < until and len(values) < RUNS_PER_ROUND_MAX):
            answer = self._play(cell, "run", count)
            value = VALUES[asked.kind](asked, answer.get("count", count), answer["seconds"])
            values.append(value)
            if self.options.quick:
                break
        return values

    def _count(self, cell: Cell) -> int:
        return max(1, cell.count // 50) if self.options.quick else cell.count

    def _play(self, cell: Cell, do: str, count: int = 0) -> Any:
        return self.player(cell.player).ask({"do": do, "measure": cell.measure, "count": count})


def show(asked: Row) -> None:
    print(f"{asked.name} [{asked.kind}]")
    for column, values in asked.values.items():
        low, high = spread(values)
        runs = f"{len(values)} runs" if len(values) > 1 else "1 run"
        print(
            f"    {column:<22}{asked.medians[column]:>14,.5g}   ({low:,.4g} .. {high:,.4g}, {runs})"
        )
    for column, why in asked.missing.items():
        print(f"    {column:<22}{'-':>14}   {why}")
    for goal in asked.goals:
        ratio = goal.ratio(asked.medians)
        if ratio is not None:
            verdict = "reached" if ratio >= 1 else "NOT"
            print(f"    goal {goal.text}: {min(ratio, 999):.2f} of it, {verdict}")
    sys.stdout.flush()


def spread(values: Sequence[float]) -> tuple[float, float]:
    """The 10th and the 90th percentile; of a few values, the lowest and the highest."""
    if len(values) < 10:
        return min(values), max(values)
    tenths = statistics.quantiles(values, n=10)
    return tenths[0], tenths[-1]


def _as_json(asked: Row) -> dict[str, Any]:
    medians = asked.medians
    return {
        "name": asked.name,
        "unit": asked.kind,
        "note": asked.note,
        "columns": {
            column: {
                "median": medians[column],
                "low": spread(values)[0],
                "high": spread(values)[1],
                "runs": len(values),
                "rounds": asked.rounds_medians.get(column, values),
            }
            for column, values in asked.values.items()
        },
        "missing": asked.missing,
        "goals": [
            {"text": goal.text, "ratio": goal.ratio(medians), "of": list(goal.of)}
            for goal in asked.goals
        ],
    }


def _options(title: str, more: Callable[[argparse.ArgumentParser], None]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--quick", action="store_true", help="tiny counts: does it work at all?")
    parser.add_argument("--only", default="", help="rows whose name contains this; writes no file")
    parser.add_argument("--without", action="append", default=[], help="leave a player out")
    more(parser)
    return parser.parse_args()


# ------------------------------------------------------------------------------- the machine


class Noise:
    """How much else the machine does: a fixed piece of work again and again, and stolen time."""

    def __init__(self) -> None:
        self._load = os.getloadavg()[0]
        self._before = _cpu_ticks()
        self._spins = _spins()
        self._wake_up_us = wake_up_us()

    def figures(self) -> dict[str, float]:
        after = _cpu_ticks()
        total = sum(after) - sum(self._before)
        spins = sorted(self._spins + _spins())
        return {
            "load before": round(self._load, 2),
            "load after": round(os.getloadavg()[0], 2),
            "wake-up before, us": round(self._wake_up_us),
            "wake-up after, us": round(wake_up_us()),
            "stolen %": round(100 * (after[7] - self._before[7]) / max(total, 1), 2),
            "fixed work, median over best": round(statistics.median(spins) / spins[0], 3),
            "fixed work, 95th percentile over best": round(
                spins[int(0.95 * len(spins))] / spins[0], 3
            ),
        }


def _cpu_ticks() -> list[int]:
    return [int(n) for n in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]


def _spins() -> list[float]:
    def spin() -> float:
        start = time.perf_counter()
        sum(range(200_000))
        return time.perf_counter() - start

    return [spin() for _ in range(60)]


def wake_up_us(rounds: int = 2000) -> float:
    """Median microseconds from a byte written on one processor to it being read on another.

    An idle virtual processor halts, and its host gives the real one to others. To bring it back
    takes 5 us on one host and 200 us on another, or on the same one another day.
    """
    here = os.sched_getaffinity(0)
    there, back = os.pipe(), os.pipe()
    child = os.fork()
    os.sched_setaffinity(0, {max(here) if child == 0 else min(here)})
    if child == 0:
        os.close(there[1])
        while byte := os.read(there[0], 1):
            os.write(back[1], byte)
        os._exit(0)
    took = []
    try:
        for _ in range(rounds):
            began = time.perf_counter()
            os.write(there[1], b"x")
            os.read(back[0], 1)
            took.append(time.perf_counter() - began)
    finally:
        os.sched_setaffinity(0, here)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        for end in (*there, *back):
            os.close(end)
    return statistics.median(took) / 2 * 1e6


def commit() -> str:
    def git(*arguments: str) -> str:
        command = ["git", "-C", str(HERE), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", "../crates", "../python")
    return git("rev-parse", "--short", "HEAD") + (" with changes" if changed else "")


def machine() -> dict[str, Any]:
    info = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":", 1)[1].strip() for line in info if line.startswith("model name")]
    return {
        "cpu": names[0] if names else platform.machine(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / (1 << 30)),
        "kernel": ".".join(platform.release().split("-")[0].split(".")[:2]),
        "virtual": any("hypervisor" in line for line in info if line.startswith("flags")),
        "python": platform.python_version(),
    }


NOT_INSTALLED = "not installed"
PACKAGES = [
    "hoplo",
    "ray",
    "dask",
    "distributed",
    "grpcio",
    "mpi4py",
    "uvicorn",
    "fastapi",
    "loky",
    "torchmonarch",
    "gymnasium",
    "numpy",
]


def versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "source tree" if name == "hoplo" else NOT_INSTALLED
    return found


def number(value: float) -> str:
    """Three digits that count: 176,000; 12.3; 0.00123."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        digits = len(str(int(abs(value)))) - 3
        return f"{round(value, -digits):,.0f}"
    return f"{value:.3g}"
