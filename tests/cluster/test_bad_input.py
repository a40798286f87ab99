"""What does not belong: a clear error to whoever sent it, and nothing else stops."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from pathlib import Path

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


def test_missing_certificates_are_one_clear_line(make_cluster: MakeCluster, tmp_path: Path) -> None:
    cluster = one_node(make_cluster)
    shutil.copy(cluster.file, tmp_path / "cluster.json")
    error = run("status", "--cluster-file", tmp_path / "cluster.json", check=False)
    assert "ca.pem" in error
    assert "hoplo control init" in error
    assert len(error.splitlines()) == 1, error


def test_another_cluster_with_our_certificates_is_named(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    cluster = one_node(make_cluster)
    other = tmp_path / "other"
    shutil.copytree(cluster.folder / "tls", other / "tls")
    written = json.loads(cluster.file.read_text())
    ours = written["cluster"]
    written["cluster"] = "0123456789abcdef0123456789abcdef"
    (other / "cluster.json").write_text(json.dumps(written))
    error = run("status", "--cluster-file", other / "cluster.json", check=False)
    assert ours in error
    assert written["cluster"] in error
    until(lambda: counter(cluster, "refused_hellos") >= 1)
    alive(cluster)


def test_a_log_of_another_cluster_is_refused(make_cluster: MakeCluster) -> None:
    first, second = one_node(make_cluster), one_node(make_cluster)
    alive(first)
    for cluster in (first, second):
        cluster.nodes[0].kill()
    shutil.rmtree(second.nodes[0].folder)
    shutil.copytree(first.nodes[0].folder, second.nodes[0].folder)
    node = second.nodes[0]
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
         "--cluster-file", cluster.file],
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
