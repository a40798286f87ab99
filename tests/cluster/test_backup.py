"""A head whose disk is lost, and one that begins with a backup in its place."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import HOPLO, Cluster, MakeCluster, run
from machines import Machine, until
from test_heads import FINDS, KEPT, heads  # noqa: F401

import hoplo

WRITES = """
from far import Counter
from hoplo.ray.experimental.internal_kv import _internal_kv_put
from hoplo.util.scheduling_strategies import NodeAffinitySchedulingStrategy
with hoplo.init(address="auto", namespace="kept"):
    strategy = NodeAffinitySchedulingStrategy(sys.argv[1], soft=False)
    options = dict(name="there", lifetime="detached", num_cpus=0)
    counter = Counter.options(scheduling_strategy=strategy, **options).remote()
    _internal_kv_put("written", "before the backup")
    say(hoplo.get(counter.add.remote(), timeout=20))
"""

READS = """
from far import Counter
from hoplo.ray.experimental.internal_kv import _internal_kv_get
with hoplo.init(address="auto", namespace="kept"):
    count = hoplo.get(hoplo.get_actor("there").add.remote(), timeout=20)
    kept = [_internal_kv_get(key) for key in ("written", "later")]
    nodes = sorted(node["NodeID"] for node in hoplo.nodes() if node["Alive"])
    say(count, [value.decode() if value else None for value in kept], nodes)
"""

LATER = """
from hoplo.ray.experimental.internal_kv import _internal_kv_put
with hoplo.init(address="auto", namespace="kept"):
    say(_internal_kv_put("later", "after it"))
"""

PUTS = """
from hoplo.ray.experimental.internal_kv import _internal_kv_put
with hoplo.init(address="auto", namespace="t"):
    _internal_kv_put("key", sys.argv[1])
    say(None)
"""

GETS = """
from hoplo.ray.experimental.internal_kv import _internal_kv_get
with hoplo.init(address="auto", namespace="t"):
    say(_internal_kv_get("key").decode())
