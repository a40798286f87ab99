"""What does not belong: a clear error to whoever sent it, and nothing else stops."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
from conftest import HOPLO, Cluster, MakeCluster, run, until


def alive(cluster: Cluster) -> None:
    cluster.client("after", 0.5)
    assert cluster.judge()["ended"] > 10
    assert not cluster.errors()


def counter(cluster: Cluster, name: str) -> int:
    found: int = cluster.status()[cluster.nodes[0].address]["connections"][name]
    return found


def one_node(make_cluster: MakeCluster) -> Cluster:
    return make_cluster(nodes=1, replicas=1)


def test_rubbish_on_the_port_is_counted_and_dropped(make_cluster: MakeCluster) -> None:
    cluster = one_node(make_cluster)
    host, port = cluster.nodes[0].address.split(":")
    for rubbish in (b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 5000, b""):
        with socket.create_connection((host, int(port)), 5) as peer:
            peer.sendall(rubbish)
            peer.shutdown(socket.SHUT_WR)
            peer.settimeout(5)
            while peer.recv(4096):
                pass
    until(lambda: counter(cluster, "broken") >= 3, what="they were counted")
    alive(cluster)


def test_another_clusters_certificate_is_one_clear_line(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    cluster = one_node(make_cluster)
    run("init", tmp_path / "other", "--node", cluster.nodes[0].address)
    error = run("status", "--cluster-file", tmp_path / "other" / "cluster.json", check=False)
    assert "certificate" in error
    assert len(error.splitlines()) == 1, error
    alive(cluster)


@pytest.mark.parametrize(
    ("addresses", "why"),
    [
        (["host:1", "/a.sock", "host:1"], "host:1 is given twice"),
        (["host"], "give HOST:PORT"),
        (["host:http"], "give HOST:PORT"),
        ([":7000"], "give HOST:PORT"),
        (["host:0"], "give HOST:PORT"),
    ],
)
def test_no_cluster_is_made_of_wrong_addresses(
    tmp_path: Path, addresses: list[str], why: str
) -> None:
    flags = [flag for address in addresses for flag in ("--node", address)]
    error = run("init", tmp_path / "new", *flags, check=False)
    assert why in error
    assert not (tmp_path / "new").exists()


def test_missing_certificates_are_one_clear_line(make_cluster: MakeCluster, tmp_path: Path) -> None:
    cluster = one_node(make_cluster)
    shutil.copy(cluster.file, tmp_path / "cluster.json")
    error = run("status", "--cluster-file", tmp_path / "cluster.json", check=False)
    assert "identity.pem" in error
    assert "hoplo control init" in error
    assert len(error.splitlines()) == 1, error


def test_another_cluster_with_our_certificates_is_named(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    cluster = one_node(make_cluster)
    ours, theirs = elsewhere(cluster, tmp_path / "other")
    error = run("status", "--cluster-file", tmp_path / "other" / "cluster.json", check=False)
    assert ours in error
    assert theirs in error
    assert "identity.pem" in error, "what to renew"
    assert len(error.splitlines()) == 1, error
    alive(cluster)


def elsewhere(cluster: Cluster, other: Path) -> tuple[str, str]:
    """A folder with the certificates of one cluster and the number of another; both numbers."""
    other.mkdir()
    if (cluster.folder / "tls").exists():
        shutil.copytree(cluster.folder / "tls", other / "tls")
    written = json.loads(cluster.file.read_text())
    ours = written["cluster"]
    written["cluster"] = "0123456789abcdef0123456789abcdef"
    (other / "cluster.json").write_text(json.dumps(written))
    return ours, written["cluster"]


def test_another_cluster_without_certificates_is_named_by_the_node(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    cluster = with_socket(make_cluster, tmp_path)
    ours, theirs = elsewhere(cluster, tmp_path / "other")
    error = run("status", "--cluster-file", tmp_path / "other" / "cluster.json", check=False)
    assert ours in error
    assert theirs in error
    until(lambda: counter(cluster, "refused_hellos") >= 1)
    alive(cluster)


def test_a_log_of_another_cluster_is_refused(make_cluster: MakeCluster) -> None:
    first, second = one_node(make_cluster), one_node(make_cluster)
    alive(first)
    for cluster in (first, second):
        cluster.nodes[0].kill()
    node = second.nodes[0]
    shutil.rmtree(node.folder / "shard-0")
    shutil.copytree(first.nodes[0].folder / "shard-0", node.folder / "shard-0")
    node.start()
    assert node.process is not None
    assert node.process.wait(20) != 0
    ids = [json.loads(cluster.file.read_text())["cluster"] for cluster in (first, second)]
    assert all(cluster in node.output for cluster in ids), node.output


def test_a_folder_has_one_process(make_cluster: MakeCluster) -> None:
    cluster = one_node(make_cluster)
    # fmt: off
    done = subprocess.run(
        [HOPLO, "control", "serve", "--dir", cluster.nodes[0].folder, "--listen", "127.0.0.1:0",
         "--cluster-file", cluster.nodes[0].cluster_file],
        capture_output=True, text=True, timeout=20, check=False,
    )
    # fmt: on
    assert done.returncode != 0
    assert "in use by another process" in done.stderr
    alive(cluster)


def test_an_oversized_value_is_refused_with_the_limit(make_cluster: MakeCluster) -> None:
    cluster = one_node(make_cluster)
    # fmt: off
    error = run(
        "bench", "--cluster-file", cluster.file, "--mode", "throughput", "--value-bytes",
        str(600 * 1024 * 1024), "--seconds", "0.1", check=False, seconds=60,
    )
    # fmt: on
    assert "at most" in error or "limit" in error or "less" in error, error
    error = run(
        "bench", "--cluster-file", cluster.file, "--mode", "latency", "--key-bytes", "5000",
        check=False,
    )  # fmt: skip
    assert "key has 5000 bytes" in error, error
    alive(cluster)


def test_a_client_that_vanishes_mid_batch_stops_nobody(make_cluster: MakeCluster) -> None:
    cluster = one_node(make_cluster)
    # fmt: off
    client = subprocess.Popen(
        [HOPLO, "control", "bench", "--cluster-file", cluster.file, "--mode", "throughput",
         "--seconds", "30"],
        stdout=subprocess.PIPE,
    )
    # fmt: on
    assert client.stdout is not None
    assert client.stdout.readline() == b"ready\n"
    client.kill()
    client.wait()
    client.stdout.close()
    alive(cluster)
    until(lambda: counter(cluster, "clients") <= 1, what="it is forgotten")


def test_metrics_members_and_compact_speak_of_every_shard(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(nodes=2, replicas=2, shards=2)
    alive(cluster)
    metrics = run("metrics", "--cluster-file", cluster.file)
    assert 'hoplo_control_applied_index{shard="1"}' in metrics
    assert "hoplo_control_accepted_total" in metrics
    members = run("members", "--cluster-file", cluster.file)
    assert len(members.splitlines()) == 5, members
    compacted = run("compact", "--cluster-file", cluster.file)
    assert compacted.count("2 shards") == 2, compacted
    assert "TROUBLE" in run("status", "--cluster-file", cluster.file)


def number(value: int) -> bytes:
    """As it travels: seven bits a byte, the lowest first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def text(value: bytes) -> bytes:
    return number(len(value)) + value


