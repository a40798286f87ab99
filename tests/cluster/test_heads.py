"""Heads over control nodes: when one dies, another machine takes its place."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Cluster, MakeCluster
from machines import JOIN, CommandError, Joining, Machine, alive, until
from test_faults import namespaces  # noqa: F401

COUNTER = textwrap.dedent("""
    @hoplo.remote(num_cpus=0, max_restarts=-1)
    class Counter:
        def __init__(self):
            self.count = 0
        def add(self):
            self.count += 1
            return self.count
        def peek(self):
            return self.count
""")

CALLS = COUNTER + textwrap.dedent("""
    hoplo.init(address="auto", namespace="t")
    counter = Counter.options(name="first", lifetime="detached").remote()
    @hoplo.remote
    def double(x):
        return 2 * x
    say(hoplo.get(counter.add.remote()))
    count, worst = 1, 0.0
    while True:
        began = time.monotonic()
        count += 1
        assert hoplo.get(counter.add.remote()) == count
        assert hoplo.get(double.remote(count)) == 2 * count
        worst = max(worst, time.monotonic() - began)
        if os.path.exists(sys.argv[1]):
            break
    say(count, worst)
""")

KEPT = COUNTER + textwrap.dedent("""
    hoplo.init(address="auto", namespace="t")
    kept = Counter.options(name="kept", lifetime="detached").remote()
    say(hoplo.get(kept.add.remote()))
""")

FINDS = textwrap.dedent("""
    hoplo.init(address="auto", namespace="t")
    say(hoplo.get(hoplo.get_actor("kept").add.remote(), timeout=30))
""")

NAMES = COUNTER + textwrap.dedent("""
    hoplo.init(address="auto", namespace="t")
    @hoplo.remote(max_retries=0)
    def double(x):
        return 2 * x
    kept = Counter.options(name="kept", lifetime="detached").remote()
    say(hoplo.get(kept.add.remote()))
    count, worst = 1, 0.0
    while not os.path.exists(sys.argv[1]):
        began = time.monotonic()
        count += 1
        name = f"n{count}"
        actor = Counter.options(name=name).remote()
        assert hoplo.get(actor.add.remote()) == 1
        assert hoplo.get(hoplo.get_actor(name).add.remote()) == 2
        hoplo.kill(actor)
        assert hoplo.get(double.remote(count)) == 2 * count
        assert hoplo.get(hoplo.get_actor("kept").add.remote()) == count
        worst = max(worst, time.monotonic() - began)
    say(count, worst)
""")


FRESH = """
    hoplo.init(address="auto")
    for answer in range(3):
        @hoplo.remote(num_cpus=0)
        class Fresh:
            def answer(self, answer=answer):
                return answer
        heard()
        call = Fresh.remote().answer.remote()
        hoplo.wait([call], timeout=0.3)  # its worker asks for the class meanwhile
        say("asked")
        say(hoplo.get(call))
"""


class Heads:
    """Control nodes, machines that may be head, and others that work."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.machines: list[Machine] = []
        self.token: Path | None = None

    def machine(self, cpus: float = 0, **where: Any) -> Machine:
        folder = self.folder / str(len(self.machines))
        folder.mkdir(mode=0o700)
        self.machines.append(Machine(folder, folder, cpus=cpus, **where))
        return self.machines[-1]

    def head(self, machine: Machine, *flags: str) -> Joining | None:
        """What it lets others join with; nothing if it waits."""
        told = ["--head", "--port", "0", "--control-nodes", str(self.cluster.file)]
        told += ["--host", machine.host] if machine.host else []
        out = machine._start(*told, *flags).stdout
        found = JOIN.search(out)
        if found is None:
            assert "waits to take its place" in out, out
            return None
        self.token = Path(found[2])
        return Joining(found[1], Path(found[2]))

    def end(self) -> None:
        for machine in reversed(self.machines):
            machine.end()
        for machine in self.machines:
            machine.clear()


@pytest.fixture
def heads(make_cluster: MakeCluster, tmp_path: Path) -> Iterator[Callable[..., Heads]]:
    made: list[Heads] = []

    def make(**options: Any) -> Heads:
        folder = tmp_path / f"machines{len(made)}"
        folder.mkdir(mode=0o700)
        made.append(Heads(make_cluster(**{"config": "nodes", **options}), folder))
        return made[-1]

    yield make
    for one in made:
        one.end()


def seat_of(machine: Machine) -> list[str]:
    """Addresses of heads that live, as that node knows."""
    rows = machine.status()["nodes"]
    live = [row for row in rows if row["Head"] and row["State"] == "ALIVE"]
    return [f"{row['NodeManagerAddress']}:{row['NodeManagerPort']}" for row in live]


