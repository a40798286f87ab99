"""Control nodes that hold the cluster's configuration themselves: no file on one machine, no etcd.

Any one of three dies at any moment, the one that coordinates included; clients go on, and what was
acknowledged stays.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
from typing import Any

import pytest
from conftest import Cluster, MakeCluster, Node, run, until
from test_faults import max_applied, settled, work

NODES = "nodes"


def why(cluster: Cluster) -> str:
    """What the nodes that run say about their chains."""
    found = []
    for status in cluster.status().values():
        for chain in (status.get("coordinator") or {}).get("chains", []):
            found += chain["why"]
    return " / ".join(found)


def held(node: Node) -> dict[str, Any]:
    """What this node has on its disk of the configuration."""
    found = []
    for half in ("register.json", "register.json.other"):
        with contextlib.suppress(ValueError, FileNotFoundError):  # it is being written
            found.append(json.loads((node.folder / half).read_text()))
    newest: dict[str, Any] = max(found, key=lambda one: one["revision"], default={})
    return newest["config"]["held"] if newest else {"seats": [], "accepted": None}


def version(node: Node) -> int:
    accepted = held(node)["accepted"]
    return int(accepted["value"]["version"]) if accepted else 0


@pytest.mark.parametrize("place", [0, 1, 2])
def test_any_one_of_three_dies_under_writes(make_cluster: MakeCluster, place: int) -> None:
    cluster = make_cluster(config=NODES, replicas=2, fsync="always")
    work(cluster, 6)
    victim = cluster.nodes[place]
    until(lambda: max_applied(cluster) > 20)
    victim.kill()
    until(lambda: victim.address not in cluster.members(), what="the others go on without it")
    cluster.until_whole(2)
    victim.start()
    settled(cluster)


def test_the_one_that_acts_dies_one_after_the_other(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(config=NODES)
    work(cluster, 8)
    for _ in range(3):
        acting = cluster.acting()
        acting.kill()
        cluster.until_whole(2)
        assert cluster.acting() is not acting
        acting.start()
        cluster.until_whole(3)
    settled(cluster)


def test_two_of_three_die_and_nothing_changes_until_one_is_back(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(config=NODES)
    work(cluster, 4)
    last, *others = cluster.nodes
    for node in others:
        node.strike(signal.SIGKILL)
    for node in others:
        node.kill()
    said = until(lambda: (found := why(cluster)) and "2 of 3 must answer" in found and found)
    assert all(node.address in said for node in others), said
    assert f"{last.address}:" not in said, said
    others[0].start()
    cluster.until_whole(2)
    others[1].start()
    cluster.until_whole(3)
    settled(cluster)


def test_all_die_at_once_and_the_configuration_is_there(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(config=NODES, fsync="always")
    work(cluster, 5)
    until(lambda: max_applied(cluster) > 20)
    before = cluster.config_now()
    for node in cluster.nodes:
        node.strike(signal.SIGKILL)
    for node in cluster.nodes:
        node.kill()
        node.start()
    cluster.until_whole(3)
    after = cluster.config_now()
    assert before
    assert after
    assert after["shards"][0]["epoch"] >= before["shards"][0]["epoch"]
    settled(cluster)


def test_a_node_whose_disk_was_deleted_holds_the_configuration_again(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(config=NODES, fsync="always")
    work(cluster, 8)
    lost, other, third = cluster.nodes
    lost.kill()
    shutil.rmtree(lost.folder)
    lost.start()
    cluster.until_whole(3)
    until(lambda: version(lost) > 1, what="it has the configuration")
    assert [seat["turn"] for seat in held(third)["seats"]] == [2, 1, 1]
    # Now it counts: with the third alone it is a majority.
    other.kill()
    cluster.until_whole(2)
    other.start()
    cluster.until_whole(3)
    settled(cluster)


def test_two_of_three_that_come_back_with_new_folders_are_named(make_cluster: MakeCluster) -> None:
    """Nothing said why nobody coordinated."""
    cluster = make_cluster(config=NODES)
    acting = cluster.acting()
    old = next(node for node in cluster.nodes if node is not acting)
    new = [node for node in cluster.nodes if node is not old]
    for node in new:
        node.kill()
    for node in new:
        shutil.rmtree(node.folder)
    for node in new:
        node.start()
    file = ("--cluster-file", cluster.file)
    missed = "the folders are new at"
    said = until(lambda: missed in (found := run("status", *file)) and found)
    assert "coordinator: nobody acts" in said
    line = next(line for line in said.splitlines() if missed in line)
    assert all(node.address in line.partition(missed)[2] for node in new), line
    assert old.address not in line.partition(missed)[2], line
    error = run("restore", *file, check=False)
    assert "no coordinator acts now" in error
    assert missed in error


def test_a_node_that_stands_still_holds_nobody_up(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(config=NODES)
    acting = cluster.acting()
    stopped = next(node for node in cluster.nodes if node is not acting)
    stopped.kill(signal.SIGSTOP)
    known = version(acting)
    until(lambda: version(acting) > known + 4, what="the configuration is renewed")
    stopped.kill(signal.SIGCONT)
    cluster.until_whole(3)
