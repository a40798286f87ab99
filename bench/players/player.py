"""The player's side: measures by name, one round at a time, told by a pipe.

A measure is a generator function: what comes before its one `yield` sets up, what it yields is
`run(count)`, what comes after clears up. `run` is timed as a whole, unless it returns the seconds
itself (a float), or a dict with `seconds` and whatever else the question wants to know.

    {"do": "open", "measure": "task.one"}                   -> {}
    {"do": "run", "measure": "task.one", "count": 500}      -> {"seconds": 0.012}
    {"do": "close", "measure": "task.one"}                  -> {}
    {"do": "quit"}                                          -> {}
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Generator
from typing import Any

Run = Callable[[int], Any]
Measure = Callable[[], Generator[Run, None, None]]


class Skipped(Exception):
    """This system, or this version of it, has nothing to measure here."""


class Player:
    def __init__(self) -> None:
        self._measures: dict[str, Measure] = {}
        self._opened: dict[str, tuple[Generator[Run, None, None], Run]] = {}

    def measure(self, name: str) -> Callable[[Measure], Measure]:
        def add(measure: Measure) -> Measure:
            self._measures[name] = measure
            return measure

        return add

    def serve(self, quit_by: Callable[[], object] = lambda: None) -> None:
        """Answers until told to quit. What libraries print goes to standard error."""
        answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        for line in sys.stdin:
            request = json.loads(line)
            try:
                if request["do"] == "quit":
                    quit_by()
                    answer: dict[str, Any] = {}
                else:
                    answer = self._answer(request)
            except Skipped as skipped:
                answer = {"error": f"skipped: {skipped}"}
            except Exception as error:
                import traceback

                traceback.print_exc()
                answer = {"error": f"{type(error).__name__}: {error}"[:300]}
            print(json.dumps(answer), file=answers, flush=True)
            if request["do"] == "quit":
                break

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        name = request["measure"]
        if request["do"] == "open":
            if name not in self._measures:
                raise Skipped("not measured with this system")
            measure = self._measures[name]()
            self._opened[name] = measure, next(measure)
            return {}
        if request["do"] == "close":
            next(self._opened.pop(name)[0], None)
            return {}
        run = self._opened[name][1]
        start = time.perf_counter()
        answer = run(request["count"])
        seconds = time.perf_counter() - start
        if isinstance(answer, dict):
            return {"seconds": seconds} | answer
        return {"seconds": answer if isinstance(answer, float) else seconds}