"""

PATH = os.path.dirname(os.path.abspath(__file__))


def backed_up(machine: Machine, file: Path, *flags: str) -> str:
    return machine.hoplo("control", "backup", str(file), *flags).stdout


def lose_head(far: Any) -> None:
    """Its daemon dies, and everything that it had on disk is gone."""
    session = far.machines[0].session
    far.kill_daemon(0)
    far.machines[0].kill()
    shutil.rmtree(session)


def test_a_head_from_a_backup_has_its_nodes_its_actors_and_its_keys(
    make_far: Any, tmp_path: Path
) -> None:
    far = make_far(3)
    hoplo.shutdown()
    head, other = far.machines[0], far.machines[2]
    assert head.run(WRITES, far.ids[1], PYTHONPATH=PATH) == 1
    file = tmp_path / "backup"
    assert "rows" in backed_up(head, file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    head.run(LATER)
    # One that the backup does not know.
    late = far.add()
    lose_head(far)
    far.head_again("--from-backup", str(file))
    until(lambda: head.states().count("ALIVE") == 4, what="all nodes are back")
    until(lambda: other.states().count("ALIVE") == 4, what="they know each other")
    alive = sorted(node for node, state in head.nodes().items() if state == "ALIVE")
    # Who was known goes on as it was; who was not has joined again.
    assert set(far.ids[1:3]) < set(alive)
    assert far.ids[0] not in alive
    assert far.ids[late] not in alive
    assert other.nodes().get(far.ids[late]) != "ALIVE"
    for machine in (head, other, far.machines[late]):
        until(lambda m=machine: m.nodes() and m.states().count("ALIVE") == 4, what="it knows all")
    until(lambda: head.states().count("ALIVE") == 4)
    assert head.run(READS, PYTHONPATH=PATH) == [2, ["before the backup", None], alive]
    assert other.run(READS, PYTHONPATH=PATH) == [3, ["before the backup", None], alive]
    # And once more, after a crash: it is a head like any other.
    far.kill_daemon(0)
    far.head_again()
    until(lambda: other.states().count("ALIVE") == 4, what="a head is there again")
    assert other.run(READS, PYTHONPATH=PATH)[0] == 4


def test_a_backup_says_what_is_in_it_and_what_is_wrong(make_far: Any, tmp_path: Path) -> None:
    far = make_far(2)
    head, node = far.machines
    file = tmp_path / "backup"

    def fails(machine: Machine, *line: str) -> str:
        done = machine.hoplo(*line, check=False)
        assert done.returncode != 0, done.stdout
        told = done.stderr.strip()
        assert "\n" not in told, told
        return told

    backed_up(head, file)
    shown = backed_up(head, file, "--show")
    assert "nothing is missing" in shown
    assert far.joining.address in shown
    assert "PRIVATE" not in shown + backed_up(head, file, "--show", "--json")
    assert "--force" in fails(head, "control", "backup", str(file))
    assert "rows" in backed_up(head, file, "--force")
    assert "run this there" in fails(node, "control", "backup", str(tmp_path / "node"))
    assert "name a file" in fails(head, "control", "backup", str(tmp_path))
    assert "name a file" in fails(head, "control", "backup", str(tmp_path / "none" / "backup"))
    full = fails(head, "control", "backup", "/dev/full/backup")
    assert full.startswith("hoplo: "), full
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup"]
    bad = tmp_path / "bad"
    whole = file.read_bytes()
    for data, what in (
        (whole[: len(whole) // 2], "cut off"),
        (whole[:-1] + bytes([whole[-1] ^ 1]), "checksum"),
        (b"no backup", "is no backup"),
        (whole.replace(b"hoplo backup 1", b"hoplo backup 9"), "use a newer hoplo"),
    ):
        bad.write_bytes(data)
        assert what in fails(head, "control", "backup", "--show", str(bad))
        # Nothing begins with it, and nothing is left of the attempt.
        new = tmp_path / "new"
        assert what in fails(
            Machine(tmp_path / "base", tmp_path), "start", "--head", "--from-backup", str(bad),
            "--port", "0", "--session-dir", str(new),
        )  # fmt: skip
        assert not new.exists()
    assert "a head runs already" in fails(head, "start", "--head", "--from-backup", str(file))
    left = far.machines[0].session
    far.kill_daemon(0)
    told = fails(head, "start", "--head", "--from-backup", str(file), "--port", "0")
    assert "has a store already" in told
    assert (left / "control").is_dir(), "it is still there to go on with"
    far.head_again()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_a_backup_that_finds_no_room_leaves_the_old_one(make_far: Any, tmp_path: Path) -> None:
    far = make_far(1)
    head = far.machines[0]
    small = tmp_path / "small"
    small.mkdir()
    mounted = head.command(
        "mount", "-t", "tmpfs", "-o", "size=64k", "none", str(small), check=False
    )
    if mounted.returncode != 0:
        pytest.skip("nothing can be mounted here")
    try:
        file = small / "backup"
        backed_up(head, file)
        before = file.read_bytes()
        (small / "fills").write_bytes(bytes(60_000 - len(before)))
        done = head.hoplo("control", "backup", str(file), "--force", check=False)
        assert done.returncode != 0
        assert "No space left on device" in done.stderr
        assert "another disk" in done.stderr
        assert file.read_bytes() == before
        assert sorted(path.name for path in small.iterdir()) == ["backup", "fills"]
    finally:
        head.command("umount", str(small))


def test_control_nodes_are_backed_up_while_clients_work(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    cluster = make_cluster(nodes=3, replicas=2, shards=3)
    cluster.client("a", 3)
    file = tmp_path / "backup"
    of_cluster = ("--cluster-file", cluster.file, "--force")
    (client, _) = cluster.clients[0]
    made = 0
    while client.poll() is None:
        run("backup", file, *of_cluster)
        made += 1
    assert made > 1
    assert cluster.judge()["ended"] > 100
    assert not cluster.errors()

    def rows() -> bytes:
        run("backup", file, *of_cluster)
        return file.read_bytes().split(b"\n", 2)[2][:-8]

    assert rows() == rows(), "nothing has changed"
    shown = json.loads(run("backup", file, "--show", "--json"))
    assert shown["head"] is None
    assert len(shown["shards"]) == 3
    assert list(shown["tables"]) == ["Kv"]
    # fmt: off
    done = subprocess.run(
        [HOPLO, "start", "--head", "--from-backup", file, "--session-dir", tmp_path / "head",
         "--python", sys.executable],
        env={**os.environ, "HOPLO_TMPDIR": str(tmp_path / "base")},
        capture_output=True, text=True, timeout=30, check=False,
    )
    # fmt: on
    assert "is a backup of control nodes" in done.stderr
    assert not (tmp_path / "head").exists()


def test_tables_in_memory_have_no_backup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOPLO_TMPDIR", str(tmp_path / "base"))
    assert "no node of yours runs here" in run("backup", tmp_path / "none", check=False)
    # fmt: off
    daemon = subprocess.Popen(
        [HOPLO, "daemon", "--foreground", "--num-cpus", "1", "--python", sys.executable,
         "--session-dir", tmp_path / "own"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    # fmt: on
    try:
        until((tmp_path / "own" / "sock").exists, what="it listens")
        told = run("backup", tmp_path / "none", "--session", tmp_path / "own", check=False)
        assert "keeps its tables in memory" in told
        assert not (tmp_path / "none").exists()
    finally:
        daemon.kill()
        daemon.wait(20)


def lose_control_nodes(cluster: Cluster) -> None:
    """With their disks: they begin as new ones, of the same names."""
    for node in cluster.nodes:
        node.kill()
        shutil.rmtree(node.folder)
    for node in cluster.nodes:
        node.start()


def restored(cluster: Cluster, file: Path, *, check: bool = True) -> str:
    from_backup = ("restore", "--from-backup", file, "--cluster-file", cluster.file)
    return run(*from_backup, check=check, seconds=60)


def test_control_nodes_that_lost_everything_get_a_backup_back(
    heads: Any,  # noqa: F811
    tmp_path: Path,
) -> None:
    """A node that still runs joins again, and a detached actor starts again."""
    one = heads()
    head, home = one.machine(), one.machine(1)
    joining = one.head(head)
    home.join(joining)
    before = home.node_id
    assert home.run(KEPT) == 1
    assert home.run(PUTS, "before the backup") is None
    file = tmp_path / "backup"
    assert "rows" in run("backup", file, "--cluster-file", one.cluster.file)
    assert home.run(PUTS, "after it") is None
    head.kill()
    lose_control_nodes(one.cluster)
    one.cluster.until_whole()
    assert "start the heads" in restored(one.cluster, file)
    port = joining.address.rsplit(":", 1)[1]
    head._start("--head", "--port", port, "--control-nodes", str(one.cluster.file))
    until(lambda: home.node_id != before and home.states().count("ALIVE") == 2, 60, "it is back")
    assert head.states().count("ALIVE") == 2
    assert home.run(GETS) == "before the backup"
    assert home.run(FINDS) == 1
    # REFILL-2
    assert "there has been a head" in restored(one.cluster, file, check=False)