def waiting_pid(machine: Machine) -> int:
    found = until(lambda: list(machine.folder.glob("again-*")), what="it waits")
    return int(found[0].name.removeprefix("again-"))


# ------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("no file", "hoplo control init"),
        ("no authority", "ca/ is not beside this file"),
        ("shards", "one shard"),
        ("nobody", "control nodes do not say who is the head"),
    ],
)
def test_what_no_head_can_begin_with(heads: Any, change: str, words: str) -> None:
    one = heads(start=False, shards=2 if change == "shards" else 1)
    folder = one.cluster.file.parent
    if change == "no authority":
        (folder / "ca").rename(folder / "away")
    file = folder / ("none.json" if change == "no file" else "cluster.json")
    machine = one.machine()
    told = ["--head", "--port", "0", "--control-nodes", str(file), "--python", sys.executable]
    done = machine.hoplo("start", *told, check=False)
    assert done.returncode == 1
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not machine.processes()
    assert not list(machine.folder.glob("session-*"))


def test_options_that_exclude_each_other(heads: Any) -> None:
    machine = heads(start=False).machine()
    for more in (["--from-backup", "x"], ["--address", "a:1"], ["--session-dir", "/tmp/x"]):
        told = ["--head", "--control-nodes", "x", *more]
        done = machine.hoplo("start", *told, check=False)
        assert done.returncode != 0
        assert "cannot be used with" in done.stderr


# ------------------------------------------------------------------------------- it works


def test_another_machine_takes_the_place_of_a_head_that_was_killed(
    heads: Any, tmp_path: Path
) -> None:
    one = heads()
    first, second, worker, driver = (one.machine(cpus) for cpus in (0, 0, 2, 2))
    joining = one.head(first)
    assert one.head(second) is None
    worker.join(joining)
    driver.join(joining)
    until(lambda: worker.states() == ["ALIVE"] * 3)
    before = seat_of(driver)
    ends = tmp_path / "ends"
    program = driver.program(CALLS, str(ends))
    assert program.heard() == 1
    first.kill()
    after = until(lambda: (now := seat_of(driver)) != before and len(now) == 1 and now)
    until(lambda: second.states().count("ALIVE") == 3, what="all are there")
    # What only a head decides: names, and who joins.
    made = driver.run(
        COUNTER
        + textwrap.dedent("""
        hoplo.init(address="auto", namespace="t")
        found = hoplo.get_actor("first")
        hoplo.get(Counter.options(name="second", lifetime="detached").remote().add.remote())
        try:
            Counter.options(name="first").remote()
        except ValueError as error:
            say("first" in str(error), hoplo.get(found.peek.remote()) > 1)
        """)
    )
    assert made == [True, True]
    until(lambda: second.nodes(), what="the new head answers")
    late = one.machine(1)
    # A head that waited writes its token when nobody waits for it.
    token = second.home / ".hoplo" / "token"
    until(token.exists)
    late.join(Joining(f"{joining.address},{seat_of(second)[0]}", token))
    until(lambda: late.states().count("ALIVE") == 4)
    ends.touch()
    count, worst = program.heard()
    print(f"{count} rounds, the slowest took {worst * 1000:.1f} ms; {before} -> {after}")


def test_a_head_that_ends_in_order_gives_its_place_away_at_once(heads: Any) -> None:
    one = heads()
    first, second, worker = (one.machine(cpus) for cpus in (0, 0, 1))
    worker.join(one.head(first))
    assert one.head(second) is None
    before, pid = seat_of(worker), worker.pid
    first.hoplo("stop")
    until(lambda: seat_of(worker) not in ([], before))
    assert worker.pid == pid, "the cluster was not stopped"
    assert worker.run('hoplo.init(address="auto"); say(hoplo.cluster_resources()["CPU"])') == 1


def test_a_head_that_stands_still_is_replaced_and_waits_when_it_goes_on(heads: Any) -> None:
    one = heads()
    first, second, worker = (one.machine(cpus) for cpus in (0, 0, 1))
    worker.join(one.head(first))
    assert one.head(second) is None
    before, pid = seat_of(worker), first.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        # For a moment both may be there.
        between = until(lambda: (now := seat_of(worker)) != before and len(now) == 1 and now)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert waiting_pid(first) == pid
    assert seat_of(worker) == between
    second.kill()
    until(lambda: seat_of(worker) not in ([], between), what="the first one is head again")
    assert first.pid == pid
    assert worker.run('hoplo.init(address="auto"); say(hoplo.cluster_resources()["CPU"])') == 1


