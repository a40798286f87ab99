"""Nodes are restarted one by one under load, and no call fails: drain, start; the head too."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from far import MIB
from machines import alive, until

import hoplo


@hoplo.remote(max_retries=0, num_cpus=1, scheduling_strategy="SPREAD")
def more(before: Any, by: int) -> np.ndarray[Any, Any]:
    return np.asarray(before) + np.uint8(by)


@hoplo.remote(max_restarts=-1, max_task_retries=0, num_cpus=1)
class Adder:
    def __init__(self, base: int) -> None:
        self.base = base

    def add(self, number: int) -> int:
        return self.base + number


class Load(threading.Thread):
    """Chains of tasks and calls of an actor, none of which may run twice, until told to end."""

    def __init__(self) -> None:
        super().__init__(name="load")
        self.done = threading.Event()
        self.failures: list[BaseException] = []
        self.rounds = 0

    def run(self) -> None:
        try:
            adder = Adder.remote(1000)
            while not self.done.is_set():
                chains = [hoplo.put(np.zeros(MIB // 4, np.uint8)) for _ in range(4)]
                for step in range(3):
                    chains = [more.remote(chain, step) for chain in chains]
                answers = [adder.add.remote(number) for number in range(10)]
                totals = [int(chain[0]) for chain in hoplo.get(chains, timeout=60)]
                assert totals == [3] * 4
                assert hoplo.get(answers, timeout=60) == [1000 + number for number in range(10)]
                self.rounds += 1
        except BaseException as error:
            self.failures.append(error)

    def has_gone_on(self, rounds: int) -> bool:
        return bool(self.failures) or self.rounds >= rounds

    def end(self) -> None:
        self.done.set()
        self.join(90)
        assert self.failures == []


def test_nodes_are_restarted_one_by_one_under_load_and_no_call_fails(make_far: Any) -> None:
    far = make_far(4)
    load = Load()
    load.start()
    until(lambda: load.has_gone_on(3))
    for number in (1, 2, 3):
        told = far.machines[0].hoplo("drain", far.ids[number], seconds=120).stdout
        assert "it was drained" in told
        machine = far.machines[number]
        until(lambda m=machine: not m.processes(), what="the drained node has ended")
        machine.join(far.joining)
        before = load.rounds
        until(lambda before=before: load.has_gone_on(before + 3), 60, "the load goes on")
        assert far.machines[0].states().count("ALIVE") == 4
    load.end()


LOAD = """
    import os, sys
    from test_rolling_restart import Load
    hoplo.init(address="auto")
    load = Load()
    load.start()
    while not os.path.exists(sys.argv[1]):
        load.done.wait(0.01)
        with open(sys.argv[2] + ".new", "w") as file:
            file.write(str(load.rounds))
        os.rename(sys.argv[2] + ".new", sys.argv[2])
        if load.failures:
            raise load.failures[0]
    load.end()
    say(load.rounds)
"""


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_head_without_cpus_is_restarted_under_load_and_no_call_fails(
    make_far: Any, tmp_path: Path, how: signal.Signals
) -> None:
    no_cpus = ("--num-cpus", "0")
    far = make_far(3, flags=[no_cpus, (), ()])
    ends, rounds = tmp_path / "ends", tmp_path / "rounds"
    path = os.path.dirname(os.path.abspath(__file__))
    load = far.machines[1].program(LOAD, str(ends), str(rounds), PYTHONPATH=path)

    def goes_on() -> None:
        before = int(rounds.read_text()) if rounds.exists() else 0
        until(lambda: int(rounds.read_text()) >= before + 3, 60, "the load goes on")

    goes_on()
    far.killed.add(0)
    for _ in range(2):
        pid = far.machines[0].pid
        os.kill(pid, how)
        until(lambda pid=pid: not alive(pid))
        far.head_again(*no_cpus)
        until(lambda: far.machines[0].states().count("ALIVE") == 3)
        goes_on()
    ends.touch()
    load.end(90)
