"""What a put waits for when every member syncs its log and others use the disk (`--fsync always`).

One client has one request in flight: puts of 512 bytes, to a chain of one and of two members, which
sync one after the other. In the same time a program appends 600 bytes to a file of its own and
calls `fdatasync`, again and again: so much is the disk's. On the busy disk another one writes and
syncs 8 MiB at a time, in bounded room. What is above the disk's share, once for each member, is
ours.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness import HERE, Question, Row

sys.path.insert(0, str(HERE / "players"))
from control_cluster import ControlCluster, scheduling

SECONDS_MAX = 120
"""Whatever happens, what runs beside the client ends."""

ROOM_BYTES = 128 << 20
PIECE_BYTES = 8 << 20
RECORD_BYTES = 600


def writes(path: Path) -> None:
    """Until it is killed: as much as the disk takes."""
    deadline = time.monotonic() + SECONDS_MAX
    file, piece, at = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), bytes(PIECE_BYTES), 0
    while time.monotonic() < deadline:
        os.pwrite(file, piece, at)
        os.fdatasync(file)
        at = (at + PIECE_BYTES) % ROOM_BYTES


def syncs(path: Path) -> None:
    """Until it is killed: one line for each small write that is on disk, in us."""
    deadline = time.monotonic() + SECONDS_MAX
    file = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)
    os.posix_fallocate(file, 0, ROOM_BYTES)
    os.fsync(file)
    record, at = bytes(RECORD_BYTES), 0
    while time.monotonic() < deadline:
        began = time.monotonic()
        os.pwrite(file, record, at)
        os.fdatasync(file)
        print(round((time.monotonic() - began) * 1e6), flush=True)
        at = (at + RECORD_BYTES) % (ROOM_BYTES - RECORD_BYTES)


def beside(what: str, path: Path) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, what, str(path)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def measured(members: int, busy: bool, seconds: float) -> tuple[list[float], list[float]]:
    """Milliseconds of each put, and of each bare sync beside them."""
    cluster = ControlCluster(members, "always")
    with tempfile.TemporaryDirectory(prefix="hoplo-commit-") as folder:
        others = [beside("syncs", Path(folder) / "small")]
        if busy:
            others.append(beside("writes", Path(folder) / "large"))
        try:
            seen = cluster.bench("--mode", "latency", "--seconds", str(seconds))
        finally:
            for other in others:
                other.kill()
            printed, _ = others[0].communicate()
            for other in others:
                other.wait()
            cluster.close()
    assert not seen["errors"], seen["errors"]
    # The last line may have been cut off by the kill.
    lines = printed.splitlines()[:-1]
    return [took / 1e3 for _, took in seen["samples"]], [int(line) / 1e3 for line in lines]


def main() -> None:
    question = Question("control_commit", "Control store: commits on a busy disk", {})
    seconds = 2 if question.options.quick else 15
    for busy in (False, True):
        for members in (1, 2):
            disk = "busy" if busy else "quiet"
            puts, bare = measured(members, busy, seconds)
            for name, at in (("median", 0.5), ("99th percentile", 0.99), ("worst", 1.0)):
                row = Row(f"a put, chain of {members}, {disk} disk, {name}", "ms", {})
                for column, took in (("hoplo", puts), ("write + fdatasync", bare)):
                    row.values[column] = [sorted(took)[int(at * (len(took) - 1))]]
                row.note = f"{len(puts)} puts, {len(bare)} bare syncs beside them"
                question.add(row)
            ratio = statistics.fmean(puts) / statistics.fmean(bare)
            print(f"chain of {members}, {disk} disk: a put takes {ratio:.2f} bare syncs on average")
    question.facts["scheduling"] = scheduling()
    question.finish()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["writes", path]:
            writes(Path(path))
        case ["syncs", path]:
            syncs(Path(path))
        case _:
            main()
