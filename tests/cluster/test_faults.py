"""Control nodes die, stop, lose their disks, their links and their configuration store.

Clients go on, and what they saw is linearizable.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import HOPLO, Cluster, Etcd, MakeCluster, run, until

ENDED_MIN = 200


def work(cluster: Cluster, seconds: float, timeout: float = 15) -> None:
    for name in ("a", "b"):
        cluster.client(name, seconds, timeout=timeout)


def settled(cluster: Cluster, ended_min: int = ENDED_MIN) -> None:
    """Clients have seen much, all of it in order, and none of them an error."""
    counts = cluster.judge()
    assert counts["ended"] > ended_min, counts
    assert not cluster.errors()


@pytest.mark.parametrize("place", [0, 1, 2], ids=["head", "middle", "tail"])
def test_a_killed_member_is_replaced_when_it_returns(make_cluster: MakeCluster, place: int) -> None:
    cluster = make_cluster()
    work(cluster, 4)
    victim = cluster.node(cluster.members()[place])
    victim.kill()
    cluster.until_whole(2)
    assert victim.address not in cluster.members()
    victim.start()
    cluster.until_whole(3)
    settled(cluster)


def test_one_after_the_other_until_all_are_new(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    work(cluster, 8)
    for victim in list(cluster.nodes):
        victim.kill()
        cluster.until_whole(2)
        victim.start()
        cluster.until_whole(3)
    settled(cluster)


def test_a_stopped_member_is_left_behind_and_comes_back(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    acting = cluster.acting()
    victim = next(node for node in cluster.nodes if node is not acting)
    work(cluster, 7)
    victim.kill(signal.SIGSTOP)
    until(lambda: victim.address not in cluster_members(cluster, victim), 15, "it was left behind")
    victim.kill(signal.SIGCONT)
    cluster.until_whole(3)
    settled(cluster)


def cluster_members(cluster: Cluster, without: object) -> list[str]:
    """Asked of a node that runs: a stopped one answers nobody."""
    other = next(node for node in cluster.nodes if node is not without)
    text = run("members", "--node", other.address, "--cluster-file", cluster.file)
    lines = [line.split() for line in text.splitlines()[1:]]
    return [line[-1] for line in lines if "joining" not in line]


def test_the_coordinator_dies_and_another_acts(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    work(cluster, 5)
    first = cluster.acting()
    first.kill()
    cluster.until_whole(2)
    assert cluster.acting() is not first
    first.start()
    cluster.until_whole(3)
    settled(cluster)


def test_all_die_at_once_and_nothing_is_lost(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(fsync="always")
    work(cluster, 5)
    until(lambda: cluster.status()[cluster.nodes[0].address]["shards"][0]["applied"] > 20)
    for node in cluster.nodes:
        node.kill()
    for node in cluster.nodes:
        node.start()
    cluster.until_whole(3)
    settled(cluster)


@pytest.mark.parametrize("gone", [0, 1, 2], ids=["head", "middle", "tail"])
def test_a_shard_goes_on_though_one_of_all_that_died_never_returns(
    make_cluster: MakeCluster, gone: int
) -> None:
    """A coordinator that had just begun took the missing one for alive, and gave it the chain."""
    cluster = make_cluster(fsync="always")
    work(cluster, 5)
    until(lambda: cluster.status()[cluster.nodes[0].address]["shards"][0]["applied"] > 20)
    missing = cluster.node(cluster.members()[gone])
    # At once, and that one first: were it to outlive the others, the chain would be its own.
    for node in sorted(cluster.nodes, key=lambda node: node is not missing):
        node.strike(signal.SIGKILL)
    for node in cluster.nodes:
        node.kill()
    for node in cluster.nodes:
        if node is not missing:
            node.start()
    cluster.until_whole(2)
    settled(cluster)


def test_a_shard_whose_disks_are_gone_goes_on_when_an_operator_accepts_the_loss(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(fsync="always")
    fill(cluster, 100)
    assert "no shard waits" in run("restore", "--cluster-file", cluster.file)
    for node in cluster.nodes:
        node.kill()
        shutil.rmtree(node.folder)
        node.start()
    until(lambda: "everything in it is lost" in run_both("restore", "--cluster-file", cluster.file))
    error = run("restore", "--cluster-file", cluster.file, check=False)
    assert "nothing was changed" in error
    assert "--accept-loss" in error
    assert not cluster.whole(), "it waits until it is told"
    run("restore", "--cluster-file", cluster.file, "--accept-loss")
    cluster.until_whole(3)
    applied = max_applied(cluster)
    work(cluster, 8)
    until(lambda: max_applied(cluster) > applied + 20, what="updates go on, however slow the disk")
    settled(cluster, ended_min=10)


def run_both(*args: str | Path) -> str:
    """What a command prints, whether it did its work or not."""
    done = subprocess.run(
        [HOPLO, "control", *args], capture_output=True, text=True, timeout=30, check=False
    )
    return done.stdout + done.stderr


def test_an_empty_cluster_survives_that_all_die(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    for node in cluster.nodes:
        node.kill()
    for node in cluster.nodes:
        node.start()
    cluster.until_whole(3)
    work(cluster, 1)
    settled(cluster)


def test_etcd_goes_and_comes_back(make_cluster: MakeCluster, etcd: Etcd) -> None:
    cluster = make_cluster(config=f"etcd:{etcd.url}/hoplo/test")
    work(cluster, 6)
    etcd.kill()
    # Chains serve on; nothing can be changed meanwhile.
    applied = max_applied(cluster)
    until(lambda: max_applied(cluster) > applied + 50, what="updates go on without etcd")
    victim = cluster.node(cluster.members()[1])
    victim.kill()
    etcd.start()
    cluster.until_whole(2)
    victim.start()
    cluster.until_whole(3)
    settled(cluster)


def max_applied(cluster: Cluster) -> int:
    shards = [shard for status in cluster.status().values() for shard in status.get("shards", [])]
    return max(shard["applied"] for shard in shards)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", folder], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("a small disk cannot be mounted here (root is needed)")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=False)


def test_a_member_whose_disk_is_full_leaves_the_others_alone(
    make_cluster: MakeCluster, small_disk: Path
) -> None:
    cluster = make_cluster(start=False)
    full = cluster.nodes[1]
    full.folder = small_disk / "node"
    for node in cluster.nodes:
        node.start()
    cluster.until_whole(3)
    (small_disk / "filler").write_bytes(b"x" * room(small_disk))
    # More than fits in what the log has reserved.
    fill(cluster, 4000)
    until(lambda: full.address not in cluster.members(), 20, "it was removed")
    work(cluster, 1)
    settled(cluster)
    (small_disk / "filler").unlink()
    cluster.until_whole(3)


def test_a_disk_that_is_full_everywhere_is_said_to_who_writes(
    make_cluster: MakeCluster, small_disk: Path
) -> None:
    cluster = make_cluster(nodes=1, replicas=1, start=False)
    cluster.nodes[0].folder = small_disk / "node"
    cluster.nodes[0].start()
    cluster.until_whole(1)
    filler = small_disk / "filler"
    filler.write_bytes(b"x" * room(small_disk))
    # fmt: off
    filling = cluster.background(
        "bench", "--mode", "throughput", "--fill", "--keys", "4000", "--calls", "1",
    )
    # fmt: on
    # It still answers questions, and works again when there is room.
    until(lambda: cluster.status()[cluster.nodes[0].address]["shards"][0]["disk"])
    cluster.client("late", 0.5, timeout=1)
    cluster.judge()
    assert any("disk" in error for error in cluster.errors()), cluster.errors()
    filler.unlink()
    assert filling.wait(30) == 0
    until(lambda: fill(cluster, 10, check=False) == "", what="updates work again")


def room(folder: Path) -> int:
    found = os.statvfs(folder)
    return max(found.f_bavail * found.f_bsize - 16 * 1024, 0)


def fill(cluster: Cluster, keys: int, check: bool = True) -> str:
    # fmt: off
    return run(
        "bench", "--cluster-file", cluster.file, "--mode", "throughput", "--fill",
        "--keys", str(keys), "--calls", "1", check=check, seconds=60,
    )
    # fmt: on


LINKS = "hoplo-t"


@pytest.fixture
def namespaces() -> Iterator[list[tuple[str, str, str]]]:
    """Three network namespaces on a bridge: (name, address, the bridge's end of its link)."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and `ip`")

    def ip(*args: str, check: bool = True) -> None:
        subprocess.run(["ip", *args], check=check, capture_output=True)

    mark = f"{os.getpid() % 10000}"
    bridge = f"hb{mark}"
    made = [
        (f"hoplo-{mark}-{n}", f"10.231.{int(mark) % 250}.{n + 1}", f"hl{mark}-{n}")
        for n in range(3)
    ]
    try:
        ip("link", "add", bridge, "type", "bridge")
        ip("addr", "add", f"10.231.{int(mark) % 250}.254/24", "dev", bridge)
        ip("link", "set", bridge, "up")
        for name, address, link in made:
            ip("netns", "add", name)
            ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", link, "master", bridge, "up")
            ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
    except subprocess.CalledProcessError as error:
        for name, _, _ in made:
            ip("netns", "del", name, check=False)
        ip("link", "del", bridge, check=False)
        pytest.skip(f"no network namespaces here: {error.stderr.decode().strip()}")
    yield made
    for name, _, link in made:
        ip("link", "del", link, check=False)
        ip("netns", "del", name, check=False)
    ip("link", "del", bridge, check=False)


def test_a_cut_link_is_cut_out_of_the_chain(
    make_cluster: MakeCluster, namespaces: list[tuple[str, str, str]]
) -> None:
    cluster = make_cluster(
        addresses=[f"{address}:7100" for _, address, _ in namespaces],
        prefixes=[("ip", "netns", "exec", name) for name, _, _ in namespaces],
    )
    work(cluster, 8)
    acting = cluster.acting()
    victim = next(n for n, node in enumerate(cluster.nodes) if node is not acting)
    link = namespaces[victim][2]
    subprocess.run(["ip", "link", "set", link, "down"], check=True)
    until(
        lambda: (
            cluster.nodes[victim].address not in cluster_members(cluster, cluster.nodes[victim])
        ),
        15,
        "it was cut out",
    )
    subprocess.run(["ip", "link", "set", link, "up"], check=True)
    cluster.until_whole(3)
    settled(cluster)
