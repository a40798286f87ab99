"""Collectives of Dask, as its users write them: tasks that read, and a tree of tasks that add two.

Its argument is JSON: the address of the scheduler, the addresses of the workers, and the sizes of a
member. It runs at the first node, where a worker is as well. The clock is the same for all nodes.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np
from distributed import Client, wait
from player import Player

TOLD = json.loads(sys.argv[1])
COUNT = len(TOLD["addresses"])
TOTAL = sum(range(COUNT))
now = time.perf_counter
play = Player()
client: Client


def member(number, nbytes):
    return np.full(nbytes // 4, number, "f4")


def part(number, nbytes):
    return member(number, nbytes // COUNT)


def added(one, other):
    return one + other


def returned(value):
    """The same numbers, as a new object."""
    return value.copy()


def reads(*values):
    """Its arguments are there when it begins."""
    return float(values[-1][-1]), now()


def at_each(function, *each):
    return [
        client.submit(function, *(it(i) for it in each), workers=[f"node{i + 1}"], pure=False)
        for i in range(COUNT)
    ]


def members(nbytes):
    made = at_each(member, lambda i: i, lambda _: nbytes)
    wait(made)
    return made


def read(each, want):
    """When the last reader had what it is given."""
    made = [
        client.submit(reads, *each(i), workers=[f"node{i + 1}"], pure=False) for i in range(COUNT)
    ]
    got = client.gather(made)
    assert all(value == want for value, _ in got), got
    return max(end for _, end in got)


def reduced(futures):
    while len(futures) > 1:
        futures = [*futures[2:], client.submit(added, futures[0], futures[1], pure=False)]
    return futures[0]


def point_to_point(nbytes):
    made = members(nbytes)
    began = now()
    assert made[1].result()[-1] == 1
    return now() - began


def round_trip(nbytes):
    value = np.full(nbytes // 4, 3, "f4")
    began = now()
    there = client.scatter(value, workers=["node2"], direct=True, hash=False)
    back = client.submit(returned, there, workers=["node2"], pure=False)
    assert back.result()[-1] == 3
    return now() - began


def broadcast(nbytes):
    made = members(nbytes)
    began = now()
    return read(lambda _: made[:1], 0) - began


def reduce(nbytes):
    made = members(nbytes)
    began = now()
    assert reduced(made).result()[-1] == TOTAL
    return now() - began


def allreduce(nbytes):
    made = members(nbytes)
    began = now()
    total = reduced(made)
    return read(lambda _: [total], TOTAL) - began


def gather(nbytes):
    made = members(nbytes)
    began = now()
    values = client.gather(made, direct=True)
    ended = now()
    assert [value[-1] for value in values] == list(range(COUNT))
    return ended - began


def all_to_all(nbytes):
    rows = [at_each(part, lambda i: i, lambda _: nbytes) for _ in range(COUNT)]
    wait([one for row in rows for one in row])
    began = now()
    return read(lambda i: rows[i], COUNT - 1) - began


for _case in (point_to_point, round_trip, broadcast, reduce, allreduce, gather, all_to_all):
    for _nbytes in TOLD["sizes"]:

        @play.measure(f"{_case.__name__}.{_nbytes}")
        def _(case=_case, nbytes=_nbytes):
            case(min(nbytes, 1 << 20))
            yield lambda count: sum(case(nbytes) for _ in range(count))


if __name__ == "__main__":
    client = Client(TOLD["scheduler"], direct_to_workers=True)
    client.wait_for_workers(COUNT, timeout=60)
    play.serve(client.close)
