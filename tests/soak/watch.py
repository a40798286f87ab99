"""Kills workers while a program runs, and looks what is left after it."""

from __future__ import annotations

import gc
import json
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hiccups import command_line, of_sessions_in

import hoplo
from hoplo import _core

LEFT_WITHIN_S = 60.0


class Killer(threading.Thread):
    """Kills a worker now and then; counts those that worked for somebody."""

    def __init__(self, seed: int, pause_s: float) -> None:
        super().__init__(name="killer")
        self.random = random.Random(seed)
        self.pause_s = pause_s
        self.killed = 0
        self.killed_at_work = 0
        self.failure: BaseException | None = None
        self.done = threading.Event()

    def run(self) -> None:
        try:
            while not self.done.wait(self.random.uniform(0, 2 * self.pause_s)):
                self.kill_one()
        except BaseException as error:
            self.failure = error

    def kill_one(self) -> None:
        rows = [row for row in listed("workers") if row["kind"] == "worker" and row["pid"]]
        if rows:
            row = self.random.choice(rows)
            try:
                os.kill(row["pid"], signal.SIGKILL)
            except ProcessLookupError:
                return
            self.killed += 1
            self.killed_at_work += row["state"] in ("leased", "blocked")

    def stop(self) -> None:
        self.done.set()
        self.join()
        if self.failure is not None:
            raise RuntimeError("the thread that kills workers failed") from self.failure


def listed(kind: str) -> list[dict[str, Any]]:
    rows = json.loads(_core.query(kind))
    if kind == "tasks":
        assert rows["more"] == 0, rows
        rows = rows["tasks"]
    assert isinstance(rows, list), rows
    return rows


def status() -> dict[str, Any]:
    answer = json.loads(_core.query("status"))
    assert isinstance(answer, dict), answer
    return answer


def until(left: Callable[[], Any], what: str, within_s: float = LEFT_WITHIN_S) -> None:
    """Waits until `left` gives nothing."""
    deadline = time.monotonic() + within_s
    while found := left():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} after {within_s:.0f} s: {str(found)[:2000]}")
        time.sleep(0.02)  # between two looks


def nothing_is_held(cpus: int) -> dict[str, Any]:
    """The session as empty as it was at its beginning; its last status."""
    gc.collect()
    until(
        lambda: [row for row in listed("objects") if row.get("state") != "handle"], "objects left"
    )
    until(lambda: [row for row in listed("actors") if row["state"] != "DEAD"], "actors left")
    until(lambda: listed("tasks"), "tasks left")
    until(lambda: hoplo.available_resources().get("CPU") != cpus and status(), "CPUs held")
    until(
        lambda: {k: v for k in ("stored", "spilled", "disk") if (v := status()["store"][k])},
        "bytes left",
    )
    last = status()
    assert last["violations"] == 0, last
    return last


def store_holds() -> dict[str, int]:
    store = status()["store"]
    return {name: store[name] for name in ("stored", "spilled", "disk") if store[name]}


def open_here() -> dict[str, Counter[str]]:
    """What this process has open, by kind, so that what leaked is named."""
    gc.collect()
    names: Counter[str] = Counter()
    for entry in os.listdir("/proc/self/fd"):
        try:
            names[os.readlink(f"/proc/self/fd/{entry}").partition(":")[0]] += 1
        except OSError:
            continue  # the one that lists the folder
    maps = Path("/proc/self/maps").read_text().splitlines()
    mapped = [line.split(maxsplit=5)[5] for line in maps if len(line.split(maxsplit=5)) > 5]
    threads: Counter[str] = Counter()
    for entry in os.listdir("/proc/self/task"):
        try:
            threads[Path(f"/proc/self/task/{entry}/comm").read_text().strip()] += 1
        except OSError:
            continue  # `join` returned, and the kernel ends the thread a moment later
    return {
        "descriptors": names,
        "maps": Counter(name for name in mapped if "memfd" in name or "hoplo" in name),
        "threads": threads,
    }


def processes(folder: str) -> dict[int, str]:
    """Processes, and their command lines, whose sessions lie in `folder`."""
    lines = {pid: command_line(pid) for pid in of_sessions_in(folder)}
    return {pid: b" ".join(line).decode(errors="replace") for pid, line in lines.items() if line}


def files(folder: str) -> list[str]:
    """But for logs."""
    found = [os.path.join(at, name) for at, _, names in os.walk(folder) for name in names]
    return [name for name in found if not name.endswith((".log", ".out", ".err"))]


def nothing_is_left(folder: str, before: dict[str, Counter[str]]) -> None:
    """After `shutdown`."""
    until(lambda: processes(folder), "processes left")
    until(lambda: files(folder), "files left")

    def differs() -> Any:
        now = open_here()
        return {kind: (before[kind], now[kind]) for kind in now if now[kind] - before[kind]}

    until(differs, "more is open than before")
