"""Sorts numbers that no single process holds: sample, split, move, sort, each step on all CPUs.

    python examples/distributed_sort.py [MILLIONS]

Every partition is made, split and sorted by tasks. This program itself sees a few samples, and the
counts at the end. In a cluster (`HOPLO_ADDRESS=auto` in the environment) the tasks run on all of
its nodes, and parts of partitions move from node to node.
"""

import sys
import time
from collections import Counter
from itertools import pairwise

import numpy as np

import hoplo

PARTITIONS = 8
SAMPLES = 200


@hoplo.remote(scheduling_strategy="SPREAD")
def make(seed: int, count: int) -> np.ndarray:
    """A partition of the input: numbers in no order."""
    return np.random.default_rng(seed).integers(0, 2**63, count, dtype=np.int64)


@hoplo.remote
def sample(numbers: np.ndarray) -> np.ndarray:
    """Some of them, from which the borders between the sorted partitions are guessed."""
    return np.random.default_rng(0).choice(numbers, SAMPLES)


@hoplo.remote(num_returns=PARTITIONS)
def split(numbers: np.ndarray, borders: np.ndarray) -> tuple[np.ndarray, ...]:
    """The numbers of each range; a ref for each, so that each moves only to where it is needed."""
    order = np.sort(numbers)
    return tuple(np.split(order, np.searchsorted(order, borders)))


@hoplo.remote(scheduling_strategy="SPREAD")
def merge(*parts: np.ndarray) -> np.ndarray:
    """All numbers of one range, sorted."""
    return np.sort(np.concatenate(parts))


@hoplo.remote
def check(numbers: np.ndarray) -> tuple[int, int, int, bool, str]:
    """Where the partition begins and ends, how long it is, whether it is sorted, and who looked."""
    is_sorted = bool((numbers[:-1] <= numbers[1:]).all())
    node = hoplo.get_runtime_context().get_node_id()
    return int(numbers[0]), int(numbers[-1]), len(numbers), is_sorted, node


def main(count: int) -> None:
    started = time.monotonic()
    made = [make.remote(seed, count // PARTITIONS) for seed in range(PARTITIONS)]
    samples = np.sort(np.concatenate(hoplo.get([sample.remote(part) for part in made])))
    borders = hoplo.put(samples[:: len(samples) // PARTITIONS][1:PARTITIONS])
    rows = [split.remote(part, borders) for part in made]
    merged = [merge.remote(*(row[i] for row in rows)) for i in range(PARTITIONS)]
    checked = hoplo.get([check.remote(part) for part in merged])
    seconds = time.monotonic() - started

    assert all(is_sorted for *_, is_sorted, _ in checked)
    assert all(before[1] <= after[0] for before, after in pairwise(checked))
    total = sum(length for _, _, length, *_ in checked)
    assert total == count // PARTITIONS * PARTITIONS
    megabytes = total * 8 / 1e6
    print(f"sorted {total:,} numbers, {megabytes:,.0f} MB, in {seconds:.2f} s")
    for node, partitions in sorted(Counter(node for *_, node in checked).items()):
        print(f"node {node} holds {partitions} of {PARTITIONS} partitions")


if __name__ == "__main__":
    with hoplo.init():
        main(int(float(sys.argv[1] if len(sys.argv) > 1 else 8) * 1e6))
