"""More is held, read or written at once than the store's memory has room for."""

import json
import os
import re
import subprocess

import numpy as np
import pytest
from conftest import command, eventually
from processes import command_line, daemon_pid

import hoplo
from hoplo import _core
from hoplo.exceptions import OutOfDiskError

NODE = None
MIB = 1 << 20


def filled(i, mebibytes=8):
    return np.full(mebibytes * MIB, i, "uint8")


def is_filled(array, i):
    return array[0] == array[-1] == i and array[len(array) // 2] == i


def status():
    return json.loads(_core.query("status"))


def disk_bytes():
    """What the spill file takes of the disk, as the file system says."""
    spill = os.path.join(status()["session_dir"], "spill")
    return sum(os.stat(os.path.join(spill, name)).st_blocks * 512 for name in os.listdir(spill))


@pytest.fixture
def disk_of(tmp_path):
    """Makes a disk of so many MiB."""
    mounted = []

    def make(mebibytes):
        folder = tmp_path / "disk"
        folder.mkdir()
        size = f"size={mebibytes}m"
        mount = ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(folder)]
        if subprocess.run(mount, capture_output=True).returncode != 0:
            pytest.skip("a full disk needs the right to mount a small one")
        mounted.append(folder)
        return folder

    yield make
    for folder in mounted:
        subprocess.run(["umount", "-l", str(folder)], check=True)


# ---------------------------------------------------------------- reading never waits for memory


@pytest.mark.parametrize("cpus", [1, 2])
def test_tasks_with_two_large_arguments_each_do_not_wait_for_one_another(fresh_node, cpus):
    fresh_node(num_cpus=cpus, object_store_memory=64 * MIB)

    @hoplo.remote
    def both(a, b):
        return int(a[0]) + int(b[-1])

    blocks = [hoplo.put(filled(i, 14)) for i in range(12)]
    sums = [both.remote(blocks[i], blocks[(i + 1) % 12]) for i in range(12)]
    assert hoplo.get(sums, timeout=60) == [i + (i + 1) % 12 for i in range(12)]


def test_nested_gets_of_large_objects_in_many_tasks_and_actors_end(fresh_node):
    fresh_node(num_cpus=4, object_store_memory=64 * MIB)

    @hoplo.remote
    def held(refs):
        values = hoplo.get(refs)
        return sum(int(value[-1]) for value in values) + hoplo.get(deeper.remote(refs[::-1]))

    @hoplo.remote
    def deeper(refs):
        return sum(int(value[0]) for value in hoplo.get(refs))

    @hoplo.remote
    class Keeper:
        def __init__(self, *blocks):
            self.blocks = blocks

        def total(self, *more):
            return sum(int(block[-1]) for block in self.blocks + more)

    blocks = [hoplo.put(filled(i, 14)) for i in range(8)]
    keepers = [Keeper.options(num_cpus=0).remote(*blocks[i : i + 4]) for i in range(4)]
    totals = [held.remote(blocks[i : i + 5]) for i in range(4)]
    kept = [keeper.total.remote(*blocks[:4]) for keeper in keepers]
    assert hoplo.get(totals, timeout=60) == [2 * sum(range(i, i + 5)) for i in range(4)]
    assert hoplo.get(kept, timeout=60) == [sum(range(i, i + 4)) + 6 for i in range(4)]


def test_a_get_that_finds_the_store_full_of_views_gets_its_value_and_so_does_the_next(fresh_node):
    fresh_node(num_cpus=1, object_store_memory=64 * MIB)
    refs = [hoplo.put(filled(i, 16)) for i in range(6)]
    views = [hoplo.get(ref) for ref in refs]
    assert all(is_filled(view, i) for i, view in enumerate(views))
    views.clear()
    for i, ref in enumerate(refs):
        assert is_filled(hoplo.get(ref), i)


