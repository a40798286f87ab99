"""The driver of a soak of several nodes: random programs, every value checked, while nodes die.

    cluster_driver.py SEED SECONDS DEATHS

`DEATHS` is a file in which each death of a node is a line. It prints one line of JSON: what was
done, or what was wrong.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from typing import Any

from programs import Node, Program, Wrong

import hoplo
from hoplo.exceptions import ActorDiedError, ObjectLostError, OutOfDiskError, OwnerDiedError

PROGRAMS = 2
STORE_BYTES = 64 << 20
"""Of each node."""

LOST = (ObjectLostError, OwnerDiedError, ActorDiedError)

KEPT_ARGUMENT_BYTES = 8 << 20
"""An argument above that is not made again for a task that is."""

UNSURE = ("scattered", "given by", "answer")
"""What begins so is the result of a method, or belongs to a worker."""


class Gone(Exception):
    """A value was lost that may be."""


class ClusterProgram(Program):
    """Results of the driver's own tasks are made again; others are lost with a node that dies."""

    def __init__(self, *arguments: Any, deaths: str, full_disks: str) -> None:
        super().__init__(*arguments)
        self.deaths = deaths
        self.full_disks = full_disks

    def is_sure(self, node: Node) -> bool:
        large = any(below.size >= KEPT_ARGUMENT_BYTES for below in node.below)
        own = not node.story.startswith(UNSURE) and not large
        return own and all(map(self.is_sure, node.below))

    def check(self, node: Node) -> Any:
        try:
            return super().check(node)
        except LOST as error:
            if self.is_sure(node) or not os.path.getsize(self.deaths):
                raise Wrong(f"{node.story} is lost: {error}") from error
            if node in self.nodes:
                self.nodes.remove(node)
            raise Gone from error

    def attempt(self, step: Callable[[], Any]) -> None:
        try:
            step()
        except Gone:
            self.counts["lost"] += 1
        except OutOfDiskError:
            if not os.path.getsize(self.full_disks):
                raise
            self.counts["disk full"] += 1


def main() -> None:
    seed, seconds = int(sys.argv[1]), float(sys.argv[2])
    told = {"deaths": sys.argv[3], "full_disks": sys.argv[4]}
    hoplo.init(address="auto", log_to_driver=False)
    end = time.monotonic() + seconds
    counts: Counter[str] = Counter()
    wrong: list[str] = []

    def play(number: int) -> None:
        share = STORE_BYTES // PROGRAMS
        program = ClusterProgram(str(number), seed * 10 + number, share, end, **told)
        try:
            counts.update(program.run())
        except BaseException:
            wrong.append(traceback.format_exc())

    threads = [threading.Thread(target=play, args=(number,)) for number in range(PROGRAMS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps({"counts": counts, "wrong": wrong}), flush=True)
    # What is left when all is dropped is looked at before the job ends.
    sys.stdin.readline()


if __name__ == "__main__":
    main()
