"""Stops processes for moments: what a busy machine does to them, at the worst places.

    python hiccups.py PID SEED

They are PID and all that came from it, in turns at random, half of them a daemon's. So a process
finds, in the middle of what it does, that others did much meanwhile: they wrote, closed, died. That
breaks no promise. If an answer is wrong, it was right only as long as nobody was slow. It ends with
PID.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

LONGEST_S = 0.004
LOOKS_S = 0.1
"""So often it looks which processes there are."""


@contextlib.contextmanager
def hiccups(root: int, seed: int) -> Iterator[None]:
    """For as long as the block, from a process of its own, which nobody stops."""
    line = [sys.executable, str(Path(__file__)), str(root), str(seed)]
    process = subprocess.Popen(line, start_new_session=True)
    try:
        yield
        assert process.poll() is None, "what makes hiccups has ended"
    finally:
        process.terminate()
        process.wait()


def family(root: int, without: int) -> list[int]:
    """That process and all that came from it; daemons as often as all the others."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (words := stat(int(entry))):
            children.setdefault(int(words[1]), []).append(int(entry))
    found = [root]
    for pid in found:
        found += [child for child in children.get(pid, []) if child != without]
    daemons = [pid for pid in found if is_daemon(pid)]
    return found + daemons * (len(found) // max(1, len(daemons)))


def stat(pid: int) -> list[str]:
    """What the kernel says of it behind its name; nothing if it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def is_daemon(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False  # it has ended
    return len(words) > 1 and words[0].endswith(b"hoplo") and words[1] in (b"daemon", b"start")


def main() -> None:
    root, rng = int(sys.argv[1]), random.Random(int(sys.argv[2]))
    goes_on = True

    def end(*_: object) -> None:
        nonlocal goes_on
        goes_on = False

    signal.signal(signal.SIGTERM, end)
    pids, looked = [root], 0.0
    while goes_on and Path(f"/proc/{root}").exists():
        if time.monotonic() - looked > LOOKS_S:
            pids, looked = family(root, os.getpid()), time.monotonic()
        time.sleep(rng.uniform(0, LONGEST_S))  # so long all run
        pid = rng.choice(pids)
        with contextlib.suppress(ProcessLookupError):
            if stat(pid)[:1] in ([], ["T"]):
                continue  # it has ended, or somebody else stopped it, for longer
            os.kill(pid, signal.SIGSTOP)
            try:
                time.sleep(rng.uniform(0, LONGEST_S))  # so long it is stopped
            finally:
                os.kill(pid, signal.SIGCONT)


if __name__ == "__main__":
    main()
