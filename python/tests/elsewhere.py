"""The shared node as two: all work of a module's tests runs on another node than their driver's.

    HOPLO_TESTS_ELSEWHERE=1 pytest python/tests/test_tasks.py

The driver is on a head without CPUs; a node that joins it has what the module's NODE says. A test
is marked `near` if it means one node: it asks the driver's node what that itself has or runs, looks
into a folder of it, or is about what does not cross nodes (a dead owner's task runs again only at
its own node). Modules that start nodes themselves, or need none, are left out.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hoplo

# A machine that is a folder, as tests of clusters have it.
sys.path.append(str(Path(__file__).resolve().parents[2] / "tests" / "cluster"))
from machines import Machine

# What `init` calls it, and `hoplo start`.
AMOUNTS = ("num_cpus", "num_gpus", "memory", "object_store_memory")
TABLES = ("resources", "labels")


def wanted() -> bool:
    return os.environ.get("HOPLO_TESTS_ELSEWHERE") == "1"


def concerns(item: Any) -> bool:
    alone = getattr(item.module, "NODE", {}) is None
    return not alone and item.get_closest_marker("near") is None


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
    folder = Path(tempfile.mkdtemp(prefix="hoplo-far-"))
    home = Path(os.environ["HOME"])
    near = Machine(Path(os.environ["HOPLO_TMPDIR"]), home, host="127.0.0.1", cpus=0)
    far = Machine(folder, home)
    store = str(options.get("object_store_memory", 512 << 20))
    try:
        joining = near.head("--num-gpus", "0", "--memory", "1", "--object-store-memory", store)
        far.join(joining, *_flags({"num_cpus": 4, "num_gpus": 0, **options}))
        rest = {name: options[name] for name in options if name not in (*AMOUNTS, *TABLES)}
        yield hoplo.init(address=str(near.session), **rest)
    finally:
        hoplo.shutdown()
        far.leave()
        near.leave()
        shutil.rmtree(folder, ignore_errors=True)
