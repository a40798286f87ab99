"""What an operator does: look, move, drain, bound what is kept."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from conftest import HOPLO, Cluster, MakeCluster, run, until


def command(cluster: Cluster, *args: str) -> str:
    return run(*args, "--cluster-file", cluster.file)


def wish(cluster: Cluster, *args: str) -> None:
    """Once all nodes have registered: the last one may have started a moment ago."""
    error = partial(run, *args, "--cluster-file", cluster.file, check=False)
    until(lambda: error() == "", 10, f"{args} is taken")


def refused(cluster: Cluster, *args: str) -> str:
    error = run(*args, "--cluster-file", cluster.file, check=False)
    assert len(error.splitlines()) == 1, error
    return error


def holders(cluster: Cluster, shard: int = 0) -> set[str]:
    return set(cluster.members(shard))


def others(cluster: Cluster, shard: int = 0) -> list[str]:
    return [node.address for node in cluster.nodes if node.address not in holders(cluster, shard)]


def test_a_replica_moves_while_clients_work(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(nodes=3, replicas=2)
    cluster.client("a", 3)
    start, free = cluster.members()[0], others(cluster)[0]
    wish(cluster, "move", "0", start, free)
    until(lambda: start not in cluster.members() and free in cluster.members(), 20, "it moved")
    cluster.until_whole()
    assert cluster.config_now()["wishes"] == []  # type: ignore[index]
    counts = cluster.judge()
    assert counts["ended"] > 100, counts
    assert not cluster.errors()


def test_a_drained_node_is_empty_until_it_is_wanted_again(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(nodes=3, replicas=2, shards=3)
    cluster.client("a", 3)
    victim = cluster.members(0)[0]
    wish(cluster, "drain", victim)
    told = json.loads(command(cluster, "drain", victim, "--json"))
    assert told["wished"] is True, "it may be said twice"
    until(
        lambda: all(victim not in holders(cluster, shard) for shard in range(3)),
        30,
        "it is empty",
    )
    cluster.until_whole()
    # One that stays dies: the drained one may not help out, until it is asked to.
    helper = next(node for node in cluster.nodes if node.address != victim)
    helper.kill()
    cluster.until_whole(1)
    assert victim not in holders(cluster)
    command(cluster, "drain", victim, "--undo")
    cluster.until_whole(2)
    assert victim in holders(cluster)
    cluster.judge()
    assert not cluster.errors()


def test_what_cannot_be_done_is_said(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(nodes=2, replicas=2)
    first, second = cluster.members()
    assert "there are" in refused(cluster, "drain", "10.0.0.1:7")
    assert "no node is free: 1 would stay" in refused(cluster, "drain", first)
    assert "no shard 4" in refused(cluster, "move", "4", first, second)
    assert "already" in refused(cluster, "move", "0", first, second)
    assert "there are" in refused(cluster, "move", "0", first, "nobody:1")
    assert "nobody asked" in refused(cluster, "drain", first, "--undo")
    assert cluster.config_now()["wishes"] == []  # type: ignore[index]
    for node in cluster.nodes:
        node.kill()
    assert "no coordinator acts" in refused(cluster, "drain", first)


def shards_of(cluster: Cluster) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cluster.status()[cluster.nodes[0].address]["shards"]
    return found


def test_history_on_disk_is_shown_and_bounded(make_cluster: MakeCluster) -> None:
    flags = ("--memory-mb", "8", "--retention-mb", "4")
    cluster = make_cluster(nodes=1, replicas=1, flags=flags)
    # fmt: off
    command(
        cluster, "bench", "--mode", "throughput", "--fill", "--events", "--keys", "60000",
        "--value-bytes", "400",
    )
    # fmt: on
    until(lambda: shards_of(cluster)[0]["cold_rows"] > 0, what="rows went to disk")
    shard = shards_of(cluster)[0]
    # One flush more, at most.
    assert 0 < shard["cold_bytes"] <= 12 << 20, shard
    assert shard["cold_disk_bytes"] > 0
    assert shard["rows"] + shard["cold_rows"] < 60000, "the oldest went"

    def agree() -> bool:
        found = json.loads(command(cluster, "metrics", "--json"))[cluster.nodes[0].address]
        rows: int = found['hoplo_control_cold_rows{shard="0"}']
        return rows == shards_of(cluster)[0]["cold_rows"]

    until(agree, what="metrics say the same once nothing is written any more")
    assert "COLD ROWS" in command(cluster, "status")


def test_a_retention_that_is_none_is_refused(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(nodes=1, replicas=1, start=False, flags=("--retention-hours=-1",))
    node = cluster.nodes[0]
    node.start()
    assert node.process is not None
    assert node.process.wait(20) != 0
    assert "retention-hours" in node.output


@pytest.mark.parametrize("what", ["status", "members", "compact", "metrics"])
def test_everything_can_be_read_by_programs(make_cluster: MakeCluster, what: str) -> None:
    cluster = make_cluster(nodes=1, replicas=1)
    assert json.loads(command(cluster, what, "--json"))


def test_a_log_without_its_beginning_is_set_aside_and_given_again(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(nodes=2, replicas=2)
    cluster.client("a", 0.5)
    cluster.judge()
    victim = next(node for node in cluster.nodes if node is not cluster.acting())
    # Each start begins another file.
    for _ in range(2):
        victim.kill()
        cluster.until_whole(1)
        victim.start()
        cluster.until_whole(2)
    victim.kill()
    cluster.until_whole(1)
    log = victim.folder / "shard-0" / "log"
    files = sorted(log.glob("log-*"))
    assert len(files) > 1, files
    files[0].unlink()
    victim.start()
    cluster.until_whole(2)
    assert "set aside" in victim.output
    assert (log / "aside-1").is_dir()
    cluster.client("b", 0.5)
    cluster.judge()
    assert not cluster.errors()


def acknowledged(cluster: Cluster) -> set[str]:
    """The values of all puts that were done."""
    lines = [
        json.loads(line) for _, path in cluster.clients for line in path.read_text().splitlines()
    ]
    return {
        line["value"] for line in lines if line["op"] == "put" and "done" in line.get("outcome", {})
    }


def test_a_feed_over_a_killed_tail_has_no_gap_and_no_duplicate(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    feed = cluster.folder / "feed.jsonl"
    watcher = cluster.background("watch", "--out", feed)
    for name in ("a", "b"):
        cluster.client(name, 8)

    def told() -> list[dict[str, Any]]:
        # The last line may still be written.
        whole = feed.read_text().rpartition("\n")[0] if feed.exists() else ""
        return [json.loads(line) for line in whole.splitlines()]

    until(lambda: len(told()) > 50, what="the feed flows")
    for _ in range(2):
        before = max(line.get("upto", 0) for line in told())
        tail = cluster.node(cluster.members()[-1])
        tail.kill()
        cluster.until_whole(2)
        until(
            lambda before=before: max(line.get("upto", 0) for line in told()) > before + 20,
            what="the new tail tells on",
        )
        tail.start()
        cluster.until_whole(3)
    cluster.judge()
    applied = max(status["shards"][0]["applied"] for status in cluster.status().values())
    until(lambda: max(line.get("upto", 0) for line in told()) >= applied, what="all was told")
    watcher.terminate()
    watcher.wait(20)

    lines = told()
    assert not any("missed_until" in line for line in lines)
    changes = [line for line in lines if "key" in line]
    indexes = [line["index"] for line in changes]
    assert indexes == sorted(indexes), "entries in order"
    versions: dict[str, int] = {}
    for line in changes:
        before = versions.get(line["key"], 0)
        if line["version"] is None:
            assert before > 0, f"what was not there went: {line}"
        else:
            assert line["version"] == before + 1, f"a gap before {line}"
        versions[line["key"]] = line["version"] or 0
    values = [line["value"] for line in changes if line["value"]]
    assert len(values) == len(set(values)), "each value once"
    assert acknowledged(cluster) <= set(values), "what was acknowledged was told"
    assert len(acknowledged(cluster)) > 100


def here(*args: str, check: bool = True) -> str:
    """Another `hoplo` command on the node of this machine."""
    done = subprocess.run([HOPLO, *args], capture_output=True, text=True, timeout=30, check=False)
    assert not check or done.returncode == 0, done.stderr
    return done.stdout if check else done.stderr


@pytest.fixture
def no_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nobody else's node is in sight."""
    monkeypatch.setenv("HOPLO_TMPDIR", str(tmp_path))
    yield
    subprocess.run([HOPLO, "stop", "--all"], capture_output=True, timeout=30, check=False)


