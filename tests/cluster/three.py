"""Three machines of a lab with a control node each, of which any one may be head.

machine 1: control node, head      machine 2: control node, waits      machine 3: the same

three = Three(lab, "--num-cpus", "0")
lab[4].join(three.joining)
three.kill(three.head(lab[4]))     # with its control node
"""

from __future__ import annotations

import subprocess
import sys

from lab import Lab
from machines import HOPLO, Joining, Machine, until

NUMBERS = (1, 2, 3)
CONTROL_PORT, HEAD_PORT = 7100, 6379


class Three:
    def __init__(self, lab: Lab, *flags: str) -> None:
        """`flags`: of each head."""
        self.lab = lab
        self.flags = flags
        self.folder = lab.folder / "cluster"
        nodes = [f"--node={self._at(number)}" for number in NUMBERS]
        lab[1].hoplo("control", "init", str(self.folder), *nodes, "--replicas", "3")
        self.serving: dict[int, subprocess.Popen[bytes]] = {}
        for number in NUMBERS:
            self.serve(number)
        for number in NUMBERS:
            self.lead(number)
        addresses = ",".join(f"{lab.address(number)}:{HEAD_PORT}" for number in NUMBERS)
        self.joining = Joining(addresses, lab[1].home / ".hoplo" / "token")

    def _at(self, number: int) -> str:
        return f"{self.lab.address(number)}:{CONTROL_PORT}"

    def serve(self, number: int) -> None:
        """Its control node begins, or begins again."""
        at, machine = self._at(number), self.lab[number]
        file = self.folder / "nodes" / at / "cluster.json"
        line = ["--dir", str(machine.folder / "store"), "--listen", at, "--cluster-file", str(file)]
        with (machine.folder / "control.log").open("ab") as log:
            self.serving[number] = subprocess.Popen(
                [*machine.prefix, HOPLO, "control", "serve", *line],
                env=machine.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def lead(self, number: int) -> None:
        """It becomes head, or waits for that."""
        machine = self.lab[number]
        line = ["--head", "--host", self.lab.address(number), *self.flags]
        line += ["--control-nodes", str(self.folder / "cluster.json"), "--python", sys.executable]
        until(lambda: machine.hoplo("start", *line, check=False).returncode == 0, what="a head")

    def head(self, seen_from: Machine) -> int:
        """The machine of the one that lives; 0 if there is none."""
        rows = seen_from.status()["nodes"]
        live = [row for row in rows if row["Head"] and row["State"] == "ALIVE"]
        return int(live[0]["NodeManagerAddress"].rpartition(".")[2]) if len(live) == 1 else 0

    def kill(self, number: int) -> None:
        """The machine, with its control node."""
        self.lab[number].kill()
        self.serving[number].kill()
        self.serving[number].wait()

    def back(self, number: int) -> None:
        self.serve(number)
        self.lead(number)