def test_more_than_the_store_is_held_at_once_and_is_read_only(fresh_node):
    context = fresh_node(num_cpus=1, object_store_memory=64 * MIB)
    refs = [hoplo.put(filled(i, 16)) for i in range(6)]
    views = hoplo.get(refs)
    assert [is_filled(view, i) for i, view in enumerate(views)] == [True] * 6
    assert not any(view.flags.writeable for view in views)
    with pytest.raises(ValueError, match="WRITEABLE"):
        views[0].setflags(write=True)
    store = status()["store"]
    assert store["read_on_disk"] >= 32 * MIB
    assert store["disk"] >= 32 * MIB
    shown = command("status", "--session", context["session_dir"]).stdout
    assert re.search(r" spilled, .* on disk, .* of them being read there\n", shown), shown

    @hoplo.remote
    def all_of_them(*blocks):
        assert not any(block.flags.writeable for block in blocks)
        return [is_filled(block, i) for i, block in enumerate(blocks)]

    # While we hold them all as well.
    assert hoplo.get(all_of_them.remote(*refs), timeout=60) == [True] * 6
    # A view stays what it is when the refs are gone and the disk is used again.
    del refs
    more = [hoplo.put(filled(50 + i, 16)) for i in range(6)]
    assert [is_filled(view, i) for i, view in enumerate(views)] == [True] * 6
    assert all(is_filled(hoplo.get(ref), 50 + i) for i, ref in enumerate(more))
    del views, more
    eventually(lambda: disk_bytes() == 0)


def test_what_was_spilled_is_not_written_to_disk_again(fresh_node):
    fresh_node(num_cpus=1, object_store_memory=64 * MIB)
    refs = [hoplo.put(filled(i)) for i in range(32)]
    before = status()["counters"]["spills"]
    assert before >= 24
    for _ in range(3):
        for i, ref in enumerate(refs):
            assert is_filled(hoplo.get(ref), i)
    assert status()["counters"]["spills"] == before
    written = status()["store"]["disk"]
    assert written <= 32 * 8 * MIB


# ---------------------------------------------------------------- writing what does not fit


def test_an_object_larger_than_the_store_is_put_and_returned_and_read(fresh_node):
    fresh_node(num_cpus=1, object_store_memory=64 * MIB)

    @hoplo.remote
    def make(i):
        return filled(i, 80)

    @hoplo.remote
    def look(block):
        return is_filled(block, 3)

    large = hoplo.put(filled(3, 80))
    view = hoplo.get(large)
    assert is_filled(view, 3)
    assert hoplo.get(look.remote(large), timeout=60)
    result = hoplo.get(make.remote(5), timeout=60)
    assert is_filled(result, 5)
    assert not result.flags.writeable
    del large, view, result
    eventually(lambda: disk_bytes() == 0)


def test_an_array_made_in_a_full_store_is_put_without_a_copy_and_stays_where_it_is(fresh_node):
    fresh_node(num_cpus=1, object_store_memory=64 * MIB)
    frame = hoplo.empty(80 * MIB, "uint8")
    frame[:] = 7
    ref = hoplo.put(frame)
    assert is_filled(frame, 7)
    assert is_filled(hoplo.get(ref), 7)
    del ref
    assert is_filled(frame, 7)
    unused = hoplo.empty(80 * MIB, "uint8")
    unused[-1] = 1
    del frame, unused
    eventually(lambda: disk_bytes() == 0)


def test_results_of_one_task_that_exceed_the_store_together_are_all_returned(fresh_node):
    fresh_node(num_cpus=1, object_store_memory=100 * MIB)

    @hoplo.remote(num_returns=4, max_retries=0)
    def four():
        return tuple(filled(i, 50) for i in range(4))

    values = hoplo.get(list(four.remote()), timeout=60)
    assert [is_filled(value, i) for i, value in enumerate(values)] == [True] * 4


