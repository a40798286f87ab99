"""What needs no framework: ProcessPoolExecutor, multiprocessing.Pool, loky."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

from player import Player
from workloads import plain, plus_one

play = Player()


@play.measure("executor.batch")
def _():
    with ProcessPoolExecutor(2) as executor:
        yield lambda count: [
            future.result() for future in [executor.submit(plus_one, i) for i in range(count)]
        ]


@play.measure("executor.one")
def _():
    with ProcessPoolExecutor(2) as executor:

        def run(count):
            for i in range(count):
                executor.submit(plus_one, i).result()

        yield run


@play.measure("pool.batch")
def _():
    with multiprocessing.get_context("fork").Pool(2) as pool:
        yield lambda count: [
            result.get() for result in [pool.apply_async(plus_one, (i,)) for i in range(count)]
        ]


@play.measure("pool.one")
def _():
    with multiprocessing.get_context("fork").Pool(2) as pool:

        def run(count):
            for i in range(count):
                pool.apply(plus_one, (i,))

        yield run


@play.measure("pool.map")
def _():
    with multiprocessing.get_context("fork").Pool(2) as pool:
        yield lambda count: pool.map(plain, range(count))


@play.measure("loky.batch")
def _():
    from loky import ProcessPoolExecutor as LokyExecutor

    executor = LokyExecutor(2)
    executor.submit(plus_one, 0).result()
    yield lambda count: [
        future.result() for future in [executor.submit(plus_one, i) for i in range(count)]
    ]
    executor.shutdown(kill_workers=True)


if __name__ == "__main__":
    play.serve()
