"""Whoever reaches a port and says nothing, or what it may not say, is noticed by nobody else."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import HOPLO, Cluster, MakeCluster, Node, run, until

SILENT = 2000
# As many descriptors as a process gets where nobody has set anything; half of them to begin with.
LIMIT = 1024
FEW = ("prlimit", f"--nofile={LIMIT // 2}:{LIMIT}")


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """For the silent ones' ends, which are in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = SILENT + 500
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"this process may open {hard} files only, and needs {wanted}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def place(node: Node) -> tuple[str, int]:
    host, port = node.address.rsplit(":", 1)
    return host, int(port)


def newest_log(node: Node) -> str:
    return max(path.name for path in (node.folder / "shard-0" / "log").glob("log-*"))


def descriptors(node: Node) -> int:
    assert node.process is not None
    return len(os.listdir(f"/proc/{node.process.pid}/fd"))


def counts(cluster: Cluster, node: Node) -> dict[str, int]:
    """Once it answers: a busy machine may take its time."""
    said = until(lambda: cluster.status()[node.address].get("connections"), what="it answers")
    found: dict[str, int] = said
    return found


class Silent:
    """Connections to a node that say nothing; new ones in place of those that it dropped."""

    def __init__(self, node: Node, count: int) -> None:
        self.place = place(node)
        self.peers = [self._connect() for _ in range(count)]

    def _connect(self) -> socket.socket:
        peer = socket.socket()
        peer.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            peer.connect(self.place)
        return peer

    def again(self, at_once: int = 5) -> None:
        dropped = [number for number, peer in enumerate(self.peers) if is_dropped(peer)]
        for number in dropped[:at_once]:
            self.peers[number].close()
            self.peers[number] = self._connect()

    def close(self) -> None:
        for peer in self.peers:
            peer.close()


def is_dropped(peer: socket.socket) -> bool:
    try:
        return peer.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def test_a_thousand_silent_connections_stopped_a_log_and_threw_a_node_out(
    make_cluster: MakeCluster, many_descriptors: None
) -> None:
    cluster = make_cluster(prefixes=[FEW] * 3)
    before = shards(cluster)
    victim = cluster.node(cluster.members()[1])
    assert victim.process is not None
    assert resource.prlimit(victim.process.pid, resource.RLIMIT_NOFILE) == (LIMIT, LIMIT)
    log = newest_log(victim)
    for name in ("a", "b"):
        cluster.client(name, 15)
    # More than one file of the log, while they are there.
    fill = ("--mode", "latency", "--seconds", "120", "--value-bytes", "300000")
    writer = cluster.background("bench", *fill)
    with contextlib.closing(Silent(victim, SILENT)) as silent:

        def rotated() -> bool:
            silent.again()
            left = LIMIT - descriptors(victim)
            assert left > LIMIT / 2, f"{left} are left for logs and members"
            return newest_log(victim) > log

        until(rotated, 90, "the log goes on in another file")
        found = counts(cluster, victim)
        assert found["accepted"] > SILENT / 2, found
        assert found["turned_away"] > SILENT / 2, found
    writer.kill()
    until(lambda: counts(cluster, victim)["strangers"] < 10, what="they are dropped in time")
    seen = cluster.judge()
    assert seen["ended"] > 200, seen
    assert not cluster.errors()
    assert shards(cluster) == before, "nobody left its chain"
    for status in cluster.status().values():
        shard = status["shards"][0]
        assert shard["disk"] is None, shard
        assert shard["set_aside"] is None, shard


def shards(cluster: Cluster) -> Any:
    config = cluster.config_now()
    assert config is not None
    return config["shards"]


def tls_of(folder: Path) -> ssl.SSLContext:
    """With what lies in a holder's folder."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(folder / "tls" / "ca.pem")
    context.load_cert_chain(folder / "tls" / "identity.pem")
    context.check_hostname = False
    return context


def number(value: int) -> bytes:
    """As it travels: seven bits a byte, the lowest first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


class Speaker:
    """Speaks the protocol byte by byte, with somebody's certificate."""

    def __init__(self, cluster: Cluster, node: Node, folder: Path, who: bytes) -> None:
        raw = socket.create_connection(place(node), 10)
        self.peer = tls_of(folder).wrap_socket(raw, server_hostname="hoplo")
        ours = int(json.loads(cluster.file.read_text())["cluster"], 16)
        # Hello { protocol 6, program "x", cluster, who }
        self.send(number(0) + number(6) + number(1) + b"x" + number(ours) + who)

    def send(self, body: bytes) -> None:
        self.peer.sendall(len(body).to_bytes(4, "little") + body)

    def hear(self) -> bytes:
        """The next message; empty after the last one."""
        head = self._exactly(4)
        return self._exactly(int.from_bytes(head, "little")) if head else b""

    def _exactly(self, count: int) -> bytes:
        out = b""
        while len(out) < count:
            more = self.peer.recv(count - len(out))
            if not more:
                return b""
            out += more
        return out


