"""The limit for calls: Python processes, one shared-memory ring each way, no framework.

    caller --ring of calls--> worker        a message: its length, then a pickle
           <--ring of replies--

A ring is a byte buffer with two counters, written by one side each. Who finds it empty sets its
`sleeps` word and waits on the futex of the writer's counter; who writes looks at that word. A
worker wakes its caller when it has nothing left to do, or half the ring is full, as anything would
that wants to be fast in bulk.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import pickle
import signal
from typing import Any

from player import Player
from workloads import nothing, plus_one

FUTEX_WAIT, FUTEX_WAKE, FUTEX_NUMBER = 0, 1, 202
CAPACITY = 4 << 20
FUNCTIONS = [nothing, plus_one]

syscall = ctypes.CDLL(None, use_errno=True).syscall
TAIL, HEAD, SLEEPS = 0, 8, 16  # words, a cache line apart
DATA = 4096


class Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


# A wake-up that is lost between the writer's store and its look costs this at most.
PATIENCE = ctypes.byref(Timespec(0, 2_000_000))


class Ring:
    def __init__(self) -> None:
        self._map = mmap.mmap(-1, DATA + CAPACITY)
        self.words = memoryview(self._map).cast("Q")
        self.lengths = memoryview(self._map).cast("I")
        self.bytes = memoryview(self._map)
        self._futex = ctypes.addressof(ctypes.c_uint32.from_buffer(self._map, TAIL * 8))
        self.at = 0  # this side's own counter

    def write(self, message: bytes) -> None:
        """Leaves it to the caller to `wake`; never overwrites: nobody here fills a ring."""
        size = (len(message) + 11) & ~7
        offset = self.at % CAPACITY
        if offset + size > CAPACITY:
            self.lengths[(DATA + offset) >> 2] = 0xFFFFFFFF
            self.at += CAPACITY - offset
            offset = 0
        assert self.at + size - self.words[HEAD] < CAPACITY
        self.lengths[(DATA + offset) >> 2] = len(message)
        start = DATA + offset + 4
        self.bytes[start : start + len(message)] = message
        self.at += size
        self.words[TAIL] = self.at

    def wake(self) -> None:
        if self.words[SLEEPS]:
            self.words[SLEEPS] = 0
            syscall(FUTEX_NUMBER, ctypes.c_void_p(self._futex), FUTEX_WAKE, 1, None, None, 0)

    def empty(self) -> bool:
        return self.words[TAIL] == self.at

    def read(self) -> memoryview:
        """The next message, valid until the next read; sleeps while there is none."""
        words = self.words
        words[HEAD] = self.at
        while True:
            tail = words[TAIL]
            if tail != self.at:
                break
            words[SLEEPS] = 1
            if words[TAIL] == tail:
                low = ctypes.c_uint32(tail & 0xFFFFFFFF)
                futex = ctypes.c_void_p(self._futex)
                syscall(FUTEX_NUMBER, futex, FUTEX_WAIT, low, PATIENCE, None, 0)
            words[SLEEPS] = 0
        offset = self.at % CAPACITY
        length = self.lengths[(DATA + offset) >> 2]
        if length == 0xFFFFFFFF:
            self.at += CAPACITY - offset
            offset = 0
            length = self.lengths[DATA >> 2]
        self.at += (length + 11) & ~7
        return self.bytes[DATA + offset + 4 : DATA + offset + 4 + length]


class Worker:
    """The caller's end of one worker."""

    def __init__(self) -> None:
        self.calls, self.replies = Ring(), Ring()
        self.pid = os.fork()
        if self.pid == 0:
            self._work()

    def submit(self, call: int, function: int, arguments: tuple[Any, ...]) -> None:
        self.calls.write(pickle.dumps((call, function, arguments), 5))
        self.calls.wake()

    def reply(self) -> tuple[int, Any]:
        return pickle.loads(self.replies.read())

    def _work(self) -> None:
        calls, replies = self.calls, self.replies
        since_wake = 0
        while True:
            call, function, arguments = pickle.loads(calls.read())
            reply = pickle.dumps((call, FUNCTIONS[function](*arguments)), 5)
            replies.write(reply)
            since_wake += len(reply)
            if calls.empty() or since_wake > CAPACITY // 2:
                replies.wake()
                since_wake = 0


play = Player()


def _rings(count: int) -> list[Worker]:
    return [Worker() for _ in range(count)]


def _end(workers: list[Worker]) -> None:
    for worker in workers:
        os.kill(worker.pid, signal.SIGKILL)
        os.waitpid(worker.pid, 0)


def _one_at_a_time():
    (worker,) = workers = _rings(1)

    def run(count):
        for call in range(count):
            worker.submit(call, 0, ())
            assert worker.reply()[0] == call

    yield run
    _end(workers)


@play.measure("one")
def _():
    yield from _one_at_a_time()


@play.measure("one.pinned")
def _():
    # Both processes on one core: a wake-up is a context switch there, and no interrupt.
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    yield from _one_at_a_time()
    os.sched_setaffinity(0, cores)


@play.measure("latency")
def _():
    from ray_like import latencies

    (worker,) = workers = _rings(1)

    def once():
        worker.submit(0, 0, ())
        worker.reply()

    yield lambda count: {"latencies": latencies(once, count)}
    _end(workers)


for how_many in (1, 2):

    @play.measure(f"batch.{how_many}")
    def _(how_many=how_many):
        workers = _rings(how_many)

        def run(count):
            for call in range(count):
                workers[call % how_many].submit(call, 1, (call,))
            results = {}
            for call in range(count):
                got, value = workers[call % how_many].reply()
                results[got] = value
            assert results[count - 1] == count

        yield run
        _end(workers)


if __name__ == "__main__":
    play.serve()
