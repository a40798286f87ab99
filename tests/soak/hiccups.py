"""Stops processes for moments: what a busy machine does to them, at the worst places.

    python hiccups.py PID FOLDER SEED

They are PID and all whose sessions lie in FOLDER, in turns at random, half of them a daemon's. So a
process finds, in the middle of what it does, that others did much meanwhile: they wrote, closed,
died. That breaks no promise. If an answer is wrong, it was right only as long as nobody was slow.
It ends with PID.
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
def hiccups(folder: str | Path, seed: int) -> Iterator[None]:
    """Of this process, too, for as long as the block; from one of its own, which nobody stops."""
    line = [sys.executable, str(Path(__file__)), str(os.getpid()), str(folder), str(seed)]
    process = subprocess.Popen(line, start_new_session=True)
    try:
        yield
        assert process.poll() is None, "what makes hiccups has ended"
    finally:
        process.terminate()
        process.wait()


def of_sessions_in(folder: str) -> list[int]:
    """Processes whose sessions lie there, but for this one."""
    mark = f"HOPLO_TMPDIR={folder}".encode()
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            variables = Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended, or is not ours
        if any(variable == mark or variable.startswith(mark + b"/") for variable in variables):
            found.append(int(entry))
    return found


def command_line(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []  # it has ended


def family(root: int, folder: str) -> list[int]:
    """That process, and all of those sessions; daemons as often as all the others."""
    found = [root, *(pid for pid in of_sessions_in(folder) if pid != root)]
    daemons = [pid for pid in found if is_daemon(pid)]
    return found + daemons * (len(found) // max(1, len(daemons)))


def runs(pid: int) -> bool:
    """It has not ended, and nobody else stopped it, for longer."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "TZ"


def is_daemon(pid: int) -> bool:
    words = command_line(pid)
    return len(words) > 1 and words[0].endswith(b"hoplo") and words[1] in (b"daemon", b"start")


def main() -> None:
    root, folder, rng = int(sys.argv[1]), sys.argv[2], random.Random(int(sys.argv[3]))
    goes_on = True

    def end(*_: object) -> None:
        nonlocal goes_on
        goes_on = False

    signal.signal(signal.SIGTERM, end)
    pids, looked = [root], 0.0
    while goes_on and Path(f"/proc/{root}").exists():
        if time.monotonic() - looked > LOOKS_S:
            pids, looked = family(root, folder), time.monotonic()
        time.sleep(rng.uniform(0, LONGEST_S))  # so long all run
        pid = rng.choice(pids)
        with contextlib.suppress(ProcessLookupError):
            if not runs(pid):
                continue
            os.kill(pid, signal.SIGSTOP)
            try:
                time.sleep(rng.uniform(0, LONGEST_S))  # so long it is stopped
            finally:
                os.kill(pid, signal.SIGCONT)


if __name__ == "__main__":
    main()
