"""Programs of ranks, told from outside what to do: MPI, Gloo, a bare stream.

    Ranks(lines, count, path)   starts them; each connects to the socket at `path`
    told("reduce 8000000 1", at)  an operation, once; when each rank began it and had ended it

A rank waits at its socket between two requests, not inside its library, where it would burn the
cores that the others need. One line to it: the operation, its bytes, how often, and when to begin
(0: each time as soon as all are at a barrier). One line back: when it began and ended, time by
time, or what was wrong. The clock is the same in all network namespaces.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

Spans = list[tuple[float, float]]
"""Of one operation, by rank: when it began, when it had ended."""

SECONDS_TO_START = 60
SECONDS_TO_CONNECT = 20
SECONDS_MAX = 60
"""No request takes that long."""


def connected(address: str, port: int) -> socket.socket:
    """To a rank that may still have to start."""
    deadline = time.monotonic() + SECONDS_TO_CONNECT
    while True:
        try:
            return socket.create_connection((address, port))
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)  # it is not there yet


class Ranks:
    def __init__(self, lines: Sequence[Sequence[str]], count: int, path: str) -> None:
        self._programs: list[subprocess.Popen[bytes]] = []
        self._files: dict[int, Any] = {}
        server = socket.socket(socket.AF_UNIX)
        server.bind(path)
        server.listen(count)
        server.settimeout(SECONDS_TO_START)
        try:
            for line in lines:
                self._programs.append(
                    subprocess.Popen(
                        list(line),
                        stdin=subprocess.DEVNULL,
                        stdout=sys.stderr,
                        start_new_session=True,
                    )
                )
            for _ in range(count):
                connection, _ = server.accept()
                connection.settimeout(SECONDS_MAX)
                file = connection.makefile("rw")
                connection.close()  # the file keeps it
                self._files[int(file.readline())] = file
        except BaseException:
            self.close()
            raise
        finally:
            server.close()
            os.unlink(path)

    def told(self, what: str, at: Sequence[float] = ()) -> list[Spans]:
        """Time by time."""
        ranks = sorted(self._files)
        for rank in ranks:
            self._files[rank].write(f"{what} {at[rank] if at else 0:.9f}\n")
            self._files[rank].flush()
        return list(zip(*(self._heard(rank, what) for rank in ranks), strict=True))

    def _heard(self, rank: int, what: str) -> Spans:
        line = self._files[rank].readline()
        if not line:
            raise RuntimeError(f"rank {rank} died in {what}")
        try:
            times = [float(word) for word in line.split()]
        except ValueError:
            raise RuntimeError(f"rank {rank}, {what}: {line.strip()}") from None
        return list(zip(times[::2], times[1::2], strict=True))

    def close(self) -> None:
        """A rank that reads the end of its socket ends; what is left then is killed."""
        for file in self._files.values():
            file.close()
        for program in self._programs:
            try:
                program.wait(5)
            except subprocess.TimeoutExpired:
                os.killpg(program.pid, signal.SIGKILL)
                program.wait()
