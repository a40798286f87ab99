"""Where `collectives.py` measures: a lab whose links are shaped, and what runs on it.

Each system is there once it has its seat. hoplo, MPI, Gloo and the bare stream sleep while they are
not asked, so they sit side by side, and are asked in turn. Ray and Dask do not: they have a lab
each, with the same links.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from harness import HERE, NOT_INSTALLED, PlayerError, Question, Seat, versions

sys.path.insert(0, str(HERE.parent / "tests" / "cluster"))
from lab import Lab
from machines import until

sys.path.insert(0, str(HERE / "players"))
from ray_machines import RayMachines

HOPLO, STREAM, MPI, TUNED, GLOO = "hoplo", "stream", "mpi", "mpi tuned", "gloo"
STREAMS = "bare tcp"
"""All ranks send to each other at once, over connections with nothing around them."""

RAY, DASK = "ray", "dask"
PLAYERS = HERE / "players"
GLOO_PROGRAM = os.environ.get("HOPLO_GLOO") or str(
    Path(os.environ.get("CARGO_TARGET_DIR", HERE.parent / "target")) / "bench/rank_gloo"
)

SLOW = 4
"""The index of the node whose link has a quarter, and of the one that dies: in the middle."""

# So that ranks use the links as any program does: by TCP, giving up the core where they have
# nothing to do. All of them spin otherwise, and there are fewer cores than ranks.
MPI_FLAGS = {
    "plm_rsh_no_tree_spawn": "1",
    "oob_tcp_if_include": "eth0",
    "btl": "tcp,self",
    "pml": "ob1",
    "btl_tcp_if_include": "eth0",
    "mpi_yield_when_idle": "1",
    "coll": "^han,hcoll",
}

# What a user would choose who has measured all that there is on these links: from so many bytes on
# an algorithm of that number, with segments of that size, which are sent without asking first (with
# less a segment waits for an answer, and some of them took a pipeline 2 to 6 times as long). 0 is
# what Open MPI itself would choose.
TUNED_FLAGS = {"btl_tcp_eager_limit": "131072", "coll_tuned_use_dynamic_rules": "1"}
PIPELINE = "2 0 0 0 0  262144 3 0 65536"
RING = "2 0 0 0 0  262144 4 0 0"
BCAST, REDUCE, ALLREDUCE = 7, 11, 2
"""Their numbers in such a file."""
TUNED_RULES = "3\n" + "".join(
    f"{collective}\n1\n1\n{rules}\n"
    for collective, rules in ((ALLREDUCE, RING), (BCAST, PIPELINE), (REDUCE, PIPELINE))
)

RSH = """#!/bin/sh
# What mpirun uses in the place of ssh: it is given an address, and a command.
number=${{1##*.}}; shift
exec nsenter --net=/run/netns/{name}-$number -- unshare --uts sh -c \\
  "echo node$number > /proc/sys/kernel/hostname && $*"
"""


class Missing(Exception):
    """This system cannot be had here; the text says why."""


class Place:
    """`nodes` machines, whose links carry `rate` bits a second each way."""

    def __init__(self, question: Question, nodes: int, rate: float | None, sizes: list[int]):
        self.question = question
        self.count = nodes
        self.sizes = sizes
        self.lab = Lab(nodes=nodes, rate=rate)
        self.addresses = [self.lab.address(number) for number in range(1, nodes + 1)]
        self.death = self.lab.folder / "death.json"
        self._ray: RayMachines | None = None
        self._others: list[subprocess.Popen[bytes]] = []

    def seat(self, *systems: str) -> None:
        """What cannot be had is told once, and its cells are empty."""
        seats = {
            HOPLO: self._hoplo,
            STREAM: self._stream,
            STREAMS: self._streams,
            MPI: lambda: self._mpi(MPI),
            TUNED: lambda: self._mpi(TUNED, TUNED_RULES),
            GLOO: self._gloo,
            RAY: self._start_ray,
            DASK: self._dask,
        }
        for system in systems:
            if system in self.question.options.without:
                continue
            try:
                self.question.seat(system, seats[system]())
            except (Missing, subprocess.SubprocessError, PlayerError) as error:
                print(f"bench/collectives.py: without {system}: {error}", file=sys.stderr)
                self.question.facts[f"without {system}"] = str(error)

    def told(self, **more: Any) -> str:
        known = {"addresses": self.addresses, "sizes": self.sizes, "slow": SLOW, "victim": SLOW}
        return json.dumps(known | more)

    # ------------------------------------------------------------------- systems

    def _hoplo(self) -> Seat:
        head, *others = self.lab.machines
        self.joining = head.head()
        for machine in others:
            machine.join(self.joining)
        until(lambda: len(head.nodes()) == self.count)
        told = [str(PLAYERS / "play_collectives.py"), HOPLO, self.told()]
        return Seat(told, head.prefix, head.environment(BENCH_DEATH=str(self.death)))

    def _stream(self) -> Seat:
        program = [sys.executable, str(PLAYERS / "rank_stream.py")]
        path = str(self.lab.folder / "stream")
        lines = [
            [*self.lab[rank + 1].prefix, *program, str(rank), self.addresses[0], path]
            for rank in (0, 1)
        ]
        return self._ranks(lines, 2, path)

    def _streams(self) -> Seat:
        program = [sys.executable, str(PLAYERS / "rank_streams.py")]
        path = str(self.lab.folder / "streams")
        lines = [
            [*machine.prefix, *program, str(rank), ",".join(self.addresses), path]
            for rank, machine in enumerate(self.lab.machines)
        ]
        return self._ranks(lines, self.count, path)

    def _mpi(self, name: str, rules: str = "") -> Seat:
        if versions()["mpi4py"] == NOT_INSTALLED:
            raise Missing("mpi4py is not installed: `make bench-rivals`")
        if not shutil.which("mpirun"):
            raise Missing("mpirun is not installed (Debian: openmpi-bin)")
        folder = self.lab.folder / name.replace(" ", "-")
        folder.mkdir()
        agent = folder / "rsh"
        agent.write_text(RSH.format(name=self.lab.name))
        agent.chmod(0o755)
        flags = {**MPI_FLAGS, "plm_rsh_agent": str(agent), "orte_tmpdir_base": str(folder)}
        if rules:
            file = folder / "rules"
            file.write_text(rules)
            flags |= TUNED_FLAGS | {"coll_tuned_dynamic_rules_filename": str(file)}
        path = str(folder / "meet")
        line = [*self.lab[1].prefix, "mpirun", "--allow-run-as-root", "--bind-to", "none"]
        line += ["--map-by", "ppr:1:node", "-n", str(self.count), "-H", ",".join(self.addresses)]
        for key, value in flags.items():
            line += ["--mca", key, value]
        line += [sys.executable, str(PLAYERS / "rank_mpi.py"), path]
        return self._ranks([line], self.count, path, TMPDIR=str(folder))

    def _gloo(self) -> Seat:
        if not Path(GLOO_PROGRAM).exists():
            raise Missing(f"{GLOO_PROGRAM} is missing: `make bench-collectives` compiles it")
        folder = self.lab.folder / GLOO
        folder.mkdir()
        path = str(self.lab.folder / "gloo-meet")
        lines = [
            [*machine.prefix, GLOO_PROGRAM, str(rank), str(self.count), str(folder), path]
            for rank, machine in enumerate(self.lab.machines)
        ]
        return self._ranks(lines, self.count, path)

    def _ranks(self, lines: list[list[str]], count: int, path: str, **variables: str) -> Seat:
        told = self.told(lines=lines, count=count, socket=path)
        return Seat([str(PLAYERS / "play_ranks.py"), told], (), variables)

    def _start_ray(self) -> Seat:
        if versions()[RAY] == NOT_INSTALLED:
            raise Missing("it is not installed: `make bench-rivals`")
        self._ray = RayMachines(self.lab)
        self._ray.start(1)
        with ThreadPoolExecutor(4) as starting:
            list(starting.map(self._ray.start, range(2, self.count + 1)))
        told = [str(PLAYERS / "play_collectives.py"), RAY, self.told()]
        return Seat(told, self._ray.prefix(1), self._ray.environment())

    def _dask(self) -> Seat:
        if versions()["distributed"] == NOT_INSTALLED:
            raise Missing("it is not installed: `make bench-rivals`")
        scheduler = f"tcp://{self.addresses[0]}:8786"
        host = ["--host", self.addresses[0], "--port", "8786", "--no-dashboard"]
        self._start(1, "scheduler", *host)
        for number, address in enumerate(self.addresses, 1):
            flags = ["--host", address, "--nthreads", "1", "--no-nanny", "--no-dashboard"]
            flags += ["--name", f"node{number}", "--memory-limit", "0"]
            folder = self.lab.folder / f"dask-{number}"
            self._start(number, "worker", scheduler, *flags, "--local-directory", str(folder))
        told = [str(PLAYERS / "play_collectives_dask.py"), self.told(scheduler=scheduler)]
        return Seat(told, self.lab[1].prefix)

    def _start(self, number: int, *words: str) -> None:
        with (self.lab.folder / f"dask-{number}.log").open("ab") as log:
            self._others.append(
                subprocess.Popen(
                    [*self.lab[number].prefix, sys.executable, "-m", "dask", *words],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            )

    # ------------------------------------------------------------------- the end

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *_: object) -> None:
        self.question.clear_seats()
        for program in self._others:
            program.kill()
            program.wait()
        if self._ray is not None:
            self._ray.close()
        self.lab.end()
