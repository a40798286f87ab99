"""What hoplo costs before it does anything: time to start, processes, memory, idle CPU.

Each round is a fresh Python process, so that imports and the daemon start cold.
"""

import json
import subprocess
import sys
from pathlib import Path

import harness

ROUND = """
import json, os, time
t0 = time.perf_counter()
import hoplo
t1 = time.perf_counter()
hoplo.init(num_cpus=2)
t2 = time.perf_counter()
me = os.getpid()

def family():
    # Processes whose ancestry leads here: the daemon, the zygote, workers.
    parent = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = open(f"/proc/{entry}/stat").read().rsplit(")", 1)[1].split()
            except OSError:
                continue
            parent[int(entry)] = int(stat[1])
    found, grew = {me}, True
    while grew:
        more = {pid for pid, up in parent.items() if up in found} - found
        grew = bool(more)
        found |= more
    return found - {me}

def kib(pid, key):
    for line in open(f"/proc/{pid}/smaps_rollup"):
        if line.startswith(key):
            return int(line.split()[1])
    return 0

def ticks(pids):
    total = 0
    for pid in pids:
        stat = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
        total += int(stat[11]) + int(stat[12])
    return total

deadline = time.monotonic() + 5
while len(family()) < 2 and time.monotonic() < deadline:
    time.sleep(0.01)
time.sleep(1.0)  # the zygote finishes its imports
quiet = family()
before, at = ticks(quiet | {me}), time.monotonic()
time.sleep(5.0)
idle = (ticks(quiet | {me}) - before) / os.sysconf("SC_CLK_TCK") / (time.monotonic() - at)
rss = sum(kib(pid, "Rss:") for pid in quiet) / 1024
pss = sum(kib(pid, "Pss:") for pid in quiet) / 1024

@hoplo.remote
def f():
    return 1

t3 = time.perf_counter()
assert hoplo.get(f.remote()) == 1
t4 = time.perf_counter()
hoplo.shutdown()
t5 = time.perf_counter()
print(json.dumps({"import": t1 - t0, "init": t2 - t1, "first task": t4 - t3, "shutdown": t5 - t4,
                  "processes": len(quiet), "resident": rss, "proportional": pss,
                  "idle CPU": 100 * idle}))
"""

UNITS = {
    "import": "s",
    "init": "s",
    "first task": "s",
    "shutdown": "s",
    "processes": "",
    "resident": "MB",
    "proportional": "MB",
    "idle CPU": "% core",
}


def main() -> None:
    rows = {name: harness.Row(name, unit) for name, unit in UNITS.items()}
    for _ in range(5):
        done = subprocess.run(
            [sys.executable, "-c", ROUND], capture_output=True, text=True, check=True
        )
        for name, value in json.loads(done.stdout).items():
            rows[name].rounds.append(value)
    for row in rows.values():
        harness.show(row)
    print(f"written to {harness.save('footprint', list(rows.values())).relative_to(Path.cwd())}")


if __name__ == "__main__":
    main()
