"""hoplo or Ray, while nodes die: all but the module is word for word the same.

Its argument: which of them. It runs on the head's machine, whose node has no CPU.
"""

from __future__ import annotations

import importlib
import os
import socket
import sys
import time
from typing import Any

import numpy as np
from player import Player, Skipped

SYSTEM = sys.argv[1]

api: Any = importlib.import_module(SYSTEM)
play = Player()

TASK_SECONDS = 0.1
NUMBERS = 12_800
"""In each result: 100 KB."""

CHAINS = 12
"""Twice as many as there are nodes at most: each has work whatever becomes of another chain."""


@api.remote(num_cpus=1, max_retries=-1)
def step(before, chain, number, log):
    """The next result of a chain. Each run of it is a line of the log."""
    time.sleep(TASK_SECONDS)
    after = np.zeros(NUMBERS)
    after[0] = 1 if before is None else before[0] + 1
    line = f"{chain} {number} {time.time()}\n".encode()
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, line)
    os.close(file)
    return after


@play.measure("chains")
def _():
    """So many steps of each chain, all submitted at first. Every result is kept until the end, so
    that one that is lost needs no more than those that are lost with it."""

    def run(count):
        log = os.environ["BENCH_LOG"]
        ends = []
        for chain in range(CHAINS):
            results = [step.remote(None, chain, 0, log)]
            for number in range(1, count):
                results.append(step.remote(results[-1], chain, number, log))
            ends.append(results)
        wrong = [
            chain for chain, results in enumerate(ends) if api.get(results[-1])[0] != len(results)
        ]
        return {"seconds": 0.0, "wrong": wrong}

    yield run


@api.remote(num_cpus=1, max_retries=-1)
def machine():
    """Its number: the host names are node2 and ray2."""
    return int(socket.gethostname().strip("noderay"))


@play.measure("pause")
def _():
    """The longest wait for the result of a task, one after the other, for so many milliseconds, and
    where the last one ran."""

    def run(count):
        began = last = time.perf_counter()
        longest, number = 0.0, 0
        while last - began < count / 1e3:
            number = api.get(machine.remote())
            now = time.perf_counter()
            longest, last = max(longest, now - last), now
        return {"seconds": longest, "machine": number}

    yield run


@api.remote(num_cpus=0)
class Named:
    def ready(self):
        return True


@play.measure("names")
def _():
    """The longest wait for an actor with a name to be made and called, one after the other, for so
    many milliseconds."""

    def run(count):
        began = last = time.perf_counter()
        longest, number = 0.0, 0
        while last - began < count / 1e3:
            number += 1
            actor = Named.options(name=f"{os.getpid()}-{began}-{number}").remote()
            api.get(actor.ready.remote())
            api.kill(actor)
            now = time.perf_counter()
            longest, last = max(longest, now - last), now
        return {"seconds": longest, "made": number}

    yield run


@api.remote(num_cpus=0.01, max_restarts=-1, max_task_retries=-1, scheduling_strategy="SPREAD")
class Ledger:
    """Its state is the list of its calls. Each run of one is a line of the log."""

    def __init__(self, number, log):
        self.number, self.entries = number, []
        self.log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def checkpoint(self):
        return self.entries

    def restore(self, state):
        self.entries = state

    def add(self, entry):
        """At which place it stands."""
        os.write(self.log, f"{self.number} {entry}\n".encode())
        self.entries.append(entry)
        return len(self.entries)

    def all(self):
        return self.entries

    def machine(self):
        return socket.gethostname()


def ledgers(actors, every):
    """So many calls of each actor, all submitted at first. `wrong`: replies that do not say where
    their call stands in the end, and actors that have a call twice, or miss one."""

    def run(count):
        log = os.environ["BENCH_LOG"]
        more = {"checkpoint_every": every} if SYSTEM == "hoplo" else {}
        made = [Ledger.options(**more).remote(number, log) for number in range(actors)]
        places = api.get([actor.machine.remote() for actor in made])
        with open(f"{log}.places", "w") as file:
            file.write("\n".join(places))
        replies = [[] for _ in made]
        for entry in range(count):
            for number, actor in enumerate(made):
                replies[number].append(actor.add.remote(entry))
        wrong = 0
        for number, actor in enumerate(made):
            answers = api.get(replies[number])
            answered = time.time()
            entries = api.get(actor.all.remote())
            stand = [entries[place - 1 : place] for place in answers]
            wrong += sum(at != [entry] for entry, at in enumerate(stand))
            wrong += sorted(entries) != list(range(count))
        return {"seconds": 0.0, "wrong": wrong, "answered": answered}

    return run


for actors in (20, 200):

    @play.measure(f"{actors} ledgers")
    def _(actors=actors):
        yield ledgers(actors, 10)

    @play.measure(f"{actors} ledgers without checkpoints")
    def _(actors=actors):
        yield ledgers(actors, 1_000_000)


def connect():
    if SYSTEM == "ray":
        address = os.environ["BENCH_ADDRESS"]
        api.init(address=f"{address}:6379", log_to_driver=False, logging_level="ERROR")
    else:
        api.init(address="auto", log_to_driver=False)


if __name__ == "__main__":
    try:
        connect()
    except Exception as error:
        raise Skipped(f"{SYSTEM} does not run here: {error}") from error
    play.serve(api.shutdown)
