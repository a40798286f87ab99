"""A program's arrays after `shutdown()`, on a node that goes on for others."""

from __future__ import annotations

import gc
import json
import os

import numpy as np
from conftest import command, eventually

import hoplo

NODE = None

ITEMS = 2_000_000


def status():
    return json.loads(command("status", "--json").stdout)


def store_bytes():
    """Bytes of memory that the store takes."""
    return status()["store"]["in_memory"]


def others():
    return [hoplo.put(np.full(ITEMS, 7)) for _ in range(6)]


def are_whole(refs):
    return all((value == 7).all() for value in hoplo.get(refs))


def test_an_array_stays_what_it_is(head):
    """Its memory was given to others at once."""
    head("--num-cpus", "1")
    hoplo.init(address="auto")
    view = hoplo.get(hoplo.put(np.arange(ITEMS)))
    hoplo.shutdown()
    hoplo.init(address="auto")
    refs = others()
    assert (view == np.arange(ITEMS)).all()
    assert are_whole(refs)


def test_what_a_program_writes_to_its_own_arrays_changes_nobody_elses(head):
    """An array of `empty` that was never put lay where others' objects lay then."""
    head("--num-cpus", "1")
    hoplo.init(address="auto")
    room = hoplo.empty(ITEMS, "int64")
    room[:] = 1
    hoplo.shutdown()
    hoplo.init(address="auto")
    refs = others()
    assert (room == 1).all()
    room[:] = 99
    assert are_whole(refs)
    assert (room == 99).all()


def test_the_memory_is_the_nodes_again_when_the_last_array_goes(head):
    head("--num-cpus", "1")
    hoplo.init(address="auto")
    view = hoplo.get(hoplo.put(np.arange(ITEMS)))
    room = hoplo.empty(ITEMS, "int64")
    room[:] = 1
    hoplo.shutdown()
    assert store_bytes() >= 2 * 8 * ITEMS
    del view
    gc.collect()
    assert store_bytes() >= 8 * ITEMS
    del room
    gc.collect()
    eventually(lambda: store_bytes() == 0)


def test_sessions_of_one_program_leave_nothing_in_the_daemon(head):
    head("--num-cpus", "1")
    files = f"/proc/{status()['pid']}/fd"

    def session():
        hoplo.init(address="auto")
        view = hoplo.get(hoplo.put(np.arange(100_000)))
        hoplo.shutdown()
        assert view[-1] == 99_999

    session()
    before = len(os.listdir(files))
    for _ in range(20):
        session()
    gc.collect()
    eventually(lambda: len(os.listdir(files)) <= before)
    eventually(lambda: store_bytes() == 0)
