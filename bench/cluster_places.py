"""Where `cluster.py` measures: machines in network namespaces, and what runs on them.

A *place* has a cluster of hoplo and one of Ray on its first machines, and the bare programs. Each
is there once it has its seat; what a player of a system needs to know is in the seat.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from harness import HERE, NOT_INSTALLED, Question, Seat, versions

sys.path.insert(0, str(HERE.parent / "tests" / "cluster"))
from lab import Lab
from machines import HOPLO as HOPLO_PROGRAM
from machines import Machine, until

sys.path.insert(0, str(HERE / "players"))
from ray_machines import RayMachines

HOPLO, RAY, BARE = "hoplo", "ray", "bare"
ALONE = ", alone"
"""Behind the name of a player that starts a head of its own, on the last machine."""

UNDRAWN = "hoplo, locality off"
"""A program of hoplo whose tasks are not drawn to their arguments."""

PLAYS = str(HERE / "players" / "play_cluster.py")
BARE_PORT = 7000
BARE_PROGRAM = os.environ.get("HOPLO_BARE") or str(
    Path(os.environ.get("CARGO_TARGET_DIR", HERE.parent / "target")) / "release/examples/bare"
)
LINKS, LOOPBACK = "10.199.0.", "127.0.0."
"""What addresses begin with."""


class Place:
    """`nodes` machines with a cluster; with `late`, one more for a node that a row starts."""

    def __init__(
        self,
        question: Question,
        nodes: int,
        late: bool = False,
        rate: float | None = None,
        loopback: bool = False,
    ) -> None:
        """`rate`: bits a second of each link. With `loopback` all of it is in one namespace."""
        self.question = question
        self.late = late
        self.lab = Lab(nodes=1 if loopback else nodes + late, rate=rate)
        self.prefix = LOOPBACK if loopback else LINKS
        self.machines = self.lab.machines[:nodes]
        if loopback:
            self.machines = [self._inside(number) for number in range(1, nodes + 1)]
        self.ray: RayMachines | None = None
        self.bare: subprocess.Popen[str] | None = None

    def _inside(self, number: int) -> Machine:
        folder = self.lab.folder / f"loopback-{number}"
        folder.mkdir(mode=0o700)
        return Machine(folder, folder, self.lab[1].prefix)

    def seat_hoplo(self) -> None:
        head, *others = self.machines
        joining = head.head()
        for machine in others:
            machine.join(joining)
        until(lambda: len(head.nodes()) == len(self.machines))
        more = {}
        if self.late:
            late = self.lab.machines[-1]
            start = [*late.prefix, HOPLO_PROGRAM, "start", "--num-cpus", "1"]
            start += ["--python", sys.executable]
            join = ["--address", joining.address, "--token-file", str(joining.token)]
            variables = {"HOPLO_TMPDIR": str(late.folder), "HOME": str(late.home)}
            more = self._commands(
                head=([*start, "--head"], variables),
                join=([*start, *join, "--resources", "RESOURCES"], variables),
                leave=([*late.prefix, HOPLO_PROGRAM, "stop"], variables),
            )
            self.question.seat(
                HOPLO + ALONE, Seat([PLAYS, HOPLO], late.prefix, late.environment(**more))
            )
        if self.prefix == LOOPBACK:
            more["BENCH_NODES"] = json.dumps([machine.node_id for machine in self.machines])
        seat = Seat([PLAYS, HOPLO, self.prefix], head.prefix, head.environment(**more))
        self.question.seat(HOPLO, seat)
        undrawn = head.environment(**more, HOPLO_LOCALITY="off")
        self.question.seat(UNDRAWN, replace(seat, environment=undrawn))

    def seat_ray(self) -> None:
        """Without Ray its rows are empty, and say why."""
        if RAY in self.question.options.without or versions()[RAY] == NOT_INSTALLED:
            return
        self.ray = ray = RayMachines(self.lab)
        try:
            for number in range(1, len(self.machines) + 1):
                ray.start(number)
        except subprocess.SubprocessError as error:
            print(f"bench/cluster.py: Ray does not start here: {error}", file=sys.stderr)
            return
        more = ray.environment()
        if self.late:
            late = len(self.lab.machines)
            more |= {"BENCH_ADDRESS": self.lab.address(late)} | self._commands(
                head=(ray.line(late, head=True), {}),
                join=(ray.line(late, resources="RESOURCES"), {}),
                leave=(ray.leave_line(late), {}),
            )
            self.question.seat(RAY + ALONE, Seat([PLAYS, RAY], ray.prefix(late), more))
        self.question.seat(RAY, Seat([PLAYS, RAY, self.prefix], ray.prefix(1), more))

    def _commands(self, **commands: tuple[list[str], dict[str, str]]) -> dict[str, str]:
        late = len(self.lab.machines)
        cable = {"cut": (self.lab.cut_line(late), {}), "heal": (self.lab.heal_line(late), {})}
        return {"BENCH_COMMANDS": json.dumps(commands | cable)}

    def seat_bare(self) -> None:
        certificate = str(self.lab.folder / "certificate.pem")
        address, prefix = f"{self.prefix}{len(self.lab.machines[:2])}", self.machines[1].prefix
        self.bare = subprocess.Popen(
            [*prefix, BARE_PROGRAM, "serve", address, str(BARE_PORT), certificate],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.bare.stdout is not None
        if self.bare.stdout.readline() != "ready\n":
            raise RuntimeError(f"{BARE_PROGRAM} does not serve")
        told = [BARE_PROGRAM, address, str(BARE_PORT), certificate]
        self.question.seat(BARE, Seat(["play_bare.py", *told], self.machines[0].prefix))

    def is_whole(self) -> bool:
        """Whether all nodes of hoplo that it began with live."""
        return self.machines[0].states().count("ALIVE") >= len(self.machines)

    def close(self) -> None:
        self.question.clear_seats()
        if self.bare is not None:
            self.bare.kill()
            self.bare.wait()
        if self.ray is not None:
            self.ray.close()
        self.lab.end()