def test_a_head_that_is_cut_off_is_replaced_and_waits_when_it_is_back(
    heads: Any,
    namespaces: list[tuple[str, str, str]],  # noqa: F811
    tmp_path: Path,
) -> None:
    """With the control node of its machine."""
    one = heads(
        addresses=[f"{address}:7100" for _, address, _ in namespaces],
        prefixes=[("ip", "netns", "exec", name) for name, _, _ in namespaces],
    )
    places = [
        {"prefix": ("ip", "netns", "exec", name), "host": address}
        for name, address, _ in namespaces[:2]
    ]
    first, second = (one.machine(**place) for place in places)
    worker = one.machine(2)
    worker.join(one.head(first))
    assert one.head(second) is None
    before, pid = seat_of(worker), first.pid
    ends = tmp_path / "ends"
    program = worker.program(NAMES, str(ends))
    assert program.heard() == 1
    link = namespaces[0][2]
    subprocess.run(["ip", "link", "set", link, "down"], check=True)
    between = until(lambda: (now := seat_of(worker)) not in ([], before) and now)
    subprocess.run(["ip", "link", "set", link, "up"], check=True)
    assert waiting_pid(first) == pid
    one.cluster.until_whole(3)
    ends.touch()
    count, worst = program.heard()
    assert seat_of(worker) == between
    print(f"{count} names, the slowest took {worst * 1000:.0f} ms")


def test_a_class_was_unknown_while_its_row_was_being_written(heads: Any) -> None:
    one = heads()
    machine = one.machine(2)
    one.head(machine)
    program = machine.program(FRESH)
    for number, control in enumerate(one.cluster.nodes):
        control.process.send_signal(signal.SIGSTOP)  # not long enough for a verdict
        program.tell()
        try:
            assert program.heard() == "asked"
        finally:
            control.process.send_signal(signal.SIGCONT)
        assert program.heard() == number
    program.end()


@pytest.mark.parametrize("place", [0, 1, 2])
def test_any_control_node_dies_and_the_head_stays(heads: Any, place: int) -> None:
    one = heads()
    head, worker = one.machine(), one.machine(1)
    worker.join(one.head(head))
    before = seat_of(worker)
    one.cluster.nodes[place].kill()
    one.cluster.until_whole(2)
    made = worker.run(
        COUNTER
        + textwrap.dedent("""
        hoplo.init(address="auto", namespace="t")
        actor = Counter.options(name="kept", lifetime="detached").remote()
        say(hoplo.get(actor.add.remote()), hoplo.get(hoplo.get_actor("kept").add.remote()))
        """)
    )
    assert made == [1, 2]
    assert seat_of(worker) == before
    one.cluster.nodes[place].start()
    one.cluster.until_whole(3)
    assert seat_of(worker) == before


def test_a_detached_actor_outlives_its_home_and_the_head_that_die_at_once(heads: Any) -> None:
    """All that knew it are dead; its row has what a restart takes."""
    one = heads()
    first, second, home = (one.machine(cpus) for cpus in (0, 0, 1))
    joining = one.head(first)
    assert one.head(second) is None
    home.join(joining)
    assert home.run(KEPT) == 1
    first.kill()
    home.kill()
    until(lambda: is_acting(second), what="another machine is head")
    late = one.machine(1)
    late.join(Joining(seat_of(second)[0], joining.token))
    assert late.run(FINDS) == 1


def test_the_heir_of_a_node_is_not_the_head_that_died_with_it(heads: Any) -> None:
    """It is next to the node in the order of heirs. That it is dead is written by the next head,
    and has not come back to that one when it writes the node's death."""
    one = heads()
    *three, home = (one.machine(cpus) for cpus in (0, 0, 0, 1))
    joining = one.head(three[0])
    for machine in three[1:]:
        assert one.head(machine) is None
    home.join(joining)
    three[0].kill()
    until(lambda: any(map(is_acting, three[1:])), what="another machine is head")
    second, third = sorted(three[1:], key=is_acting, reverse=True)
    until(lambda: home.states().count("ALIVE") == 2, what="the node has heard of it")
    assert home.run(KEPT) == 1
    second.kill()
    home.kill()
    until(lambda: is_acting(third), what="the last machine is head")
    late = one.machine(1)
    late.join(Joining(seat_of(third)[0], joining.token))
    assert late.run(FINDS) == 1


def test_detached_actors_outlive_all_nodes_that_knew_them(heads: Any) -> None:
    """The head reads their rows when it hears of a death: they are younger than the head. Of nearly
    each of them the node that keeps what a restart takes dies, too."""
    one = heads()
    head, *workers = (one.machine(cpus) for cpus in (0, 1, 1, 1))
    joining = one.head(head)
    for machine in workers:
        machine.join(joining)
    until(lambda: workers[0].states().count("ALIVE") == 4)
    names = [f"kept{number}" for number in range(3)]
    for machine, name in zip(workers, names, strict=True):
        assert machine.run(KEPT.replace("kept", name)) == 1
    for machine in workers:
        machine.kill()
    late = one.machine(1)
    late.join(joining)
    for name in names:
        assert late.run(FINDS.replace("kept", name)) == 1


