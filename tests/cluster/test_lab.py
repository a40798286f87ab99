"""The lab itself, and clusters that form, are cut and heal in it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import lab as labs
import pytest
from machines import CommandError, alive, until

HERE = Path(__file__).resolve().parent


def namespaces_of(name: str) -> list[str]:
    return [path.name for path in labs.NAMESPACES.glob(f"{name}*")]


def nothing_is_left_of(name: str, folder: Path) -> bool:
    return not namespaces_of(name) and not folder.exists()


# ------------------------------------------------------------------------------- the lab itself


def test_to_a_full_disk_nothing_can_be_written_until_it_is_over(make_lab: Any) -> None:
    lab = make_lab(nodes=2, disk=8 << 20)
    first, second = (machine.folder / "written" for machine in lab.machines)
    with lab.full_disk(1):
        with pytest.raises(OSError, match="No space left"):
            first.write_bytes(b"x")
        assert second.write_bytes(b"x") == 1
    assert first.write_bytes(b"x") == 1
    lab.end()
    assert not lab.folder.exists()


def test_machines_reach_each_other_and_nobody_else(make_lab: Any) -> None:
    lab = make_lab(nodes=3)
    names = [machine.command("uname", "-n").stdout.strip() for machine in lab.machines]
    assert names == ["node1", "node2", "node3"]
    for number in (2, 3):
        dialled(lab, number)
    here = "import socket\nsocket.create_connection(('127.0.0.1', 1), 1)\n"
    with pytest.raises(CommandError, match="refused"):
        lab.run(1, here)
    with pytest.raises(CommandError, match="unreachable"):
        lab.run(1, "import socket\nsocket.create_connection(('192.0.2.1', 1), 1)\n")


def dialled(lab: Any, number: int) -> None:
    """From the first machine to another one."""
    serve = "import socket\ns = socket.create_server(('0.0.0.0', 7000))\nsay(1)\ns.accept()\n"
    server = lab[number].program(serve)
    server.heard()
    lab.run(1, f"import socket\nsocket.create_connection(('{lab.address(number)}', 7000), 5)\n")
    server.end()


def test_what_a_cut_machine_sends_arrives_once_it_is_healed(make_lab: Any) -> None:
    lab = make_lab(nodes=2)
    server = lab[2].program(
        "import socket\ns = socket.create_server(('0.0.0.0', 7000))\nsay('listens')\n"
        "peer, _ = s.accept()\nsay('accepted')\nsay(peer.recv(9).decode())\n"
    )
    assert server.heard() == "listens"
    client = lab[1].program(
        "import fcntl, socket, struct, termios\n"
        f"s = socket.create_connection(('{lab.address(2)}', 7000))\n"
        "say('dialled')\nheard()\ns.sendall(b'over')\nend = time.monotonic() + 0.05\n"
        "def kept(): return struct.unpack('i', fcntl.ioctl(s, termios.TIOCOUTQ, bytes(4)))[0]\n"
        "while kept() and time.monotonic() < end: pass\n"
        "say(kept())\nheard()\n"
    )
    assert client.heard() == "dialled"
    assert server.heard() == "accepted"
    with lab.without(1):
        client.tell()
        assert client.heard() == 4, "bytes that nobody acknowledged"
    assert server.heard() == "over"
    client.tell()
    client.end()


def test_a_shaped_link_is_as_slow_as_it_is_told(make_lab: Any) -> None:
    lab = make_lab(nodes=2, rate=200e6)
    server = lab[2].program(
        "import socket\ns = socket.create_server(('0.0.0.0', 7000))\nsay(1)\n"
        "peer, _ = s.accept()\nstart, n = time.monotonic(), 0\n"
        "while data := peer.recv(1 << 16): n += len(data)\n"
        "say(n / (time.monotonic() - start))\n"
    )
    server.heard()
    lab.run(
        1,
        f"import socket\ns = socket.create_connection(('{lab.address(2)}', 7000))\n"
        "s.sendall(bytes(8 << 20))\n",
    )
    assert 18e6 < server.heard() < 26e6, "25 MB/s, and a bucket that is full at first"


def test_two_labs_side_by_side_are_two_networks(make_lab: Any) -> None:
    one, other = make_lab(nodes=1), make_lab(nodes=2)
    assert one.name != other.name
    assert one.address(1) == other.address(1)
    one[1].head()
    with pytest.raises(CommandError, match="no node of yours"):
        other[1].hoplo("stop")


def test_a_lab_that_ends_takes_everything_with_it(make_lab: Any) -> None:
    lab = make_lab(nodes=2)
    machines = lab.cluster()
    pids = [machine.pid for machine in machines]
    program = machines[1].program("say(1)\ntime.sleep(1000)\n")
    program.heard()
    os.kill(pids[0], signal.SIGSTOP)
    lab.end()
    lab.end()
    assert not any(alive(pid) for pid in (*pids, program.pid))
    assert nothing_is_left_of(lab.name, lab.folder)


LEAVES = """
import sys, time
sys.path.insert(0, {here!r})
from lab import Lab
with Lab(nodes=1) as lab:
    lab.cluster()
    print(lab.name, lab[1].pid, flush=True)
    time.sleep(1000)
