"""Code that closes descriptors that it did not open."""

from __future__ import annotations

import os

import pytest
from conftest import eventually, run_driver
from processes import alive

import hoplo
from hoplo.exceptions import ActorDiedError, WorkerCrashedError

NODE = {"num_cpus": 2}
MIB = 1 << 20


@hoplo.remote
def work(value=None):
    return os.getpid()


def test_a_task_that_closed_low_descriptors_jammed_the_node():
    @hoplo.remote(max_retries=0)
    def close():
        os.closerange(3, 100)
        # Nested calls and large values are told to the daemon.
        return hoplo.get(work.remote()), bytes(MIB)

    for _ in range(3):
        _, value = hoplo.get(close.remote(), timeout=30)
        assert len(value) == MIB
    assert hoplo.get([work.remote() for _ in range(10)], timeout=30)


def test_a_task_that_closed_all_descriptors_jammed_the_node(tmp_path):
    @hoplo.remote(max_retries=1)
    def close():
        (tmp_path / str(os.getpid())).touch()
        os.closerange(3, 1 << 16)
        return hoplo.get(work.remote()), bytes(MIB)

    told = r"(?s)exited with code 1\b.*closed a descriptor that it had not opened"
    with pytest.raises(WorkerCrashedError, match=told):
        hoplo.get(close.remote(), timeout=30)
    pids = [int(path.name) for path in tmp_path.iterdir()]
    assert len(pids) == 2
    eventually(lambda: not any(alive(pid) for pid in pids))
    assert len(hoplo.get([work.remote() for _ in range(10)], timeout=30)) == 10
    assert len(hoplo.get(hoplo.remote(lambda: bytes(MIB)).remote(), timeout=30)) == MIB


def test_an_actor_that_closed_all_descriptors_dies_of_it():
    @hoplo.remote
    class Closer:
        def close(self):
            os.closerange(3, 1 << 16)

        def store(self):
            return hoplo.put(bytes(MIB))

    closer = Closer.remote()
    calls = [closer.close.remote(), *(closer.store.remote() for _ in range(3))]
    told = r"(?s)exited with code 1\b.*closed a descriptor that it had not opened"
    with pytest.raises(ActorDiedError, match=told):
        hoplo.get(
            calls, timeout=30
        )  # if the daemon says something meanwhile, the first one fails, too


def test_files_that_got_the_numbers_of_closed_descriptors_were_read_as_objects_and_closed():
    out = run_driver(
        """
import gc, os, tempfile
import numpy as np
import hoplo
from hoplo.exceptions import HoploError

hoplo.init(num_cpus=1, object_store_memory=64 << 20)
refs = [hoplo.put(np.full(8 << 20, i, "uint8")) for i in range(12)]  # some lie on the disk
os.closerange(3, 100)
files = [tempfile.TemporaryFile() for _ in range(90)]
for file in files:
    file.truncate(1 << 28)
lost = set()
for i, ref in enumerate(refs):
    try:
        assert (hoplo.get(ref) == i).all()
    except HoploError as error:
        lost.add(str(error))
print(lost)
del refs, ref
hoplo.shutdown()
gc.collect()
for file in files:
    os.fstat(file.fileno())
print("they are open")
"""
    ).stdout
    assert "closed a descriptor that it had not opened" in out
    assert out.endswith("they are open\n")
