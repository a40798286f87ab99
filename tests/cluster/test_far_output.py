"""What far workers print, on its way to their driver."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from machines import until

RATE = 8e6
LINES = 200_000
"""Of 500 random bytes: more than a minute and a half of that link."""

SOURCE = """
from hoplo.util.scheduling_strategies import NodeAffinitySchedulingStrategy

hoplo.init(address="auto")
[there] = [n["NodeID"] for n in hoplo.nodes() if n["NodeManagerAddress"] != "10.199.0.1"]
on = {"num_cpus": 0, "scheduling_strategy": NodeAffinitySchedulingStrategy(there)}

@hoplo.remote(**on)
def prints(lines, done):
    for _ in range(lines):
        print(os.urandom(250).hex(), file=sys.stderr)
    open(done, "w").close()

@hoplo.remote(**on)
def quick():
    return 1

hoplo.get(quick.remote())
ref = prints.remote(int(sys.argv[1]), sys.argv[2])
say("prints")
heard()
say(hoplo.get(quick.remote(), timeout=30))
hoplo.get(ref, timeout=30)
"""


BARS = """
import asyncio
from hoplo.ray.experimental import tqdm_ray
from hoplo.util.scheduling_strategies import NodeAffinitySchedulingStrategy

@hoplo.remote(max_retries=0, scheduling_strategy=NodeAffinitySchedulingStrategy(sys.argv[1]))
def waits(gate):
    bar = tqdm_ray.tqdm(desc="unlucky", total=3, flush_interval_s=0)
    bar.update()
    hoplo.get(gate.stays_shut.remote())

@hoplo.remote(num_cpus=0)
class Gate:
    def __init__(self):
        self.begun = asyncio.Event()

    async def stays_shut(self):
        self.begun.set()
        await asyncio.Event().wait()

    async def somebody_waits(self):
        await self.begun.wait()

hoplo.init(address="auto")
gate = Gate.remote()
ref = waits.remote(gate)
hoplo.get(gate.somebody_waits.remote())
say("waits")
try:
    hoplo.get(ref)
except hoplo.exceptions.HoploError as error:
    say(type(error).__name__)
heard()
"""


def test_the_bars_of_workers_of_a_dead_node_stayed(make_far: Any) -> None:
    far = make_far(nodes=2)
    program = far.machines[0].program(BARS, far.ids[1])
    assert program.heard() == "waits"
    far.kill_node(1)
    assert program.heard() in ("NodeDiedError", "WorkerCrashedError")
    ended = re.compile(r"\(waits pid=\d+, ip=[\d.]+\) unlucky .* 1/3.*\(its node has died\)\n")
    until(lambda: ended.search(program.errors.read_text()), what="the bar is closed")
    program.tell()
    program.end()


def own_bytes(pid: int) -> int:
    """Memory of that process that is nobody else's."""
    text = Path(f"/proc/{pid}/status").read_text()
    [line] = [line for line in text.splitlines() if line.startswith("RssAnon")]
    return int(line.split()[1]) * 1024


def test_a_call_waited_behind_all_that_its_node_had_printed(make_lab: Any, tmp_path: Path) -> None:
    """And the node kept all of it in memory."""
    lab = make_lab(nodes=2, rate=RATE)
    _, there = lab.cluster()
    before = own_bytes(pid := there.pid)
    done = tmp_path / "done"
    program = lab[1].program(SOURCE, str(LINES), str(done))
    assert program.heard() == "prints"
    until(done.exists, 60)
    assert own_bytes(pid) - before < 64_000_000, "100 MB were printed, and 8 may wait"
    program.tell()
    assert program.heard() == 1
    program.end()
