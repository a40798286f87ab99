"""The disk refuses more: who asked is told, nothing is lost, and freed room is used again."""

from __future__ import annotations

import errno
import os
import resource
import subprocess

import numpy as np
import pytest
from conftest import HOPLO, eventually
from processes import daemon_pid

import hoplo
from hoplo.exceptions import ObjectStoreFullError, OutOfDiskError

NODE = None
MIB = 1 << 20


def block(i):
    return np.full(8 * MIB, i, "uint8")


def limit_files(bytes_):
    """Lets the daemon write no file beyond this size: its disk is as good as full."""
    hard = resource.prlimit(daemon_pid(), resource.RLIMIT_FSIZE)[1]
    resource.prlimit(daemon_pid(), resource.RLIMIT_FSIZE, (bytes_, hard))


def fill(refs):
    for i in range(len(refs), 40):
        refs.append(hoplo.put(block(i)))


def test_put_tells_who_holds_what_and_nothing_is_lost(fresh_node):
    fresh_node(num_cpus=1, object_store_memory=64 * MIB)
    hoplo.get(hoplo.put(block(0)))
    limit_files(20 * MIB)
    refs = []
    with pytest.raises(OutOfDiskError) as caught:
        fill(refs)
    assert isinstance(caught.value, ObjectStoreFullError)
    text = str(caught.value)
    assert os.strerror(errno.EFBIG).lower() in text.lower()
    assert "holds" in text
    assert "free disk space" in text
    assert "drop refs" in text
    assert "object_store_memory" in text
    assert len(refs) >= 6
    # It goes on as soon as there is room, in the store or on the disk; and nothing was lost.
    del refs[4:]
    for i, ref in enumerate(refs):
        value = hoplo.get(ref)
        assert value[0] == value[-1] == i
        del value
    assert hoplo.get(hoplo.put(block(99)))[-1] == 99
    limit_files(resource.RLIM_INFINITY)
    fill(refs)


def test_a_task_whose_result_has_no_room_fails_with_it(fresh_node):
    fresh_node(num_cpus=1, object_store_memory=64 * MIB)

    @hoplo.remote(max_retries=0)
    def make(i):
        return block(i)

    hoplo.get(hoplo.put(block(0)))
    limit_files(1 * MIB)
    refs = [make.remote(i) for i in range(12)]
    errors = []
    for i, ref in enumerate(refs):
        try:
            assert hoplo.get(ref)[-1] == i
        except OutOfDiskError as error:
            errors.append(str(error))
    assert 3 <= len(errors) <= 8
    assert all("free disk space" in text for text in errors)
    refs.clear()
    eventually(lambda: hoplo.get(make.remote(1))[0] == 1)


def start_on_a_small_disk(folder, size, fill=0):
    """What `hoplo start --head` says in a filesystem of its own, of which `fill` bytes are used."""
    folder.mkdir()
    mount = f"mount -t tmpfs -o {size},mode=0700 none {folder}"
    if subprocess.run(["unshare", "-m", "sh", "-c", mount], capture_output=True).returncode != 0:
        pytest.skip("a small filesystem cannot be mounted here")
    fills = f"head -c {fill} /dev/zero > {folder}/fill"
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", f"{mount} && {fills} && {HOPLO} start --head --num-cpus 1"],
        env={**os.environ, "HOPLO_TMPDIR": str(folder / "h")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1, done
    assert str(folder / "h") in done.stderr
    assert os.strerror(errno.ENOSPC) in done.stderr
    return done.stderr


def test_a_head_that_cannot_write_its_tables_did_not_say_on_which_disk(node, tmp_path):
    """It must write its number before anybody sees it."""
    assert node is None
    folder = tmp_path / "disk"
    text = start_on_a_small_disk(folder, "size=8k")
    assert f"0 B are free on the filesystem of {folder}: delete something there" in text
    assert "--session-dir" in text


# The base, its head file, the session's folder, its lock, its logs, its socket, the control store;
# or no byte at all.
@pytest.mark.parametrize("files", [*range(2, 9), None])
def test_a_head_on_a_full_disk_did_not_say_which_file_it_could_not_write(node, tmp_path, files):
    assert node is None
    folder = tmp_path / "disk"
    if files is None:
        text = start_on_a_small_disk(folder, "size=4k", fill=4096)
    else:
        text = start_on_a_small_disk(folder, f"size=4k,nr_inodes={files}")
    assert text.startswith("hoplo: the node daemon cannot start: "), text
    assert "elete something there, or " in text
