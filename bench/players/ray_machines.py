"""Ray on the machines of a lab: each with a host name, /dev/shm and temporary folder of its own.

What is mounted for a machine is seen only by what is started there: a process that sleeps holds the
mounts, and others enter them by its pid. Nothing here stops Ray by Ray's own command, which ends
every Ray of the whole computer: the lab ends what is in its namespaces.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

RAY = Path(sys.executable).with_name("ray")

VARIABLES = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DISABLE_MEMORY_MONITOR": "1",
    # By default a pull that takes 10 s begins anew, which on slow links never ends.
    "RAY_object_manager_pull_timeout_ms": "600000",
}

STORE_BYTES = 1 << 30

MAKE = (
    "mount -t tmpfs tmpfs /dev/shm && mount -t tmpfs tmpfs {folder} && "
    "echo ray{number} > /proc/sys/kernel/hostname && echo ready && exec sleep infinity"
)


class RayMachines:
    def __init__(self, lab: Any) -> None:
        self.lab = lab
        # The same path everywhere, and other files: Ray tells it from the head to the others.
        self.folder = lab.folder / "ray"
        self.folder.mkdir()
        self.holders: list[subprocess.Popen[str]] = []
        for number in range(1, len(lab.machines) + 1):
            enter = ["nsenter", f"--net=/run/netns/{lab.namespace(number)}", "--"]
            make = MAKE.format(folder=self.folder, number=number)
            holder = subprocess.Popen(
                [*enter, "unshare", "--mount", "--uts", "sh", "-c", make],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                text=True,
            )
            self.holders.append(holder)
            assert holder.stdout is not None
            if holder.stdout.readline() != "ready\n":
                raise RuntimeError(f"no mounts for Ray at node {number}")

    def prefix(self, number: int) -> list[str]:
        pid = self.holders[number - 1].pid
        return ["nsenter", f"--target={pid}", "--net", "--mount", "--uts", "--"]

    def environment(self) -> dict[str, str]:
        return {**VARIABLES, "TMPDIR": "/tmp"}

    def line(
        self, number: int, head: bool = False, resources: str = "{}", cpus: int = 1
    ) -> list[str]:
        """What starts a node there: a head, or one that joins that of the first machine."""
        where = [f"--address={self.lab.address(1)}:6379"]
        if head:
            port = "--port=6379"
            where = ["--head", port, "--include-dashboard=false", f"--temp-dir={self.folder}"]
        flags = [
            f"--node-ip-address={self.lab.address(number)}",
            f"--num-cpus={cpus}",
            f"--object-store-memory={STORE_BYTES}",
            f"--resources={resources}",
            "--disable-usage-stats",
        ]
        return [*self.prefix(number), str(RAY), "start", *where, *flags]

    def start(self, number: int, cpus: int = 1) -> None:
        self.run(self.line(number, head=number == 1, cpus=cpus))

    def run(self, line: list[str]) -> None:
        # Not captured: what stays would keep the pipe.
        subprocess.run(
            line,
            env={**os.environ, **self.environment()},
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=120,
        )

    def leave_line(self, number: int) -> list[str]:
        """What ends the Ray of that machine: what sees its mounts, but for who runs this."""
        code = (
            "import os, sys\n"
            "mine = os.stat(f'/proc/{sys.argv[1]}/ns/mnt').st_ino\n"
            "kept = {int(sys.argv[1]), os.getpid(), os.getppid()}\n"
            "for pid in {int(name) for name in os.listdir('/proc') if name.isdigit()} - kept:\n"
            "    try:\n"
            "        if os.stat(f'/proc/{pid}/ns/mnt').st_ino == mine:\n"
            "            os.kill(pid, 9)\n"
            "    except OSError:\n"
            "        pass\n"
        )
        return [sys.executable, "-c", code, str(self.holders[number - 1].pid)]

    def close(self) -> None:
        for holder in self.holders:
            holder.kill()
            holder.wait()
            if holder.stdout is not None:
                holder.stdout.close()