@pytest.mark.parametrize("where", ["file", "etcd"])
def test_it_is_the_same_wherever_the_configuration_lies(
    heads: Any, request: pytest.FixtureRequest, where: str
) -> None:
    etcd = request.getfixturevalue("etcd") if where == "etcd" else None
    one = heads(config=f"etcd:{etcd.url}/hoplo/heads" if etcd else None)
    first, second, worker = (one.machine(cpus) for cpus in (0, 0, 1))
    worker.join(one.head(first))
    assert one.head(second) is None
    assert worker.run(KEPT) == 1
    before = seat_of(worker)
    one.cluster.nodes[0].kill()
    first.kill()
    until(lambda: seat_of(worker) not in ([], before))
    assert worker.run(FINDS) == 2
    assert worker.run(KEPT.replace("kept", "other")) == 1


def test_of_many_that_wait_one_becomes_head(heads: Any) -> None:
    one = heads()
    first, worker = one.machine(), one.machine(1)
    worker.join(one.head(first))
    others = [one.machine() for _ in range(3)]
    for machine in others:
        assert one.head(machine) is None
    for _ in range(3):
        before = seat_of(worker)
        acting = next(machine for machine in (first, *others) if is_acting(machine))
        acting.kill()
        until(lambda before=before: seat_of(worker) not in ([], before))  # type: ignore[misc]
        assert len(seat_of(worker)) == 1


def is_acting(machine: Machine) -> bool:
    try:
        return bool(machine.processes()) and bool(machine.status())
    except CommandError:
        return False


def test_one_that_waits_is_stopped_like_any_other(heads: Any) -> None:
    one = heads()
    first, second = one.machine(), one.machine()
    assert one.head(first)
    assert one.head(second) is None
    pid = waiting_pid(second)
    said = second.hoplo("status", check=False).stderr
    assert said.startswith(f"hoplo: no node of yours runs here yet: process {pid} waits"), said
    out = second.hoplo("stop").stdout
    assert re.fullmatch(rf"stopped process {pid}, which waited to be of its cluster\n", out)
    until(lambda: not alive(pid))
    assert not second.processes()


def test_tokens_are_those_of_the_cluster(heads: Any) -> None:
    one = heads()
    first, second, worker = (one.machine(cpus) for cpus in (0, 0, 1))
    joining = one.head(first)
    assert one.head(second) is None
    made = first.hoplo("token", "new", "--uses", "1").stdout.splitlines()[0]
    first.kill()
    until(lambda: is_acting(second))
    listed = second.hoplo("token", "list").stdout
    assert len(listed.splitlines()) >= 3, listed
    (address,) = seat_of(second)
    worker.hoplo("start", "--address", address, "--num-cpus", "1", HOPLO_TOKEN=made)
    until(lambda: worker.states().count("ALIVE") == 2)
    assert joining.address != address


def test_names_are_given_while_heads_and_control_nodes_die_one_after_the_other(
    heads: Any, tmp_path: Path
) -> None:
    one = heads(fsync="always")
    chance = random.Random(7)
    first, *others = (one.machine() for _ in range(3))
    workers = [one.machine(2), one.machine(2)]
    addresses = [one.head(first)]
    for machine in others:
        assert one.head(machine) is None
    for machine in workers:
        machine.join(addresses[0])
    until(lambda: workers[0].states().count("ALIVE") == 3)
    ends = tmp_path / "ends"
    program = workers[0].program(NAMES, str(ends))
    assert program.heard() == 1
    pids = [machine.pid for machine in workers]
    for _ in range(12):
        before = seat_of(workers[0])
        acting = next(machine for machine in (first, *others) if is_acting(machine))
        event = chance.choice(["kill", "stop", "stand still", "control node", "both"])
        print(event)
        if event in ("control node", "both"):
            node = chance.choice(one.cluster.nodes)
            node.kill()
        if event in ("kill", "both"):
            acting.kill()
        elif event == "stop":
            acting.hoplo("stop")
        elif event == "stand still":
            stopped = acting.pid
            os.kill(stopped, signal.SIGSTOP)
        if event != "control node":
            until(lambda before=before: seat_of(workers[0]) not in ([], before))  # type: ignore[misc]
        if event == "stand still":
            os.kill(stopped, signal.SIGCONT)
            waiting_pid(acting)
        elif event != "control node":
            assert one.head(acting) is None
        if event in ("control node", "both"):
            node.start()
            one.cluster.until_whole(3)
    ends.touch()
    count, worst = program.heard()
    assert [machine.pid for machine in workers] == pids, "no node was declared dead"
    print(f"{count} names, the slowest took {worst * 1000:.0f} ms")
