"""All nodes but the head's are restarted one by one under load, and no call fails: drain, start."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from far import MIB
from machines import until

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
