"""The measuring program of crates/control, built if it is not there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def program() -> Path:
    """HOPLO_MEASURE names another one."""
    named = os.environ.get("HOPLO_MEASURE")
    if named:
        return Path(named)
    command = ["cargo", "build", "--release", "--locked", "-p", "hoplo-control"]
    target = os.environ.get("CARGO_TARGET_DIR", str(ROOT / "target"))
    subprocess.run([*command, "--example", "measure"], check=True, cwd=ROOT)
    return Path(target) / "release" / "examples" / "measure"


class Measure:
    """Runs it in a folder of its own, on the disk."""

    def __init__(self) -> None:
        self._program = program()
        self._folder = Path(tempfile.mkdtemp(prefix="hoplo-measure-", dir="/var/tmp"))

    def run(
        self, what: str, records: int, batch: int, fsync: str, cap: int, keep: bool = False
    ) -> dict[str, Any]:
        """`keep`: go on with what the last run left."""
        if not keep:
            shutil.rmtree(self._folder, ignore_errors=True)
        arguments = [what, str(self._folder / "store"), records, batch, fsync, cap]
        done = subprocess.run(
            [str(self._program), *map(str, arguments)],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
