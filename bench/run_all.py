"""Asks every question, one after the other, as many times as told, then writes the pages.

`--runs 3` makes three whole runs: `results/runs.json` keeps how much of each goal each of them
reached, the other files hold the last. `--control` asks those of the control store instead
(`results/runs_control.json`), `--cluster` those of several nodes (`results/runs_cluster.json`),
`--faults` those of nodes that die (`results/runs_faults.json`), `--collectives` those of
collectives (`results/runs_collectives.json`), `--scale` those of very many nodes
(`results/runs_scale.json`).
What else is given goes to the programs.
"""

import argparse
import json
import subprocess
import sys
import time

from goals import goals_of
from harness import (
    CLUSTER,
    COLLECTIVES,
    CONTROL,
    FAULTS,
    HERE,
    NOT_INSTALLED,
    ORDER,
    RESULTS,
    SCALE,
    versions,
)
from report import (
    CLUSTER_RUNS,
    COLLECTIVES_RUNS,
    CONTROL_RUNS,
    FAULTS_RUNS,
    RUNS,
    SCALE_RUNS,
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--control", action="store_true")
    which.add_argument("--cluster", action="store_true")
    which.add_argument("--faults", action="store_true")
    which.add_argument("--collectives", action="store_true")
    which.add_argument("--scale", action="store_true")
    options, rest = parser.parse_known_args()
    names, kept = ORDER, RUNS
    if options.control:
        names, kept = CONTROL, CONTROL_RUNS
    elif options.cluster:
        names, kept = CLUSTER, CLUSTER_RUNS
    elif options.faults:
        names, kept = FAULTS, FAULTS_RUNS
    elif options.collectives:
        names, kept = COLLECTIVES, COLLECTIVES_RUNS
    elif options.scale:
        names, kept = SCALE, SCALE_RUNS
    files = [RESULTS / f"{name}.json" for name in names]
    if lacking := [name for name, version in versions().items() if version == NOT_INSTALLED]:
        print(
            f"without {', '.join(lacking)}: no figures of theirs; `make bench-rivals` installs them"
        )
    runs, failed = [], []
    for number in range(1, options.runs + 1):
        start = time.monotonic()
        failed += [f"{name} (run {number})" for name in names if not ask(name, rest)]
        reports = [json.loads(path.read_text()) for path in files if path.exists()]
        runs.append(
            {
                "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
                "seconds": round(time.monotonic() - start),
                "goals": [goal for report in reports for goal in goals_of(report)],
            }
        )
        kept.write_text(json.dumps(runs, indent=1) + "\n")
        # After each run: what was measured is not lost with a later one.
        subprocess.run([sys.executable, "report.py", *rest], cwd=HERE, check=True)
    if failed:
        sys.exit(f"these programs failed: {', '.join(failed)}")


def ask(name: str, options: list[str]) -> bool:
    start = time.monotonic()
    # What it does not measure is not there, rather than of an earlier run.
    if not any(option.startswith("--only") for option in options):
        (RESULTS / f"{name}.json").unlink(missing_ok=True)
    program = subprocess.Popen([sys.executable, f"{name}.py", *options], cwd=HERE)
    try:
        program.wait()
    except KeyboardInterrupt:
        # It was interrupted, too, and takes away what it started; `run` would kill it meanwhile.
        program.wait()
        raise
    print(f"{name}: {time.monotonic() - start:.0f} s", flush=True)
    return program.returncode == 0


if __name__ == "__main__":
    main()