def replica(cluster: Cluster, address: str) -> bytes:
    """ReplicaId { node, incarnation }"""
    status = cluster.status()[address]["replica"]
    return number(int(status["node"], 16)) + number(status["incarnation"])


CLIENT = b"\0\x05"
AS_REPLICA = b"\x01"
HELLO, REFUSED = b"\0", b"\x01"
# Frame::ToCoordinator(Report { shard 0, epoch, silent })
REPORT = b"\x05\x03\0"


def issue(cluster: Cluster, role: str, name: str) -> Path:
    # fmt: off
    made = run("certificate", "--cluster-file", cluster.file, "--role", role, "--name", name)
    # fmt: on
    return Path(made.strip())


def test_a_client_claimed_a_members_id_and_moved_epochs(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    acting = cluster.acting()
    before = shards(cluster)
    others = [node for node in cluster.nodes if node is not acting]
    accuser, accused = (replica(cluster, node.address) for node in others)
    client = issue(cluster, "client", "c")
    refused = counts(cluster, acting)["refused_claims"]

    # Its certificate is a client's: it is nobody's member.
    stranger = Speaker(cluster, acting, client, AS_REPLICA + accuser)
    said = stranger.hear()
    assert said.startswith(REFUSED), said
    assert b"control node" in said, said
    # One node's certificate is not another's.
    stranger = Speaker(cluster, acting, others[1].folder_of_cluster, AS_REPLICA + accuser)
    said = stranger.hear()
    assert said.startswith(REFUSED), said
    # As a client it may not accuse anybody.
    stranger = Speaker(cluster, acting, client, CLIENT)
    assert stranger.hear().startswith(HELLO)
    stranger.send(REPORT + number(before[0]["epoch"]) + accused)
    said = stranger.hear()
    assert said.startswith(REFUSED), said
    assert b"replica" in said, said

    assert counts(cluster, acting)["refused_claims"] == refused + 3
    cluster.client("after", 0.5)
    assert cluster.judge()["ended"] > 10
    assert shards(cluster) == before


def test_only_an_operator_changes_a_cluster(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(nodes=2, replicas=2)
    client = issue(cluster, "client", "c") / "cluster.json"
    assert "TROUBLE" in run("status", "--cluster-file", client)
    for command in (("drain", cluster.nodes[0].address), ("compact",)):
        done = subprocess.run(
            [HOPLO, "control", *command, "--cluster-file", client],
            capture_output=True, text=True, timeout=20, check=False,
        )  # fmt: skip
        assert done.returncode != 0
        assert "operator" in done.stdout + done.stderr
    operator = issue(cluster, "operator", "o") / "cluster.json"
    assert run("compact", "--cluster-file", operator).count("1 shards") == 2


def test_the_authoritys_key_stays_where_it_is(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(nodes=1, replicas=1)
    made = issue(cluster, "node", "another")
    for folder in (made, cluster.nodes[0].folder_of_cluster):
        inside = {path.name for path in folder.rglob("*") if path.is_file()}
        assert inside == {"cluster.json", "ca.pem", "identity.pem"}
    # Where only a holder's folder is, nobody makes certificates.
    error = run(
        "certificate", "--cluster-file", made / "cluster.json", "--role", "node", "--name", "x",
        check=False,
    )  # fmt: skip
    assert "ca.key" in error
    assert "hoplo control init" in error


def test_a_node_with_anothers_certificate_does_not_begin(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(nodes=2, replicas=1)
    first, second = cluster.nodes
    for wrong, why in (
        (cluster.file, "a control node needs one of its own"),
        (second.cluster_file, "is that of node"),
    ):
        first.kill()
        first.cluster_file = wrong
        first.start()
        assert first.process is not None
        assert first.process.wait(20) != 0
        assert why in first.output.splitlines()[-1]


def test_a_renewed_certificate_is_shown_without_a_restart(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(nodes=2, replicas=2)
    node = cluster.nodes[0]

    def days(of: Node) -> float:
        found: float = cluster.status()[of.address]["certificate"]["seconds"] / 86400
        return found

    assert 29 < days(node) <= 30
    name = node.address
    # fmt: off
    run(
        "certificate", "--cluster-file", cluster.file, "--role", "node", "--name", name,
        "--days", "90",
    )
    # fmt: on
    until(lambda: days(node) > 89, what="it is used")
    cluster.client("after", 0.5)
    assert cluster.judge()["ended"] > 10
    assert not cluster.errors()