def test_results_on_disk_before_one_that_cannot_be_sent_leave_their_room(fresh_node):
    fresh_node(num_cpus=1, object_store_memory=16 * MIB)

    @hoplo.remote(num_returns=2, max_retries=0)
    def half():
        return filled(1, 20), (i for i in range(3))

    for _ in range(3):
        first, _second = half.remote()
        with pytest.raises(TypeError, match="generator"):
            hoplo.get(first)
    eventually(lambda: disk_bytes() == 0)


def test_more_than_the_disk_has_is_refused_with_sizes_and_the_store_goes_on(fresh_node, disk_of):
    fresh_node(num_cpus=1, object_store_memory=32 * MIB, _temp_dir=str(disk_of(48)))
    with pytest.raises(OutOfDiskError) as caught:
        hoplo.put(filled(1, 64))
    text = str(caught.value)
    for part in ("64.0 MiB are wanted", "32.0 MiB", "No space left", "free disk space"):
        assert part in text
    ref = hoplo.put(filled(2, 40))
    assert is_filled(hoplo.get(ref), 2)
    del ref
    hoplo.shutdown()


# ---------------------------------------------------------------- the disk


def test_a_few_objects_kept_of_many_do_not_keep_the_disk_of_the_others(fresh_node):
    fresh_node(num_cpus=1, object_store_memory=8 * MIB)
    window, kept = [], []
    for i in range(500):
        # More than the store has, so that all go to the disk; all but each 25th go from there.
        window.append(hoplo.put(filled(i % 251, 1)))
        if len(window) == 24:
            if i % 25 == 0:
                kept.append((i - 23, window[0]))
            del window[0]
        if i % 50 == 49:
            live = (len(window) + len(kept)) * MIB
            eventually(lambda live=live: disk_bytes() <= 2 * live)
    assert len(kept) >= 18
    assert status()["counters"]["spills"] >= 400
    window.clear()
    page = 4096  # an object is a little over 1 MiB, and takes whole pages
    eventually(lambda: disk_bytes() <= len(kept) * (MIB + 2 * page))
    assert all(is_filled(hoplo.get(ref), i % 251) for i, ref in kept)
    kept.clear()
    eventually(lambda: disk_bytes() == 0)


def test_what_is_on_a_full_disk_can_be_read(fresh_node, disk_of):
    fresh_node(num_cpus=1, object_store_memory=64 * MIB, _temp_dir=str(disk_of(24)))
    refs = []
    more = (hoplo.put(filled(i)) for i in range(40))
    with pytest.raises(OutOfDiskError):
        refs.extend(more)
    assert status()["store"]["spilled_objects"] >= 1
    for _ in range(2):
        for i, ref in enumerate(refs):
            assert is_filled(hoplo.get(ref), i)
    views = hoplo.get(refs)
    assert [is_filled(view, i) for i, view in enumerate(views)] == [True] * len(refs)
    del refs, views
    eventually(lambda: status()["store"]["disk"] == 0)
    assert is_filled(hoplo.get(hoplo.put(filled(9))), 9)
    hoplo.shutdown()


def test_a_file_that_cannot_be_read_is_told_with_its_path_and_may_be_read_later(fresh_node):
    fresh_node(num_cpus=1, object_store_memory=16 * MIB)
    refs = [hoplo.put(filled(i)) for i in range(6)]
    eventually(lambda: status()["store"]["spilled_objects"] >= 3)
    assert "hoplo" in command_line(daemon_pid())[0]
    [name] = os.listdir(os.path.join(status()["session_dir"], "spill"))
    path = os.path.join(status()["session_dir"], "spill", name)
    with open(path, "r+b") as file:
        whole = file.read()
        file.truncate(0)
        for _ in range(2):
            with pytest.raises(hoplo.exceptions.ObjectLostError, match="spill") as caught:
                hoplo.get(refs[0])
            assert path in str(caught.value)
        file.seek(0)
        file.write(whole)
        file.flush()
    assert all(is_filled(hoplo.get(ref), i) for i, ref in enumerate(refs))
