"""Control nodes as processes on this machine, and clients whose histories are judged; clusters.

Programs come from HOPLO_BIN and HOPLO_CHECK_HISTORY, else from the target folder (`make
test-cluster` builds them). Nothing sleeps for a time: it waits for a condition, with a deadline.

Of whole clusters there are two kinds: a `far` (far.py) is machines that are folders, with the test
as a driver; a `lab` (lab.py) is machines in network namespaces. Their `hoplo` is the one beside
this Python.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

TREE = Path(__file__).resolve().parents[2]
# Behind this folder, which has a conftest of its own: gates, and notes that remote code leaves.
sys.path.append(str(TREE / "python" / "tests"))
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", TREE / "target"))
HOPLO = Path(os.environ.get("HOPLO_BIN", TARGET / "release" / "hoplo"))
CHECK = Path(os.environ.get("HOPLO_CHECK_HISTORY", TARGET / "sim" / "examples" / "check_history"))


def until(condition: Callable[[], Any], seconds: float = 20, what: str = "") -> Any:
    """The condition's first true value."""
    deadline = time.monotonic() + seconds
    while True:
        if found := condition():
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what or condition}")
        time.sleep(0.01)  # between two looks


# In no order, each once in a round. From 32,768 on Linux gives them to outgoing connections: one of
# these could take the port of a node that is dead for a moment.
PORTS = itertools.cycle(random.sample(range(10_000, 32_768), k=22_768))


def free_port() -> int:
    for port in PORTS:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("there is always a next port")


def run(*args: str | Path, check: bool = True, seconds: float = 30) -> str:
    done = subprocess.run(
        [HOPLO, "control", *args], capture_output=True, text=True, timeout=seconds, check=False
    )
    if check and done.returncode != 0:
        raise AssertionError(f"{args}: {done.stderr}")
    return done.stdout if check else done.stderr


