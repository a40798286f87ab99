"""Dask with distributed: two worker processes of one thread each."""

from __future__ import annotations

import logging

import dask
import numpy as np
from distributed import Client, LocalCluster
from player import Player
from workloads import nothing, plus_one

MIB = 1 << 20
play = Player()
client: Client


class Counter:
    def __init__(self):
        self.count = 0

    def add(self, x=1):
        self.count += x
        return self.count


@play.measure("task.one")
def _():
    def run(count):
        for _ in range(count):
            client.submit(nothing, pure=False).result()

    yield run


@play.measure("task.batch")
def _():
    yield lambda count: client.gather([client.submit(nothing, pure=False) for _ in range(count)])


@play.measure("task.int_batch")
def _():
    yield lambda count: client.gather(
        [client.submit(plus_one, i, pure=False) for i in range(count)]
    )


@play.measure("task.chain")
def _():
    def run(count):
        future = client.submit(plus_one, 0, pure=False)
        for _ in range(count - 1):
            future = client.submit(plus_one, future, pure=False)
        assert future.result() == count

    yield run


@play.measure("actor.one")
def _():
    counter = client.submit(Counter, actor=True).result()

    def run(count):
        for _ in range(count):
            counter.add().result()

    yield run


@play.measure("actor.batch")
def _():
    counter = client.submit(Counter, actor=True).result()
    yield lambda count: [future.result() for future in [counter.add() for _ in range(count)]]


@play.measure("actor.create")
def _():
    def run(count):
        for _ in range(count):
            future = client.submit(Counter, actor=True, pure=False)
            future.result().add().result()
            del future

    yield run


@play.measure("array.value")
def _():
    x = np.ones(10 * MIB // 8)

    def run(count):
        for _ in range(count):
            client.submit(plus_one, x, pure=False).result()

    yield run


@play.measure("array.ref")
def _():
    x = client.scatter(np.ones(10 * MIB // 8))

    def run(count):
        for _ in range(count):
            client.submit(plus_one, x, pure=False).result()

    yield run


if __name__ == "__main__":
    dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"})
    cluster = LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        dashboard_address=None,
        silence_logs=logging.ERROR,
        memory_limit="3GiB",
    )
    client = Client(cluster)

    def quit_all():
        client.close()
        cluster.close()

    play.serve(quit_all)
