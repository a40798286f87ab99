"""What the machine can do: copy memory, fork a process, add one to an array."""

from __future__ import annotations

import os
import threading
import time

import numpy as np
from player import Player

MIB = 1 << 20
play = Player()


def _copying(size: int):
    source, target = np.ones(size, np.uint8), np.zeros(size, np.uint8)

    def run(count):
        for _ in range(count):
            np.copyto(target, source)

    return run


for size in [100 * 1024, 100 * MIB, *(1 << n for n in range(10, 31))]:

    @play.measure(f"memcpy.{size}")
    def _(size=size):
        yield _copying(size)

    @play.measure(f"memcpy.{size}.threads")
    def _(size=size):
        copies = [_copying(size) for _ in range(2)]

        def run(count):
            each = -(-count // 2)
            threads = [threading.Thread(target=copy, args=(each,)) for copy in copies]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return {"count": 2 * each}

        yield run


@play.measure("fork")
def _():
    # A zygote of bare Python: told by a byte, it forks, and the child sends the first byte.
    ask_read, ask_write = os.pipe()
    born_read, born_write = os.pipe()
    zygote = os.fork()
    if zygote == 0:
        os.close(ask_write)
        while os.read(ask_read, 1):
            child = os.fork()
            if child == 0:
                os.write(born_write, b"!")
                os._exit(0)
            os.waitpid(child, 0)
        os._exit(0)
    os.close(ask_read)

    def run(count):
        seconds = 0.0
        for _ in range(count):
            start = time.perf_counter()
            os.write(ask_write, b"?")
            os.read(born_read, 1)
            seconds += time.perf_counter() - start
        return seconds

    yield run
    os.close(ask_write)
    os.waitpid(zygote, 0)


@play.measure("array")
def _():
    x = np.ones(10 * MIB // 8)

    def run(count):
        for _ in range(count):
            x + 1

    yield run


@play.measure("array.ten")
def _():
    x = np.ones(10 * MIB // 8)

    def run(count):
        tens = max(1, count // 10)
        for _ in range(tens):
            held = [x + 1 for _ in range(10)]
            del held
        return {"count": 10 * tens}

    yield run


if __name__ == "__main__":
    play.serve()
