"""What the memory of this machine does with no system at all: sums and copies of 8 x 64 MB."""

from __future__ import annotations

import time

import numpy as np
from player import Player

play = Player()


def repeated(once):
    arrays = [np.full(16_000_000, number, "f4") for number in range(8)]
    out = np.zeros_like(arrays[0])

    def run(count):
        began = time.perf_counter()
        for _ in range(count):
            once(arrays, out)
        return time.perf_counter() - began

    return run


@play.measure("sum")
def _():
    """numpy adds array by array into one that is there; it uses SIMD, and one core."""

    def once(arrays, out):
        np.add(arrays[0], arrays[1], out=out)
        for array in arrays[2:]:
            np.add(out, array, out=out)

    yield repeated(once)


@play.measure("sum by pieces")
def _():
    """The same, 128 KB of each after the other: what is added up stays in the cache."""

    def once(arrays, out):
        for start in range(0, len(out), 32_000):
            piece = slice(start, start + 32_000)
            np.add(arrays[0][piece], arrays[1][piece], out=out[piece])
            for array in arrays[2:]:
                np.add(out[piece], array[piece], out=out[piece])

    yield repeated(once)


@play.measure("copy")
def _():
    def once(arrays, out):
        for array in arrays:
            np.copyto(out, array)

    yield repeated(once)


if __name__ == "__main__":
    play.serve()
