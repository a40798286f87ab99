"""More objects than memory: spilled, restored, and the end of the disk."""

import itertools
import os
import subprocess
import threading

import numpy as np
import pytest
from conftest import eventually

import hoplo
from hoplo.exceptions import ObjectStoreFullError

NODE = None
MIB = 1 << 20


def filled(i, mebibytes=8):
    return np.full(mebibytes * MIB, i, "uint8")


def spilled_bytes():
    total = 0
    for at, _, names in os.walk(os.environ["HOPLO_TMPDIR"]):
        if os.path.basename(at) == "spill":
            total += sum(os.stat(os.path.join(at, name)).st_blocks * 512 for name in names)
    return total


def test_four_times_the_store_comes_back_whole(fresh_node):
    fresh_node(num_cpus=2, object_store_memory=64 * MIB)
    refs = [hoplo.put(filled(i)) for i in range(32)]
    assert spilled_bytes() > 100 * MIB
    for i in (0, 31, 5, 16, 1):
        value = hoplo.get(refs[i])
        assert value[0] == value[-1] == i
    for i, ref in enumerate(refs):
        assert hoplo.get(ref).sum() == i * 8 * MIB


def test_tasks_read_what_was_spilled(fresh_node):
    fresh_node(num_cpus=2, object_store_memory=64 * MIB)

    @hoplo.remote
    def make(i):
        return filled(i)

    @hoplo.remote
    def total(*blocks):
        return sum(int(block[0]) + int(block[-1]) for block in blocks)

    refs = [make.remote(i) for i in range(24)]
    totals = [total.remote(a, b) for a, b in itertools.pairwise(refs)]
    assert hoplo.get(totals) == [4 * i + 2 for i in range(23)]


def test_spilled_files_go_with_their_objects(fresh_node):
    fresh_node(num_cpus=1, object_store_memory=64 * MIB)
    refs = [hoplo.put(filled(i)) for i in range(24)]
    assert spilled_bytes() > 0
    refs.clear()
    eventually(lambda: spilled_bytes() == 0)


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(folder)], capture_output=True
    )
    if made.returncode != 0:
        pytest.skip("a full disk needs the right to mount a small one")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_is_an_error_that_says_who_holds_what(fresh_node, small_disk):
    fresh_node(num_cpus=1, object_store_memory=64 * MIB, _temp_dir=str(small_disk))
    refs = []
    more = (hoplo.put(filled(i)) for i in range(24))
    with pytest.raises(ObjectStoreFullError) as caught:
        refs.extend(more)
    text = str(caught.value)
    assert "disk" in text or "space" in text
    assert "MiB" in text or "MB" in text
    # Nothing is lost: with room again, what went to the disk is there.
    del refs[4:]
    for i, ref in enumerate(refs):
        assert hoplo.get(ref)[0] == hoplo.get(ref)[-1] == i
    del refs[1:]
    assert hoplo.get(hoplo.put(filled(77)))[-1] == 77
    assert hoplo.get(refs[0])[-1] == 0
    hoplo.shutdown()


def test_results_before_one_that_cannot_be_sent_leave_their_room(fresh_node):
    fresh_node(num_cpus=1, object_store_memory=64 * MIB)

    @hoplo.remote(num_returns=2, max_retries=0)
    def half():
        return filled(1), threading.Lock()

    for _ in range(20):  # over twice the store
        first, _second = half.remote()
        with pytest.raises(TypeError, match="lock"):
            hoplo.get(first)


def test_several_results_of_one_task_that_are_larger_than_the_store(fresh_node):
    fresh_node(num_cpus=1, object_store_memory=64 * MIB)

    @hoplo.remote(num_returns=3)
    def three():
        return [filled(i, 38) for i in range(3)]

    refs = three.remote()
    for i, ref in enumerate(refs):
        value = hoplo.get(ref, timeout=60)
        assert (value.nbytes, value[0], value[-1]) == (38 * MIB, i, i)
    assert [value[7] for value in hoplo.get(refs, timeout=60)] == [0, 1, 2]
