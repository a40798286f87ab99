"""The shared node as two: all work of a module's tests runs on another node than their driver's.

    HOPLO_TESTS_ELSEWHERE=1 pytest python/tests/test_tasks.py

The driver is on a head without CPUs; a node that joins it has what the module's NODE says. A test
is marked `near` if it means one node: it asks the driver's node what that itself has or runs, looks
into a folder of it, or is about what does not cross nodes (a dead owner's task runs again only at
its own node). Modules that start nodes themselves are left out.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hoplo

HOPLO = os.path.join(sysconfig.get_path("scripts"), "hoplo")
# What `init` calls it, and `hoplo start`.
AMOUNTS = ("num_cpus", "num_gpus", "memory", "object_store_memory")
TABLES = ("resources", "labels")


def wanted() -> bool:
    return os.environ.get("HOPLO_TESTS_ELSEWHERE") == "1"


def concerns(item: Any) -> bool:
    alone = getattr(item.module, "NODE", {}) is None
    return not alone and item.get_closest_marker("near") is None


def _hoplo(folder: Path, *arguments: str) -> str:
    folder.mkdir(mode=0o700, exist_ok=True)
    variables = {**os.environ, "HOPLO_TMPDIR": str(folder)}
    done = subprocess.run(
        [HOPLO, *arguments], capture_output=True, text=True, timeout=30, check=True, env=variables
    )
    return done.stdout


def _flags(options: dict[str, Any]) -> Iterator[str]:
    for name in AMOUNTS:
        if name in options:
            yield from ("--" + name.replace("_", "-"), str(options[name]))
    for name in TABLES:
        if name in options:
            yield from ("--" + name, json.dumps(options[name]))


@contextlib.contextmanager
def nodes(options: dict[str, Any]) -> Iterator[Any]:
    """The context that `init` gave, of a driver beside whom nothing can run."""
    near = Path(os.environ["HOPLO_TMPDIR"])
    far = Path(tempfile.mkdtemp(prefix="hoplo-far-"))
    store = str(options.get("object_store_memory", 512 << 20))
    flags = ("--num-cpus", "0", "--num-gpus", "0", "--memory", "1", "--object-store-memory", store)
    said = _hoplo(near, "start", "--head", "--host", "127.0.0.1", "--port", "0", *flags)
    join = next(line for line in said.splitlines() if line.startswith("Join it")).split()
    begin = join[join.index("--address") :]
    try:
        _hoplo(far, "start", *begin, *_flags({"num_cpus": 4, "num_gpus": 0, **options}))
        rest = {name: options[name] for name in options if name not in (*AMOUNTS, *TABLES)}
        session = next(line for line in said.splitlines() if str(near) in line).split()[-1]
        yield hoplo.init(address=session, **rest)
    finally:
        hoplo.shutdown()
        _hoplo(far, "stop")
        _hoplo(near, "stop")
        shutil.rmtree(far, ignore_errors=True)
