"""hoplo. Its arguments: how many CPUs the node has; "head" for a head node with tables on disk."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import ray_like
from player import Player, Skipped
from processes import family, memory_mb
from workloads import add_rollouts, add_serving, plain

import hoplo

MIB = 1 << 20
play = Player()
ray_like.add_measures(play, hoplo)
add_rollouts(play, hoplo)
add_serving(play, hoplo)


@play.measure("task.map")
def _():
    function = hoplo.remote(plain)
    if not hasattr(function, "map"):
        raise Skipped("this hoplo has no f.map")

    def run(count):
        results = function.map(range(count))
        results = results if isinstance(results, list) else list(results)
        if isinstance(results[0], hoplo.ObjectRef):
            results = hoplo.get(results)
        assert len(results) == count

    yield run


@play.measure("pool.map")
def _():
    from hoplo.util.multiprocessing import Pool

    with Pool(2) as pool:
        pool.map(plain, range(10))
        yield lambda count: pool.map(plain, range(count))


def _putting_empty(size: int):
    # Only the `put`: the array is made and written before, at its ends, so that both sizes find the
    # processor's caches alike.
    def run(count):
        seconds = 0.0
        for _ in range(count):
            array = hoplo.empty(size, np.uint8)
            array[0] = array[-1] = 1
            start = time.perf_counter()
            ref = hoplo.put(array)
            seconds += time.perf_counter() - start
            del ref, array
        return seconds

    return run


@play.measure("empty.1MiB")
def _():
    yield _putting_empty(MIB)


@play.measure("empty.256MiB")
def _():
    yield _putting_empty(256 * MIB)


for size in (1 << n for n in range(10, 31)):

    @play.measure(f"put.{size}.threads")
    def _(size=size):
        value = np.ones(size, np.uint8)

        def put(count):
            for _ in range(count):
                ref = hoplo.put(value)
                del ref

        def run(count):
            threads = [threading.Thread(target=put, args=(-(-count // 2),)) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return {"count": 2 * -(-count // 2)}

        yield run


def memory() -> float:
    """Bytes of this process and all that it started, shared pages counted once."""
    me = os.getpid()
    return sum(memory_mb(pid, "Pss:") for pid in [me, *family(me)]) * MIB


@hoplo.remote
def nothing():
    return None


@hoplo.remote(num_cpus=1)
def blocker(gate: str):
    while not Path(gate).exists():
        time.sleep(0.01)


@play.measure("task.million")
def _():
    def run(count):
        with tempfile.TemporaryDirectory() as folder:
            gate = Path(folder) / "open"
            hoplo.get([nothing.remote() for _ in range(100)])
            before = memory()
            blockers = [blocker.remote(str(gate)) for _ in range(2)]
            start = time.perf_counter()
            refs = [nothing.remote() for _ in range(count)]
            submitted = time.perf_counter() - start
            queued = memory()
            gate.touch()
            start = time.perf_counter()
            hoplo.get(refs)
            seconds = time.perf_counter() - start
            done = memory()
            hoplo.get(blockers)
            return {
                "seconds": seconds,
                "submit": submitted,
                "bytes_queued": (queued - before) / count,
                "bytes_done": (done - before) / count,
            }

    yield run


def join_head(cpus: int) -> Callable[[], None]:
    """Starts a head and joins it; what is given back ends both."""
    program = Path(sys.executable).with_name("hoplo")
    # On the disk, where a head's tables are; /tmp may be memory.
    folder = tempfile.mkdtemp(prefix="hoplo-bench-", dir="/var/tmp")
    # Beside the head that a user may have.
    os.environ["HOPLO_TMPDIR"] = folder
    start = [program, "start", "--head", f"--num-cpus={cpus}"]
    subprocess.run(start, check=True, stdout=subprocess.DEVNULL)
    hoplo.init(address="auto")

    def end() -> None:
        hoplo.shutdown()
        subprocess.run([program, "stop"], check=True, stdout=subprocess.DEVNULL)
        shutil.rmtree(folder, ignore_errors=True)

    return end


if __name__ == "__main__":
    cpus = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    if "head" in sys.argv[2:]:
        end = join_head(cpus)
    else:
        hoplo.init(num_cpus=cpus, object_store_memory=4 << 30)
        end = hoplo.shutdown
    play.serve(end)
