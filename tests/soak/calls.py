"""What the random programs call: functions and classes, whose results plain Python computes too.

A function that is given refs inside a value fetches them by `plain`, which leaves plain values as
they are: so the same code runs remotely and here. Workers import this module.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

import hoplo


def plain(value: Any) -> Any:
    """The value with every ref in it replaced by what it refers to."""
    if isinstance(value, hoplo.ObjectRef):
        return plain(hoplo.get(value))
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, tuple):
        return tuple(plain(item) for item in value)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value


def same(left: Any, right: Any) -> bool:
    if type(left) is not type(right):
        return False
    if isinstance(left, np.ndarray):
        return left.dtype == right.dtype and bool(np.array_equal(left, right))
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    return bool(left == right)


def shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 300 else f"{text[:300]}... ({len(text)} characters)"


# ------------------------------------------------------------------------------- values


def pattern(seed: int, size: int) -> np.ndarray[Any, Any]:
    """`size` bytes that repeat nowhere near."""
    words = np.arange(size // 8 + 1, dtype="uint64")
    return ((words + np.uint64(seed)) * np.uint64(0x9E3779B97F4A7C15)).view("uint8")[:size]


def text(seed: int, size: int) -> bytes:
    return pattern(seed, size).tobytes()


def small(seed: int) -> Any:
    choices = [
        seed,
        -seed * 10**20,
        seed / 7,
        f"text {seed}",
        None,
        (seed, "a"),
        {"k": [seed, True]},
    ]
    return choices[seed % len(choices)]


# ------------------------------------------------------------------------------- functions


def digest(value: Any) -> int:
    """One number for any value, whatever refs lie in it."""
    value = plain(value)
    if isinstance(value, np.ndarray):
        return zlib.crc32(np.ascontiguousarray(value).data)
    if isinstance(value, bytes):
        return zlib.crc32(value)
    if isinstance(value, (list, tuple)):
        return zlib.crc32(repr([digest(item) for item in value]).encode())
    if isinstance(value, dict):
        return digest(sorted((str(key), digest(item)) for key, item in value.items()))
    return zlib.crc32(repr(value).encode())


def digests(*values: Any) -> list[int]:
    return [digest(value) for value in values]


def changed(value: Any, by: int) -> Any:
    """A new value of the same size, if it has one."""
    if isinstance(value, np.ndarray):
        return value + np.uint8(by)
    if isinstance(value, bytes):
        return bytes([by]) + value[1:]
    return (digest(value), by)


def two(value: Any, seed: int) -> tuple[Any, Any]:
    return changed(value, 1), small(seed)


def raises(number: int) -> Any:
    raise KeyError(number)


def tree(depth: int, seed: int, size: int) -> int:
    """Tasks that call tasks and wait for them."""
    if depth == 0:
        return digest(pattern(seed, size))
    below = [task(tree).remote(depth - 1, 2 * seed + i, size) for i in range(2)]
    return sum(hoplo.get(below)) % 2**32


def tree_plain(depth: int, seed: int, size: int) -> int:
    if depth == 0:
        return digest(pattern(seed, size))
    return sum(tree_plain(depth - 1, 2 * seed + i, size) for i in range(2)) % 2**32


def scattered(seed: int, sizes: list[int]) -> list[Any]:
    """Refs inside a result: of a put, and of tasks that may not have run when it is returned."""
    refs: list[Any] = []
    for i, size in enumerate(sizes):
        if i % 2:
            refs.append(hoplo.put(pattern(seed + i, size)))
        else:
            refs.append(task(pattern).remote(seed + i, size))
    return refs


def scattered_plain(seed: int, sizes: list[int]) -> list[Any]:
    return [pattern(seed + i, size) for i, size in enumerate(sizes)]


def stream(seed: int, sizes: list[int]) -> Iterator[Any]:
    for i, size in enumerate(sizes):
        yield pattern(seed + i, size)


def never() -> None:
    """For as long as nobody cancels it."""
    import threading

    while True:
        threading.Event().wait(0.01)


def ask_by_name(name: str, argument: Any) -> Any:
    return hoplo.get(hoplo.get_actor(name).answer.remote(argument))


def task(function: Any) -> Any:
    return hoplo.remote(max_retries=-1)(function)


# ------------------------------------------------------------------------------- actors


class Keeper:
    """Its answers depend on how it was made and on what it is asked: a call may run twice."""

    def __init__(self, seed: int, size: int, boxed: list[Any]) -> None:
        self.own = pattern(seed, size)
        self.given = plain(boxed)

    def answer(self, argument: Any) -> list[int]:
        return [digest(self.own), digest(self.given), digest(argument)]

    def give(self, by: int) -> Any:
        return changed(self.own, by)


class AsyncKeeper(Keeper):
    async def answer(self, argument: Any) -> list[int]:  # type: ignore[override]
        import asyncio

        await asyncio.sleep(0)
        if isinstance(argument, list):
            argument = [await item for item in argument]
        return [digest(self.own), digest(self.given), digest(argument)]


class Counter:
    """Its answers depend on what came before: its calls must not run twice."""

    def __init__(self) -> None:
        self.count = 0

    def add(self) -> int:
        self.count += 1
        return self.count


class Ledger:
    """Its state is what it was told: what took effect, how often, and in which order."""

    def __init__(self) -> None:
        self.entries: list[Any] = []

    def checkpoint(self) -> list[Any]:
        return self.entries

    def restore(self, state: list[Any]) -> None:
        self.entries = state

    def add(self, entry: Any) -> int:
        """At which place it stands."""
        self.entries.append(entry)
        return len(self.entries)

    def all(self) -> list[Any]:
        return self.entries

    def pid(self) -> int:
        return os.getpid()


def adds(ledger: Any, name: int, count: int) -> list[int]:
    return [hoplo.get(ledger.add.remote((name, one))) for one in range(count)]
