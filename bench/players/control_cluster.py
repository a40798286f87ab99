"""Control nodes on this machine, for benchmarks: started, killed, watched."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HOPLO = os.environ.get("HOPLO_BIN") or str(Path(sys.executable).with_name("hoplo"))
"""Beside the Python that runs this, as a wheel puts it; HOPLO_BIN names another."""


def hoplo(*args: str | Path, seconds: float = 60) -> str:
    return subprocess.run(
        [HOPLO, "control", *args], check=True, capture_output=True, text=True, timeout=seconds
    ).stdout


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def scheduling() -> str:
    """Of this program and all that it starts."""
    real_time = os.sched_getscheduler(0) in (os.SCHED_FIFO, os.SCHED_RR)
    return "real-time (chrt -f 1)" if real_time else "as any program"


def _seconds_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _seconds_of_children() -> float:
    """Of those that ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class ControlCluster:
    """Processes that hold the replicas of one shard (or more), and one that coordinates.

    With `guide`, as the guide has it: three processes, each with a replica and a coordinator.
    """

    def __init__(
        self,
        replicas: int,
        fsync: str,
        processes: int | None = None,
        shards: int = 1,
        guide: bool = False,
        config: str | None = None,
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="hoplo-control-"))
        self.fsync = fsync
        coordinators = [f"127.0.0.1:{free_port()}" for _ in range(3 if guide else 1)]
        self.coordinator = coordinators[0]
        flags = ["--replicas", str(replicas), "--shards", str(shards)]
        flags += [flag for node in coordinators for flag in ("--node", node)]
        hoplo("init", self.folder / "cluster", *flags)
        self.file = self.folder / "cluster" / "cluster.json"
        self._started = 0
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        if config is None:
            config = "nodes" if guide else f"file:{self.folder / 'config.json'}"
        if guide:
            for node in coordinators:
                self._serve(node, "--config", config)
            self.until_whole(replicas)
            return
        for _ in range(processes or replicas):
            self.start()
        # Last, so that all are there when the shards are given out.
        self._serve(self.coordinator, "--no-replicas", "--config", config)
        self.until_whole(replicas)

    def start(self) -> str:
        """A new process with an empty folder."""
        address = f"127.0.0.1:{free_port()}"
        self._serve(address)
        return address

    def kill(self, address: str) -> None:
        process = self._processes.pop(address)
        process.kill()
        process.wait()
        if address == self.coordinator and self._processes:
            self.coordinator = next(iter(self._processes))

    def stop(self, address: str) -> None:
        """It does nothing any more, and nobody is told."""
        self._processes[address].send_signal(signal.SIGSTOP)
        if address == self.coordinator:
            self.coordinator = next(other for other in self._processes if other != address)

    def acting(self) -> str:
        """Where the coordinator is that acts."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            found = json.loads(hoplo("status", "--json", "--cluster-file", self.file))
            for address, status in found.items():
                if (status.get("coordinator") or {}).get("acts"):
                    return str(address)
            time.sleep(0.05)  # between two looks
        raise TimeoutError(f"no coordinator acts: {self.log()}")

    def chain(self, shard: int = 0) -> tuple[list[str], bool]:
        """Addresses of the members, and whether somebody joins, as the coordinator knows."""
        text = hoplo("members", "--json", "--cluster-file", self.file, "--node", self.coordinator)
        chain: dict[str, Any] = json.loads(text)["shards"][shard]
        return [member["address"] for member in chain["members"]], chain["joining"] is not None

    def until_whole(self, members: int, newest: str | None = None, seconds: float = 60) -> None:
        """The chain has so many members, `newest` (an address) among them, and nobody joins."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                found, joining = self.chain()
                if len(found) == members and not joining and newest in (None, *found):
                    return
            except subprocess.CalledProcessError:
                pass  # no configuration yet
            if time.monotonic() > deadline:
                raise TimeoutError(f"the chain has not {members} members: {self.log()}")
            time.sleep(0.05)  # between two looks

    def bench(self, *flags: str) -> dict[str, Any]:
        """What the client measured, and the CPU time of it and the nodes: `client_s`, `nodes_s`."""
        client, nodes = _seconds_of_children(), self.cpu_seconds()
        found = self.end(self.begin(*flags))
        spent = _seconds_of_children() - client
        return found | {"client_s": spent, "nodes_s": self.cpu_seconds() - nodes}

    def cpu_seconds(self) -> float:
        """Of all nodes that run."""
        return sum(_seconds_of(process.pid) for process in self._processes.values())

    def holders(self) -> list[str]:
        """Whoever is the head of each shard."""
        text = hoplo("members", "--json", "--cluster-file", self.file, "--node", self.coordinator)
        return [chain["members"][0]["address"] for chain in json.loads(text)["shards"]]

    def begin(self, *flags: str) -> subprocess.Popen[str]:
        """A client that measures; it has begun when this returns."""
        command = [HOPLO, "control", "bench", "--cluster-file", str(self.file), *flags]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise RuntimeError(f"the client did not begin: {self.log()}")
        return process

    def end(self, process: subprocess.Popen[str]) -> dict[str, Any]:
        assert process.stdout is not None
        line = process.stdout.readline()
        if process.wait() != 0:
            raise RuntimeError(f"the client failed: {self.log()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def log(self) -> str:
        return (self.folder / "log").read_text()[-2000:]

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _serve(self, address: str, *flags: str) -> None:
        self._started += 1
        named = ("--role", "node", "--name", address)
        own = Path(hoplo("certificate", "--cluster-file", self.file, *named).strip())
        command: Sequence[str | Path] = [
            *(HOPLO, "control", "serve", "--dir", self.folder / f"node-{self._started}"),
            *("--listen", address, "--cluster-file", own / "cluster.json"),
            *("--fsync", self.fsync, *flags),
        ]
        with open(self.folder / "log", "ab") as log:
            self._processes[address] = subprocess.Popen(command, stdout=log, stderr=log)
