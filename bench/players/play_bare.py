"""One connection from node 1 to node 2 with nothing around it: TCP, and TLS 1.3.

Its arguments: the program (crates/net/examples/bare.rs), the address and port where `bare serve`
answers, and its certificate.
"""

from __future__ import annotations

import json
import subprocess
import sys

from player import Player

BARE, HOST, PORT, CERTIFICATE = sys.argv[1:]
MIB = 1 << 20
play = Player()


def measured(over: str, what: str, nbytes: int, count: int) -> dict[str, float]:
    line = [BARE, "measure", HOST, PORT, CERTIFICATE, over, what, str(nbytes), str(count)]
    done = subprocess.run(line, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


for _over in ("tcp", "tls"):
    for _nbytes in (1, 64 << 10):

        @play.measure(f"{_over}.echo.{_nbytes}")
        def _(over=_over, nbytes=_nbytes):
            yield lambda count: measured(over, "echo", nbytes, count)

    for _size in (1, 10, 64, 100):

        @play.measure(f"{_over}.stream.{_size}MiB")
        def _(over=_over, size=_size):
            """`count` things of that size as one stream; with the CPU time at both ends."""
            yield lambda count: measured(over, "stream", count * size * MIB, 1)


if __name__ == "__main__":
    play.serve()
