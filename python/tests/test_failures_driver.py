"""Drivers that die, leave or are interrupted: what goes with them, and what stays."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time

import pytest
from conftest import eventually, run_driver
from processes import program, session_folders

import hoplo
from hoplo.exceptions import TaskCancelledError

NODE = None
WITHIN = 2.0

BUSY = """
import numpy as np
hoplo.init(num_cpus=4, object_store_memory=64 << 20, namespace="busy")

@hoplo.remote
def block():
    print("up", flush=True)
    forever()

@hoplo.remote
def child():
    # A process of the user's own inside a task.
    import subprocess
    subprocess.run(["sleep", "1000"])

@hoplo.remote
class Actor:
    def pid(self):
        return os.getpid()

actors = [Actor.remote() for _ in range(2)]
pids = hoplo.get([actor.pid.remote() for actor in actors])
running = [block.remote() for _ in range(2)]
objects = [hoplo.put(np.ones(8 << 20, "uint8")) for _ in range(12)]  # some of them spilled
queued = [block.remote() for _ in range(100)]
print("pids", *pids, flush=True)
"""


def gone(driver):
    return lambda: not driver.processes()


def left_in(folder):
    """Files of sessions, but for logs."""
    files = [path for path in folder.rglob("*") if not path.is_dir()]
    return [f for f in files if "session-" in str(f) and f.suffix not in (".log", ".out", ".err")]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_driver_takes_everything_with_it(tmp_path, number):
    with program(tmp_path, BUSY + "forever()") as driver:
        driver.said("pids")
        started = driver.processes()
        assert len(started) >= 6  # daemon, zygote, two actors, two workers
        assert session_folders(tmp_path)
        driver.kill(number)
        driver.end()
        eventually(gone(driver), timeout=WITHIN, what="every process is gone")
        eventually(lambda: not left_in(tmp_path), timeout=WITHIN, what="every file is gone")


def test_a_driver_that_fails_leaves_nothing(tmp_path):
    with program(tmp_path, BUSY + "raise RuntimeError('the program has a bug')") as driver:
        driver.said("pids")
        assert driver.end() == 1
        eventually(gone(driver), timeout=WITHIN)
        eventually(lambda: not left_in(tmp_path), timeout=WITHIN)
        assert "the program has a bug" in driver.error_text()


def test_a_driver_that_ends_without_shutdown_leaves_nothing(tmp_path):
    with program(tmp_path, BUSY) as driver:
        driver.said("pids")
        assert driver.end() == 0
        eventually(gone(driver), timeout=WITHIN)
        eventually(lambda: not left_in(tmp_path), timeout=WITHIN)


def test_os_exit_of_the_driver_leaves_nothing(tmp_path):
    with program(tmp_path, BUSY + "os._exit(3)") as driver:
        driver.said("pids")
        assert driver.end() == 3
        eventually(gone(driver), timeout=WITHIN)
        eventually(lambda: not left_in(tmp_path), timeout=WITHIN)


# ------------------------------------------------------------------------------- Ctrl-C

INTERRUPTED = """
hoplo.init(num_cpus=2)

@hoplo.remote
def block(seconds=None):
    forever()

@hoplo.remote
def work(x):
    return x + 1

ref = block.remote()
hoplo.get(work.remote(1))
try:
    print("waits", flush=True)
    {wait}
except KeyboardInterrupt:
    print("interrupted", flush=True)
print("works", hoplo.get(work.remote(41)), flush=True)
"""
WAITS = {
    "get": "hoplo.get(ref)",
    "get of many": "hoplo.get([ref, work.remote(1)])",
    "get with a timeout": "hoplo.get(ref, timeout=100)",
    "wait": "hoplo.wait([ref])",
    "a stream": "next(iter(hoplo.remote(num_returns='streaming')(forever).remote()))",
    "future": "ref.future().result()",
}


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_ctrl_c_ends_a_wait_at_once_and_the_session_goes_on(tmp_path, wait):
    with program(tmp_path, INTERRUPTED.format(wait=wait)) as driver:
        driver.said("waits")
        # As a terminal does it: to everyone in the foreground. Python itself loses a signal that
        # comes in the instant before a lock's wait: a second press is allowed.
        press = (driver.pid, signal.SIGINT)
        again = threading.Timer(0.5, os.killpg, press)
        began = time.monotonic()
        os.killpg(*press)
        again.start()
        driver.said("interrupted")
        again.cancel()
        assert time.monotonic() - began < 1.5
        assert driver.said("works") == ["42"]


def test_ctrl_c_that_nobody_catches_ends_the_program_and_all_of_it(tmp_path):
    source = INTERRUPTED.format(wait="pass").partition("try:")[0]
    source += 'print("waits", flush=True)\nhoplo.get(ref)'
    with program(tmp_path, source) as driver:
        driver.said("waits")
        os.killpg(driver.pid, signal.SIGINT)
        driver.end(within=5)
        eventually(gone(driver), timeout=WITHIN)
        assert "KeyboardInterrupt" in driver.error_text()


# ----------------------------------------------------------------- what others go on with

PASSES_ON = """
import hoplo