class Stranger:
    """A client that speaks the protocol byte by byte, over a unix socket."""

    def __init__(self, cluster: Cluster, protocol: int = 6, program: bytes = b"hoplo 99.9") -> None:
        self.peer = socket.socket(socket.AF_UNIX)
        self.peer.settimeout(10)
        self.peer.connect(cluster.nodes[0].address)
        ours = int(json.loads(cluster.file.read_text())["cluster"], 16)
        # Hello { protocol, program, cluster, who: Client }
        self.send(number(0) + number(protocol) + text(program) + number(ours) + bytes([0, 5]))

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

    def put(self, epoch: int, table: int, expected: bytes = b"\0") -> bytes:
        """Request::Update { shard 0, epoch, born 0, seq 1, answered 0, [Put { .. expected }] }"""
        put = b"\0" + number(table) + text(b"key") + text(b"value") + expected + b"\0"
        self.send(b"\x02\0" + number(0) + number(epoch) + b"\0\x01\0\x01" + put)
        return self.hear()


TASK = 4
KV = 7
REFUSED = b"\x01"
UPDATED = b"\x03\0"
UPDATE_REFUSED = b"\x03\x01"


def with_socket(make_cluster: MakeCluster, tmp_path: Path) -> Cluster:
    return make_cluster(nodes=1, replicas=1, addresses=[str(tmp_path / "n.sock")])


def test_mixed_versions_are_refused_with_both_named(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    cluster = with_socket(make_cluster, tmp_path)
    version = cluster.status()[cluster.nodes[0].address]["program"].encode()
    stranger = Stranger(cluster, protocol=77)
    said = stranger.hear()
    if not said.startswith(REFUSED):  # it greets first
        said = stranger.hear()
    assert said.startswith(REFUSED), said
    assert b"hoplo 99.9" in said, said
    assert version in said, said
    until(lambda: counter(cluster, "refused_hellos") >= 1, what="it was counted")
    alive(cluster)


def test_an_unknown_table_ends_that_connection_with_a_reason(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    cluster = with_socket(make_cluster, tmp_path)
    stranger = Stranger(cluster)
    assert stranger.hear().startswith(b"\0"), "a greeting"
    said = stranger.put(1, table=77)
    assert said.startswith(REFUSED), said
    assert b"could not be read" in said, said
    assert stranger.hear() == b"", "and nothing more"
    until(lambda: counter(cluster, "bad_frames") >= 1, what="it was counted")
    alive(cluster)


def greeted(cluster: Cluster) -> tuple[Stranger, int]:
    """A client that heard the greeting, and the epoch of the shard."""
    epoch = cluster.status()[cluster.nodes[0].address]["shards"][0]["epoch"]
    stranger = Stranger(cluster)
    stranger.hear()
    return stranger, epoch


def test_a_stale_epoch_and_a_wrong_version_are_told_to_who_sent_them(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    cluster = with_socket(make_cluster, tmp_path)
    stranger, epoch = greeted(cluster)
    # UpdateRefused { shard, seq 1, Stale(epoch) }
    assert stranger.put(epoch + 1, KV) == UPDATE_REFUSED + b"\0\x01\0" + number(epoch)
    # Updated { shard, seq 1, index, [Conflict { found: 0 }] }
    said = stranger.put(epoch, KV, expected=b"\x01" + number(5))
    assert said.startswith(UPDATED + b"\0\x01"), said
    assert said.endswith(b"\x01\x01\0"), said
    alive(cluster)


def test_a_row_that_is_none_of_its_table_is_refused(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    cluster = with_socket(make_cluster, tmp_path)
    stranger, epoch = greeted(cluster)
    said = stranger.put(epoch, TASK)
    assert said.startswith(UPDATE_REFUSED), said
    assert b"row format" in said, said
    alive(cluster)