@dataclass
class Node:
    cluster: Cluster
    address: str
    folder: Path
    prefix: tuple[str, ...] = ()
    fsync: str = "never"
    flags: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self.cluster_file = self.folder_of_cluster / "cluster.json"

    @property
    def folder_of_cluster(self) -> Path:
        """What `init` made for this node; over a unix socket nobody needs a certificate."""
        own = self.cluster.file.parent / "nodes" / self.address
        return self.cluster.file.parent if "/" in self.address else own

    def start(self) -> None:
        assert self.process is None or self.process.poll() is not None
        log = open(self.folder.with_suffix(".log"), "ab")  # noqa: SIM115 (the process's)
        # fmt: off
        command = [
            *self.prefix, HOPLO, "control", "serve", "--dir", self.folder, "--listen", self.address,
            "--cluster-file", self.cluster_file, "--config", self.cluster.config,
            "--fsync", self.fsync, *self.flags,
        ]
        # fmt: on
        self.process = subprocess.Popen(command, stdout=log, stderr=log)
        log.close()

    def strike(self, how: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(how)

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        assert self.process is not None
        self.process.send_signal(how)
        if how in (signal.SIGKILL, signal.SIGTERM):
            self.process.wait(20)

    @property
    def output(self) -> str:
        return self.folder.with_suffix(".log").read_text()


@dataclass
class Cluster:
    folder: Path
    file: Path
    config: str
    nodes: list[Node] = field(default_factory=list)
    clients: list[tuple[subprocess.Popen[bytes], Path]] = field(default_factory=list)
    others: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            run("status", "--json", "--cluster-file", self.file, seconds=10)
        )
        return found

    def config_now(self) -> dict[str, Any] | None:
        """The newest configuration that any node knows."""
        configs = [status.get("config") for status in self.status().values()]
        known = [config for config in configs if config]
        newest: dict[str, Any] | None = max(
            known,
            key=lambda config: sum(shard["epoch"] for shard in config["shards"]),
            default=None,
        )
        return newest

    def members(self, shard: int = 0) -> list[str]:
        config = self.config_now()
        members = config["shards"][shard]["members"] if config else []
        return [member["address"] for member in members]

    def whole(self, count: int | None = None) -> bool:
        """Every chain has its length and has begun, and each member acts in the newest epoch."""
        statuses = self.status()
        configs = [status.get("config") for status in statuses.values()]
        known = [config for config in configs if config]
        if not known:
            return False
        config = max(known, key=lambda config: sum(shard["epoch"] for shard in config["shards"]))
        for shard in config["shards"]:
            if len(shard["members"]) != (count or config["replication"]) or shard["joining"]:
                return False
            if shard["unbegun"]:
                return False
            for member in shard["members"]:
                found = statuses.get(member["address"], {}).get("shards", [])
                mine = [one for one in found if one["shard"] == shard["shard"]]
                if not mine or mine[0]["epoch"] != shard["epoch"] or not mine[0]["acts"]:
                    return False
        return True

    def until_whole(self, count: int | None = None, seconds: float = 30) -> None:
        try:
            until(lambda: self.whole(count), seconds, "the chains are whole")
        except AssertionError:
            print(run("status", "--cluster-file", self.file))
            for address, status in self.status().items():
                print(address, (status.get("coordinator") or {}).get("story", "")[-3000:])
                for shard in status.get("shards", []):
                    print(shard["story"][-2000:])
            raise

    def node(self, address: str) -> Node:
        return next(node for node in self.nodes if node.address == address)

    def acting(self) -> Node:
        """The node whose coordinator acts."""
        return self.node(until(self._acting, what="a coordinator acts"))

    def _acting(self) -> str | None:
        for address, status in self.status().items():
            if (status.get("coordinator") or {}).get("acts"):
                return address
        return None

    def client(self, name: str, seconds: float, **flags: Any) -> None:
        """Works for so long on a few keys, and writes down what it saw."""
        out = self.folder / f"history-{name}.jsonl"
        command = [HOPLO, "control", "history", "--cluster-file", self.file, "--out", out]
        command += ["--name", name, "--seconds", str(seconds)]
        for flag, value in flags.items():
            command += [f"--{flag.replace('_', '-')}", str(value)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        self.clients.append((process, out))

    def background(self, *args: str | Path) -> subprocess.Popen[bytes]:
        """Another command; it ends with the cluster, if not before."""
        command = [HOPLO, "control", *args, "--cluster-file", self.file]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        self.others.append(process)
        return process

    def judge(self) -> dict[str, int]:
        """All clients end; what they saw is linearizable. How many operations ended, and how."""
        for process, _ in self.clients:
            assert process.wait(60) == 0
        paths = [path for _, path in self.clients]
        done = subprocess.run(
            [CHECK, *paths], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        counts: dict[str, int] = json.loads(done.stdout)
        return counts

    def errors(self) -> list[str]:
        lines = [line for _, path in self.clients for line in path.read_text().splitlines()]
        return [error for line in lines if (error := json.loads(line).get("error"))]

    def stop(self) -> None:
        for process, _ in self.clients:
            process.kill()
            process.wait()
        for other in self.others:
            other.kill()
            other.wait()
        for node in self.nodes:
            if node.process is not None and node.process.poll() is None:
                node.process.send_signal(signal.SIGCONT)
                node.process.kill()
                node.process.wait()


MakeCluster = Callable[..., Cluster]


@pytest.fixture
def make_cluster(tmp_path: Path) -> Iterator[MakeCluster]:
    made: list[Cluster] = []

    def make(
        nodes: int = 3,
        replicas: int = 3,
        shards: int = 1,
        config: str | None = None,
        fsync: str = "never",
        start: bool = True,
        addresses: list[str] | None = None,
        prefixes: list[tuple[str, ...]] | None = None,
        flags: tuple[str, ...] = (),
    ) -> Cluster:
        folder = tmp_path / f"cluster-{len(made)}"
        addresses = addresses or [f"127.0.0.1:{free_port()}" for _ in range(nodes)]
        nodes_flags = [flag for address in addresses for flag in ("--node", address)]
        run("init", folder, *nodes_flags, "--shards", str(shards), "--replicas", str(replicas))
        file = folder / "cluster.json"
        cluster = Cluster(folder, file, config or f"file:{folder / 'config.json'}")
        made.append(cluster)
        for number, address in enumerate(addresses):
            prefix = prefixes[number] if prefixes else ()
            node = Node(cluster, address, folder / f"node-{number}", prefix, fsync, flags)
            cluster.nodes.append(node)
            if start:
                node.start()
        if start:
            cluster.until_whole()
        return cluster

    yield make
    for cluster in made:
        with contextlib.suppress(Exception):
            for node in cluster.nodes:
                print(f"--- {node.folder.name}\n{node.output}")
        cluster.stop()


@dataclass
class Etcd:
    folder: Path
    port: int
    peer_port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        peer = f"http://127.0.0.1:{self.peer_port}"
        # fmt: off
        command = [
            "etcd", "--data-dir", self.folder, "--listen-client-urls", self.url,
            "--advertise-client-urls", self.url, "--listen-peer-urls", peer,
            "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}",
        ]
        # fmt: on
        self.process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until(self.answers, what="etcd answers")

    def answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Etcd]:
    if shutil.which("etcd") is None:
        pytest.skip("etcd is not installed (Debian: etcd-server)")
    etcd = Etcd(tmp_path / "etcd", free_port(), free_port())
    etcd.start()
    yield etcd
    etcd.kill()


# ------------------------------------------------------------------------------- whole clusters


@pytest.fixture(scope="module")
def shared_far() -> Iterator[Any]:
    """A head and two nodes, two CPUs each, that the tests of a module share."""
    from far import cluster

    with cluster() as far:
        yield far


@pytest.fixture
def far(shared_far: Any) -> Any:
    """The shared one, with this process as its driver: a test before may have had another one."""
    shared_far.connect()
    return shared_far


@pytest.fixture
def make_far() -> Iterator[Any]:
    """One for the test alone: `make_far(nodes, ...)`."""
    from far import cluster

    with contextlib.ExitStack() as stack:
        yield lambda *args, **options: stack.enter_context(cluster(*args, **options))


def _labs() -> Iterator[Any]:
    """Machines in network namespaces: `make_lab(nodes=3, ...)`."""
    import lab

    if why := lab.why_not():
        pytest.skip(why)
    with contextlib.ExitStack() as stack:
        yield lambda *args, **options: stack.enter_context(lab.Lab(*args, **options))


make_lab = pytest.fixture(_labs, name="make_lab")
make_module_lab = pytest.fixture(_labs, scope="module", name="make_module_lab")
"""These stay until the module's tests have ended."""


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Any]:
    """A gate that tasks can be made to wait at; open at the end of the test at the latest."""
    from gate import Gate

    folder = tmp_path / "gate"
    folder.mkdir()
    gate = Gate(str(folder))
    yield gate
    gate.open()
    gate.close()


@pytest.fixture
def notes(tmp_path: Path) -> Any:
    """Lines that any process of this machine may add: who ran, how often, in which order."""
    from processes import Notes

    return Notes(tmp_path / "notes")
