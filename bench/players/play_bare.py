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


def measured(over: str, what: str, nbytes: int, count: int, streams: int = 1) -> dict[str, float]:
    """With several streams: so much over each at once, until the last one has ended."""
    line = [BARE, "measure", HOST, PORT, CERTIFICATE, over, what, str(nbytes), str(count)]
    running = [subprocess.Popen(line, stdout=subprocess.PIPE) for _ in range(streams)]
    said = [one.communicate()[0] for one in running]
    if any(one.returncode for one in running):
        raise RuntimeError(f"{' '.join(line)} failed")
    found = [json.loads(text) for text in said]
    return {
        "seconds": max(one["seconds"] for one in found),
        "cpu_s": sum(one["cpu_s"] for one in found),
    }


for _over in ("tcp", "tls"):
    for _nbytes in (1, 64 << 10):

        @play.measure(f"{_over}.echo.{_nbytes}")
        def _(over=_over, nbytes=_nbytes):
            yield lambda count: measured(over, "echo", nbytes, count)

    for _size in (1, 10, 16, 64, 100):

        @play.measure(f"{_over}.stream.{_size}MiB")
        def _(over=_over, size=_size):
            """`count` things of that size as one stream; with the CPU time at both ends."""
            yield lambda count: measured(over, "stream", count * size * MIB, 1)

    for _streams in (1, 2, 4, 8):

        @play.measure(f"{_over}.striped.{_streams}")
        def _(over=_over, streams=_streams):
            """`count` times 256 MiB in equal parts over so many streams."""
            yield lambda count: measured(over, "stream", count * 256 * MIB // streams, 1, streams)


if __name__ == "__main__":
    play.serve()