hoplo.init(address="auto", namespace="shared")

@hoplo.remote
def double(x):
    return 2 * x

keeper = hoplo.get_actor("keeper")
hoplo.get(keeper.keep.remote([double.remote(21)]))
"""


def keeper_of_a_task_whose_program_ended(gate):
    """An actor with a ref of a task that waits for the only CPU; its program is over."""
    hoplo.init(address="auto", namespace="shared")

    @hoplo.remote(num_cpus=0)
    class Keeper:
        def keep(self, boxed):
            self.boxed = boxed

        def give(self):
            return self.boxed

        def read(self):
            return hoplo.get(self.boxed[0])

    @hoplo.remote
    def hold():
        gate.wait()

    keeper = Keeper.options(name="keeper").remote()
    hoplo.get(keeper.keep.remote([]))
    blocker = hold.remote()
    eventually(gate.arrived)
    run_driver(PASSES_ON)
    return keeper, blocker


def test_a_task_missed_its_function_when_its_program_had_ended(head, gate):
    head("--num-cpus", "1")
    keeper, blocker = keeper_of_a_task_whose_program_ended(gate)
    gate.open()
    assert hoplo.get(keeper.read.remote(), timeout=60) == 42
    hoplo.get(blocker)


def test_to_cancel_a_task_whose_program_had_ended_did_nothing(head, gate):
    head("--num-cpus", "1")
    keeper, blocker = keeper_of_a_task_whose_program_ended(gate)
    (ref,) = hoplo.get(keeper.give.remote())
    hoplo.cancel(ref)
    with pytest.raises(TaskCancelledError):
        hoplo.get(ref, timeout=60)
    gate.open()
    hoplo.get(blocker)


KEEPS_AND_LEAVES = """
hoplo.init(address="auto", namespace="ours")

@hoplo.remote
class Maker:
    def make(self, gate=None):
        if gate:
            gate.wait()
        return bytes(300_000)

import pickle
gate = pickle.loads(bytes.fromhex(sys.argv[1]))
maker = Maker.remote()
hoplo.get(maker.make.remote())  # it has room in the store now
result = maker.make.remote(gate)
hoplo.get(hoplo.get_actor("keeper").keep.remote([result]))
print("kept", flush=True)
sys.stdin.readline()
asked = hoplo.remote(lambda: None).remote()  # our socket is the first that the daemon will read
print("waits", flush=True)
hoplo.wait([result])
os._exit(0)
"""


def test_a_large_result_was_lost_with_a_program_that_left_right_after_it_came(head, gate, tmp_path):
    head("--num-cpus", "4")
    hoplo.init(address="auto", namespace="ours")
    daemon = hoplo.nodes()[0]["pid"]

    @hoplo.remote
    class Keeper:
        def keep(self, box):
            self.box = box

        def length(self):
            return len(hoplo.get(self.box[0], timeout=20))

    keeper = Keeper.options(name="keeper", num_cpus=1).remote()
    same_head = {"HOPLO_TMPDIR": os.environ["HOPLO_TMPDIR"]}
    with program(
        tmp_path, KEEPS_AND_LEAVES, pickle.dumps(gate).hex(), environment=same_head
    ) as owner:
        assert owner.line() == "kept"
        eventually(gate.arrived)
        os.kill(daemon, signal.SIGSTOP)
        try:
            owner.tell()
            assert owner.line() == "waits"
            gate.open()
            owner.end()
        finally:
            os.kill(daemon, signal.SIGCONT)
        assert hoplo.get(keeper.length.remote(), timeout=30) == 300_000
