"""Pools without another name, pools that end under their callers, pools that have no room."""

from __future__ import annotations

import pytest
from conftest import run_driver

NODE = None


def printed(code: str, **options) -> list[str]:
    """What a program printed that must end by itself, and say nothing on standard error."""
    done = run_driver(
        "import hoplo\nfrom hoplo.util.multiprocessing import Pool\n" + code, **options
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    "expression",
    [
        "list(Pool(2).imap(abs, range(-3, 3)))",
        "sorted(Pool(2).imap_unordered(abs, range(-3, 3)), reverse=True)",
        "Pool(2).map_async(abs, range(-3, 3)).get()",
        "Pool(2).starmap_async(max, zip(range(-3, 3), [0] * 6)).get()",
        "[Pool(1).apply_async(abs, (x,)).get() for x in range(-3, 3)]",
    ],
)
def test_a_pool_that_only_its_results_held_was_terminated_under_them(expression):
    lines = printed(f"hoplo.init(num_cpus=2)\nprint(len({expression}))")
    assert lines == ["6"]


def test_terminate_left_who_waited_to_wait_for_ever():
    lines = printed(
        """
import time
hoplo.init(num_cpus=2)
pool = Pool(2)
single = pool.apply_async(time.sleep, (3600,))
many = pool.map_async(time.sleep, [3600] * 20)
lazy = pool.imap(time.sleep, iter(lambda: 3600, None))
told = []
failing = pool.apply_async(time.sleep, (3600,), error_callback=told.append)
pool.terminate()
for result in (single.get, many.get, lazy.next, failing.get):
    try:
        result(timeout=30)
    except RuntimeError as error:
        print(error)
print(len(told))
"""
    )
    assert lines == ["the pool was terminated before this result was there"] * 4 + ["1"]


@pytest.mark.parametrize(
    "end", ["", "pool.close()", "hoplo.shutdown()", "del pool", "raise SystemExit"]
)
def test_a_program_that_ended_beside_a_busy_pool_printed_a_threads_traceback(end):
    code = f"""
import time
hoplo.init(num_cpus=2)
pool = Pool(2, maxtasksperchild=1)
assert pool.map(abs, [-1]) == [1]
results = pool.map_async(abs, range(10_000), chunksize=1)
sleeping = pool.imap(time.sleep, [3600] * 10)
{end}
"""
    assert printed(code) == []


def test_a_pool_whose_session_was_shut_down_began_another_and_lost_a_result():
    lines = printed(
        """
hoplo.init(num_cpus=1)
pool = Pool(1, maxtasksperchild=1)
make_actor = pool._dispatcher.make_actor
def late():
    hoplo.shutdown()
    return make_actor()
pool._dispatcher.make_actor = late
# Its worker is used up, and the next one comes too late.
print(pool.apply_async(abs, (-1,)).get(timeout=30))
pool._dispatcher.join()
print(hoplo.is_initialized())
try:
    pool.apply_async(abs, (-1,)).get(timeout=30)
except RuntimeError as error:
    print(error)
"""
    )
    assert lines == ["1", "False", "hoplo was shut down, and this thread begins no new session"]


def test_a_pool_that_was_terminated_when_its_session_was_gone_printed_a_threads_traceback():
    lines = printed(
        """
hoplo.init(num_cpus=1)
pool = Pool(1)
assert pool.map(abs, [-1]) == [1]
hoplo.shutdown()
hoplo.init(num_cpus=1)
pool.terminate()
"""
    )
    assert lines == []


@pytest.mark.parametrize("end", ["", "hoplo.shutdown()"])
def test_the_thread_of_a_pool_was_ended_in_the_middle_of_a_call(end):
    lines = printed(
        f"""
import atexit
import threading
hoplo.init(num_cpus=1)
pools = []
# Runs after what the pool and hoplo do at the end of the program.
atexit.register(lambda: print(len(pools), [t.name for t in threading.enumerate() if t.daemon]))
pools.append(Pool(1))
{end}
"""
    )
    assert lines == ["1 []"]


def test_shutdown_left_who_waited_for_a_pool_to_wait_for_ever():
    lines = printed(
        """
import time
hoplo.init(num_cpus=1)
pool = Pool(1)
result = pool.map_async(time.sleep, [3600] * 4)
hoplo.shutdown()
try:
    result.get(timeout=30)
except hoplo.exceptions.HoploError:
    print("failed")
except RuntimeError:
    print("failed")
try:
    pool.map(abs, [1])
except Exception as error:
    print("refused")
"""
    )
    assert lines == ["failed", "refused"]


def test_a_pool_of_more_processes_than_cpus_never_returned():
    assert printed("hoplo.init(num_cpus=2)\nwith Pool(7) as p: print(p.map(abs, range(9)))") == [
        "[0, 1, 2, 3, 4, 5, 6, 7, 8]"
    ]


def test_all_workers_of_a_pool_run_at_once_however_few_the_cpus():
    lines = printed(
        """
hoplo.init(num_cpus=2)

@hoplo.remote(num_cpus=0)
class Meeting:
    def __init__(self): self.here, self.all = 0, __import__("asyncio").Event()
    async def come(self):
        self.here += 1
        if self.here == 5: self.all.set()
        await self.all.wait()
        return self.here

meeting = Meeting.remote()
with Pool(5) as pool:
    print(pool.map(lambda _: hoplo.get(meeting.come.remote()), range(5), chunksize=1))
"""
    )
    assert lines == ["[5, 5, 5, 5, 5]"]


def test_a_pool_whose_cpus_others_hold_gave_calls_to_workers_that_never_came():
    lines = printed(
        """
hoplo.init(num_cpus=2)

@hoplo.remote(num_cpus=1)
class Holder:
    def ready(self): return True

holder = Holder.remote()
hoplo.get(holder.ready.remote())
with Pool(2, actor_options={"num_cpus": 1}) as pool:  # one of its workers finds no CPU
    print(pool.map(abs, range(20), chunksize=1) == list(range(20)))
"""
    )
    assert lines == ["True"]


def test_a_pool_within_the_calls_of_a_pool_found_no_cpu():
    lines = printed(
        """
def inner(x):
    with Pool() as pool:
        return sum(pool.map(abs, range(x)))

def outer(x):
    with Pool() as pool:
        return sum(pool.map(inner, range(x)))

hoplo.init(num_cpus=1)
with Pool() as pool:
    print(pool.map(outer, range(5)))
with Pool(2) as pool:
    print(list(pool.imap(inner, range(5))))
"""
    )
    assert lines == ["[0, 0, 0, 1, 4]", "[0, 0, 1, 3, 6]"]


def test_a_chunk_waited_behind_one_that_waited_for_it():
    lines = printed(
        """
hoplo.init(num_cpus=3)

@hoplo.remote
class Signal:
    def __init__(self): self.sent = __import__("asyncio").Event()
    async def send(self): self.sent.set()
    async def wait(self): await self.sent.wait()

signal = Signal.remote()
order = ["wait", "other", "other", "other", "send", "other"]

def call(what):
    if what == "wait":
        hoplo.get(signal.wait.remote())
    elif what == "send":
        hoplo.get(signal.send.remote())
    return what

with Pool(2) as pool:
    print(pool.map(call, order, chunksize=1) == order)
    print(pool.map(abs, range(1000), chunksize=1) == list(range(1000)))
"""
    )
    assert lines == ["True", "True"]