@pytest.mark.usefixtures("no_node")
def test_a_laptops_store_is_seen_without_a_cluster_file() -> None:
    assert "hoplo start --head" in here("control", "status", check=False)
    here("start", "--head", "--num-cpus", "1", "--python", sys.executable)
    told = here("control", "status")
    assert "head and tail" in told, told
    assert "COLD ROWS" in told, told
    (status,) = json.loads(here("control", "status", "--json")).values()
    (shard,) = status["shards"]
    assert shard["rows"] > 0, "it knows of itself"
    assert shard["acts"] is True
    assert 0 < shard["memory_bytes"] < shard["memory_cap"]
    assert shard["log_disk_bytes"] > 0
    assert "head and tail" in here("control", "members")
    assert json.loads(here("control", "members", "--json"))["shards"][0]["joining"] is None
    assert "hoplo_control_cold_bytes" in here("control", "metrics")
    assert "1 shards" in here("control", "compact")
    (compacted,) = json.loads(here("control", "compact", "--json")).values()
    assert compacted == {"shards": 1}


@pytest.mark.usefixtures("no_node")
def test_tables_in_memory_are_seen_as_well(tmp_path: Path) -> None:
    """A driver's own node: nothing is on disk."""
    # fmt: off
    daemon = subprocess.Popen(
        [HOPLO, "daemon", "--foreground", "--num-cpus", "1", "--python", sys.executable,
         "--session-dir", tmp_path / "own"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    # fmt: on
    try:
        session = ("--session", str(tmp_path / "own"))
        until(lambda: "in memory" in here_or_nothing("control", "status", *session))
        assert "hoplo_control_rows" in here("control", "metrics", *session)
        assert "in memory" in here("control", "compact", *session, check=False)
    finally:
        daemon.kill()
        daemon.wait(20)


def here_or_nothing(*args: str) -> str:
    done = subprocess.run([HOPLO, *args], capture_output=True, text=True, timeout=30, check=False)
    return done.stdout
