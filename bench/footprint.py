"""What a system costs before it does anything: start, processes, memory, idle CPU, disk.

Each round is a fresh Python process of each system in turn, so that all start cold.
"""

import json
import subprocess
import sys

from harness import HERE, Question, Row, at_most

ROWS = {
    "import": ("import", "s", [at_most(0.1, "s")]),
    "init": ("init", "s", [at_most(0.3, "s")]),
    "first": ("first task", "s", [at_most(0.05, "s")]),
    "shutdown": ("shutdown", "s", [at_most(0.2, "s")]),
    "processes": ("processes before the first worker", "", [at_most(2, "")]),
    "resident": ("resident memory before the first worker", "MB", [at_most(60, "MB")]),
    "proportional": ("the same, shared pages counted once", "MB", []),
    "idle": ("idle CPU", "% core", [at_most(0.5, "% core")]),
    "installed": ("installed size", "MB", [at_most(25, "MB")]),
}
ROUNDS = {"hoplo": 5, "ray": 2, "dask": 2}

question = Question("footprint", "Footprint", {})
rows = {key: Row(name, unit, {}, goals) for key, (name, unit, goals) in ROWS.items()}
for turn in range(max(ROUNDS.values())):
    for system, rounds in ROUNDS.items():
        wanted = 1 if question.options.quick else rounds
        if turn >= wanted or system in question.options.without:
            continue
        try:
            done = subprocess.run(
                [sys.executable, "life.py", system, "1" if question.options.quick else "4"],
                cwd=HERE / "players",
                capture_output=True,
                text=True,
                check=True,
                timeout=120,
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            for row in rows.values():
                row.missing[system] = f"{error}: {str(error.stderr or '').strip()[-200:]}"
            continue
        for key, value in json.loads(done.stdout.splitlines()[-1]).items():
            if value is not None:
                rows[key].values.setdefault(system, []).append(value)
for row in rows.values():
    question.add(row)
question.finish()
