"""Rollouts in bulk-synchronous rounds with MPI: every round ends at a barrier.

The ranks wait for work at a pipe each, not inside MPI, which would burn the cores meanwhile.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from player import Player, Skipped
from workloads import lengths, rollout


def rank(folder: Path) -> None:
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    me, cores = world.Get_rank(), world.Get_size()
    rollout(0, 100)
    with (
        open(folder / f"go{me}") as requests,
        open(folder / "done", "w") as answers,
    ):
        for line in requests:
            steps = 0
            world.Barrier()
            start = time.perf_counter()
            for repeat in range(int(line)):
                for round_lengths in lengths(cores, repeat):
                    steps += world.allreduce(rollout(me, round_lengths[me]))
            if me == 0:
                print(time.perf_counter() - start, steps, file=answers, flush=True)


play = Player()

for cores in (1, 2):

    @play.measure(f"rollouts.{cores}")
    def _(cores=cores):
        if not shutil.which("mpirun"):
            raise Skipped("mpirun is not installed (Debian: openmpi-bin)")
        folder = Path(tempfile.mkdtemp(prefix="hb-"))
        names = [f"go{n}" for n in range(cores)] + ["done"]
        for name in names:
            os.mkfifo(folder / name)
        command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(cores)]
        command += [sys.executable, __file__, str(folder)]
        ranks = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr)
        requests = [open(folder / f"go{n}", "w") for n in range(cores)]  # noqa: SIM115
        answers = open(folder / "done")  # noqa: SIM115

        def run(count):
            for request in requests:
                print(count, file=request, flush=True)
            seconds, steps = answers.readline().split()
            return {"seconds": float(seconds), "count": int(steps)}

        yield run
        for request in requests:
            request.close()
        ranks.wait(10)
        shutil.rmtree(folder)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        rank(Path(sys.argv[1]))
    else:
        play.serve()
