"""One life of one system, from import to shutdown: prints its figures as JSON.

python life.py hoplo|ray|dask SECONDS_IDLE
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any


def hoplo() -> tuple[Callable[[], Any], Callable[[], Any], Callable[[], Any]]:
    import hoplo

    def first():
        @hoplo.remote
        def one():
            return 1

        assert hoplo.get(one.remote()) == 1

    return lambda: hoplo.init(num_cpus=2), first, hoplo.shutdown


def ray():
    os.environ |= {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    import ray

    def first():
        @ray.remote
        def one():
            return 1

        assert ray.get(one.remote()) == 1

    start = lambda: ray.init(num_cpus=2, object_store_memory=1 << 30, logging_level="ERROR")  # noqa: E731
    return start, first, ray.shutdown


def dask():
    from distributed import Client

    made = []

    def start():
        made.append(Client(n_workers=2, threads_per_worker=1, dashboard_address=None))

    def first():
        assert made[0].submit(int, 1).result() == 1

    return start, first, lambda: made[0].shutdown()


def main() -> None:
    system, idle_seconds = sys.argv[1], float(sys.argv[2])
    clock = time.perf_counter
    found: dict[str, Any] = {}

    def timed(key: str, act: Callable[[], Any]) -> Any:
        start = clock()
        result = act()
        found[key] = clock() - start
        return result

    start, first, shutdown = timed("import", {"hoplo": hoplo, "ray": ray, "dask": dask}[system])
    timed("init", start)
    from processes import family, memory_mb, ticks  # after: it must not warm the import

    me = os.getpid()
    time.sleep(1.5)  # let the zygote, or whatever starts late, finish its imports
    quiet = family(me)
    before, at = ticks([*quiet, me]), time.monotonic()
    time.sleep(idle_seconds)
    spent = (ticks([*quiet, me]) - before) / os.sysconf("SC_CLK_TCK")
    found["idle"] = 100 * spent / (time.monotonic() - at)
    found["processes"] = len(quiet)
    found["resident"] = sum(memory_mb(pid, "Rss:") for pid in quiet)
    found["proportional"] = sum(memory_mb(pid, "Pss:") for pid in quiet)
    timed("first", first)
    timed("shutdown", shutdown)
    found["installed"] = installed_mb(system)
    print(json.dumps(found), flush=True)


def installed_mb(package: str) -> float | None:
    """What the package's own files take on disk; a source tree: module, package and program."""
    try:
        files = [Path(f.locate()) for f in metadata.files(package) or []]
    except metadata.PackageNotFoundError:
        import hoplo

        folder = Path(hoplo.__file__).parent
        files = [*folder.rglob("*.py"), *folder.glob("*.so"), Path(sys.executable).parent / "hoplo"]
    return sum(path.stat().st_size for path in files if path.is_file()) / 1e6


if __name__ == "__main__":
    main()
