"""How many calls a second: tasks, actor calls, objects; beside what the standard library does.

One run interleaves nothing but rounds; numbers are medians. Rivals that need no framework run in the
same process: `ProcessPoolExecutor` and `multiprocessing.Pool`.
"""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import harness
import hoplo


@hoplo.remote
def nothing() -> None:
    return None


@hoplo.remote
def add_one(x: int) -> int:
    return x + 1


@hoplo.remote
class Counter:
    def __init__(self) -> None:
        self.count = 0

    def add(self, x: int = 1) -> int:
        self.count += x
        return self.count


@hoplo.remote
class AsyncCounter:
    async def add(self, x: int = 1) -> int:
        return x


def plain(x: int) -> int:
    return x + 1


def chain(length: int) -> int:
    ref = hoplo.put(0)
    for _ in range(length):
        ref = add_one.remote(ref)
    return hoplo.get(ref)


def main() -> None:
    hoplo.init(num_cpus=2)
    counter, asynchronous = Counter.remote(), AsyncCounter.remote()
    small = hoplo.put(1)
    rows = [
        harness.measure(
            "task, submit and get, one at a time",
            "/s",
            lambda: harness.rate(500, lambda: [hoplo.get(nothing.remote()) for _ in range(500)]),
        ),
        harness.measure(
            "1,000 tasks, then get all",
            "/s",
            lambda: harness.rate(1000, lambda: hoplo.get([nothing.remote() for _ in range(1000)])),
        ),
        harness.measure(
            "1,000 tasks with an int, then get all",
            "/s",
            lambda: harness.rate(
                1000, lambda: hoplo.get([add_one.remote(i) for i in range(1000)])
            ),
        ),
        harness.measure(
            "20,000 tasks queued at once",
            "/s",
            lambda: harness.rate(
                20_000, lambda: hoplo.get([nothing.remote() for _ in range(20_000)])
            ),
            rounds=3,
        ),
        harness.measure(
            "chain of 100 dependent tasks", "/s", lambda: harness.rate(100, lambda: chain(100))
        ),
        harness.measure(
            "actor call, one at a time",
            "/s",
            lambda: harness.rate(
                500, lambda: [hoplo.get(counter.add.remote()) for _ in range(500)]
            ),
        ),
        harness.measure(
            "1,000 actor calls, then get all",
            "/s",
            lambda: harness.rate(
                1000, lambda: hoplo.get([counter.add.remote() for _ in range(1000)])
            ),
        ),
        harness.measure(
            "1,000 actor calls with a ref, then get all",
            "/s",
            lambda: harness.rate(
                1000, lambda: hoplo.get([counter.add.remote(small) for _ in range(1000)])
            ),
        ),
        harness.measure(
            "async actor call, one at a time",
            "/s",
            lambda: harness.rate(
                200, lambda: [hoplo.get(asynchronous.add.remote()) for _ in range(200)]
            ),
        ),
        harness.measure(
            "1,000 async actor calls, then get all",
            "/s",
            lambda: harness.rate(
                1000, lambda: hoplo.get([asynchronous.add.remote() for _ in range(1000)])
            ),
        ),
        harness.measure(
            "put(0)", "/s", lambda: harness.rate(5000, lambda: [hoplo.put(0) for _ in range(5000)])
        ),
        harness.measure(
            "get of a small object",
            "/s",
            lambda: harness.rate(5000, lambda: [hoplo.get(small) for _ in range(5000)]),
        ),
    ]
    hoplo.shutdown()
    with ProcessPoolExecutor(2) as executor:
        rows.append(
            harness.measure(
                "ProcessPoolExecutor, 1,000 submits, then all",
                "/s",
                lambda: harness.rate(
                    1000,
                    lambda: [f.result() for f in [executor.submit(plain, i) for i in range(1000)]],
                ),
            )
        )
    with multiprocessing.get_context("fork").Pool(2) as pool:
        rows.append(
            harness.measure(
                "multiprocessing.Pool, 1,000 apply_async, then all",
                "/s",
                lambda: harness.rate(
                    1000,
                    lambda: [r.get() for r in [pool.apply_async(plain, (i,)) for i in range(1000)]],
                ),
            )
        )
    print(f"written to {harness.save('calls', rows).relative_to(Path.cwd())}")


if __name__ == "__main__":
    main()