"""


@pytest.fixture
def left_alone(make_lab: Any) -> Any:
    """A program with a lab that waits to be ended: its process, the lab's name, a daemon's pid."""
    program = subprocess.Popen(
        [sys.executable, "-c", LEAVES.format(here=str(HERE))],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert program.stdout is not None
    name, pid = program.stdout.readline().split()
    yield program, name, int(pid)
    program.kill()
    program.wait()
    program.stdout.close()
    labs.sweep()


def test_an_interrupt_ends_the_lab(left_alone: Any) -> None:
    program, name, pid = left_alone
    program.send_signal(signal.SIGINT)
    program.send_signal(signal.SIGINT)
    program.wait(20)
    assert not alive(pid)
    assert nothing_is_left_of(name, Path("/tmp") / name)


def test_what_a_killed_run_has_left_is_taken_away_by_the_next_one(left_alone: Any) -> None:
    program, name, pid = left_alone
    assert not [left for left in labs.sweep() if left.startswith(name)], "it runs"
    assert namespaces_of(name)
    program.kill()
    program.wait()
    assert alive(pid)
    with labs.Lab(nodes=1):
        assert not alive(pid)
        assert nothing_is_left_of(name, Path("/tmp") / name)


# ------------------------------------------------------------------------------- nodes that join


def test_nodes_join_a_head_that_listens_at_its_address(make_lab: Any) -> None:
    lab = make_lab(nodes=3)
    head, second, third = lab.cluster()
    until(lambda: second.nodes() == third.nodes() == head.nodes())
    assert head.states() == ["ALIVE"] * 3
    assert lab.run(2, "hoplo.init(address='auto')\nsay(len(hoplo.nodes()))\n") == 3
    assert lab.run(3, "hoplo.init(address='auto')\nsay(hoplo.get(hoplo.put(42)))\n") == 42


def test_a_head_without_a_host_is_not_reached_from_elsewhere(make_lab: Any) -> None:
    lab = make_lab(nodes=2)
    lab[1].host = None
    joining = lab[1].head()
    address = f"10.199.0.1:{joining.port}"
    with pytest.raises(CommandError, match="no head can be reached"):
        lab[2].hoplo("start", "--address", address, "--token-file", str(joining.token))


def test_a_cut_of_300_ms_is_not_noticed(make_lab: Any) -> None:
    lab = make_lab(nodes=3)
    head, *_ = lab.cluster()
    before = head.nodes()
    for number in (2, 3):
        # The length of the cut is what is tried: no condition says that it was long enough.
        with lab.without(number):
            time.sleep(0.3)
    # By now a silence that had been noticed would have become a verdict.
    began = time.monotonic()
    until(lambda: time.monotonic() - began > 1.5)
    assert head.nodes() == before
    assert head.states() == ["ALIVE"] * 3


def test_a_node_that_is_cut_off_is_declared_dead_and_joins_again(make_lab: Any) -> None:
    lab = make_lab(nodes=3)
    head, second, _ = lab.cluster()
    before, pid = second.node_id, second.pid
    began = time.monotonic()
    with lab.without(2):
        until(lambda: head.nodes()[before] == "DEAD", 5)
        print(f"declared dead after {time.monotonic() - began:.2f} s")
        until(lambda: time.monotonic() - began > 5)
    until(lambda: head.states() == ["ALIVE", "ALIVE", "ALIVE", "DEAD"])
    print(f"back {time.monotonic() - began - 5:.2f} s after it was healed")
    assert head.nodes()[before] == "DEAD", "that number is never used again"
    until(lambda: second.nodes() == head.nodes())
    assert second.pid == pid
    assert second.node_id != before


@pytest.mark.parametrize("lost", [[(2, 1), (2, 3)], [(1, 2), (3, 2)]], ids=["unheard", "deaf"])
def test_a_node_that_is_cut_off_one_way_is_declared_dead_and_joins_again(
    make_lab: Any, lost: list[tuple[int, int]]
) -> None:
    lab = make_lab(nodes=3)
    head, second, _ = lab.cluster()
    before, pid = second.node_id, second.pid
    with lab.one_way(*lost):
        until(lambda: head.nodes()[before] == "DEAD", 5)
    until(lambda: head.states() == ["ALIVE", "ALIVE", "ALIVE", "DEAD"])
    until(lambda: second.nodes() == head.nodes())
    assert second.pid == pid
    assert second.node_id != before


@pytest.mark.parametrize("lost", [(2, 1), (1, 2)], ids=["to-the-head", "from-the-head"])
def test_a_way_to_or_from_the_head_that_is_cut_is_no_death_while_another_node_reaches_both(
    make_lab: Any, lost: tuple[int, int]
) -> None:
    lab = make_lab(nodes=3)
    head, _, third = lab.cluster()
    before = head.nodes()
    with lab.one_way(lost):
        time.sleep(2)  # as above
        assert head.nodes() == before
        assert third.nodes() == before
    until(lambda: all(machine.nodes() == before for machine in lab.machines))


def test_a_head_that_is_cut_off_takes_none_of_its_nodes_for_dead(make_lab: Any) -> None:
    """Several are silent, nobody at all is reached: it takes itself for cut off."""
    lab = make_lab(nodes=3)
    head, *_ = lab.cluster()
    before = head.nodes()
    with lab.without(1):
        time.sleep(2)  # as above
        assert head.nodes() == before
    until(lambda: all(machine.nodes() == before for machine in lab.machines))


def test_a_node_that_stands_still_is_declared_dead_and_joins_again(make_lab: Any) -> None:
    lab = make_lab(nodes=2)
    head, second = lab.cluster()
    before, pid = second.node_id, second.pid
    lab.stop(pid)
    until(lambda: head.nodes()[before] == "DEAD", 5)
    lab.cont(pid)
    until(lambda: head.states() == ["ALIVE", "ALIVE", "DEAD"])


# ------------------------------------------------------------------------------- growth


def resident_bytes(pid: int) -> int:
    """Of memory that is the process's own: without what it maps from files."""
    pages = Path(f"/proc/{pid}/statm").read_text().split()
    return (int(pages[1]) - int(pages[2])) * os.sysconf("SC_PAGE_SIZE")


def test_joins_and_leaves_make_the_head_no_larger(make_lab: Any) -> None:
    lab = make_lab(nodes=2)
    head, second = lab.machines
    joining = head.head()
    pid = head.pid
    descriptors, memory = [], []
    for _ in range(20):
        second.join(joining)
        until(lambda: head.states().count("ALIVE") == 2)
        second.leave()
        until(lambda: head.states().count("ALIVE") == 1)
        until(lambda: not second.processes())
        descriptors.append(len(os.listdir(f"/proc/{pid}/fd")))
        memory.append(resident_bytes(pid))
    print(f"descriptors {descriptors}\nKiB {[n >> 10 for n in memory]}")
    # Connections of tools that just ended may still be open: two more than at first.
    until(lambda: len(os.listdir(f"/proc/{pid}/fd")) <= min(descriptors[:5]) + 2)
    # From the fifth on: what is made once is there. A row of a dead node is some 100 bytes.
    assert memory[-1] - memory[4] < 512 << 10, [n >> 10 for n in memory]
