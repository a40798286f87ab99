"""Moves a gigabyte: a task on each node makes a part of it, and tasks on the others read it.

    python examples/move_a_gigabyte.py [MEGABYTES]

On one machine nothing moves: all of its processes read the same memory. In a cluster
(`HOPLO_ADDRESS=auto` in the environment) the bytes go from node to node, encrypted, straight from
one store into the other.
"""

import sys
import time

import numpy as np

import hoplo
from hoplo.util.scheduling_strategies import NodeAffinitySchedulingStrategy

PIECE = 64_000_000


@hoplo.remote
def make(nbytes: int, seed: int) -> np.ndarray:
    """Bytes that are not all alike."""
    return np.arange(seed, seed + nbytes // 8, dtype=np.uint64)


@hoplo.remote
def read(numbers: np.ndarray) -> tuple[int, int]:
    """What they add up to, as a proof that all of them are here."""
    return int(numbers.sum()), numbers.nbytes


def on(node: str) -> NodeAffinitySchedulingStrategy:
    return NodeAffinitySchedulingStrategy(node, soft=False)


def main(nbytes: int) -> None:
    nodes = [node["NodeID"] for node in hoplo.nodes() if node["Alive"]]
    sizes = [min(PIECE, nbytes - begin) for begin in range(0, nbytes, PIECE)]
    made = []
    for i, size in enumerate(sizes):
        there = make.options(scheduling_strategy=on(nodes[i % len(nodes)]))
        made.append(there.remote(size, i))
    hoplo.wait(made, num_returns=len(made), fetch_local=False)

    started = time.monotonic()
    readers = []
    for i, piece in enumerate(made):
        # The next node: with one, the same.
        there = read.options(scheduling_strategy=on(nodes[(i + 1) % len(nodes)]))
        readers.append(there.remote(piece))
    found = hoplo.get(readers)
    seconds = time.monotonic() - started

    for i, (total, size) in enumerate(found):
        count = size // 8
        assert total == count * i + count * (count - 1) // 2
    moved = sum(size for _, size in found)
    where = f"between {len(nodes)} nodes" if len(nodes) > 1 else "on one node, so nothing moved"
    print(f"read {moved / 1e6:,.0f} MB {where}: {moved / seconds / 1e9:.2f} GB/s")


if __name__ == "__main__":
    with hoplo.init():
        main(int(float(sys.argv[1] if len(sys.argv) > 1 else 1000) * 1e6))
