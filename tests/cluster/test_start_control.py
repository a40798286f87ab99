"""`hoplo start --head --control DIR`: three machines, each with a control node; any may be head."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import free_port
from machines import CommandError, Joining, Machine, until

HEAD_AT = re.compile(r"The head of this cluster is at (\S+)\. This process \(pid \d+\) waits")

DOUBLES = """
import hoplo
hoplo.init(address="auto")
@hoplo.remote
def double(x):
    return 2 * x
say(hoplo.get([double.remote(x) for x in range(100)], timeout=30)[-1])
"""


class Three:
    def __init__(self, folder: Path) -> None:
        self.machines = []
        for number in (1, 2, 3):
            of_it = folder / str(number)
            of_it.mkdir(mode=0o700)
            self.machines.append(Machine(of_it, of_it, cpus=0, host=f"127.0.0.{number}"))
        self.folder = folder / "cluster"
        nodes = [f"{machine.host}:{free_port()}" for machine in self.machines]
        named = [word for node in nodes for word in ("--node", node)]
        self.machines[0].hoplo("control", "init", str(self.folder), *named)
        worker = folder / "worker"
        worker.mkdir(mode=0o700)
        self.worker = Machine(worker, worker, cpus=2)

    def start(self, number: int, port: int = 0) -> str:
        machine = self.machines[number - 1]
        told = ("--host", str(machine.host), "--port", str(port), "--control", str(self.folder))
        return machine._start("--head", *told).stdout

    def stop(self, number: int) -> str:
        machine = self.machines[number - 1]
        told = ("--control", str(self.folder), "--host", str(machine.host))
        return machine.hoplo("stop", *told).stdout

    def first(self) -> tuple[int, Path]:
        """Which of them is head first, and its token, as soon as that is there."""
        tokens = [machine.home / ".hoplo/token" for machine in self.machines]
        until(lambda: any(token.exists() for token in tokens), 30)
        [number] = [number for number, token in enumerate(tokens, 1) if token.exists()]
        return number, tokens[number - 1]

    def head(self) -> tuple[int, Joining]:
        """Which of them is it, and how others join it."""
        number, token = self.first()
        address = HEAD_AT.search(self.start(1 + number % 3))
        assert address is not None
        return number, Joining(address[1], token)

    def end(self) -> None:
        for machine in [self.worker, *self.machines]:
            machine.end()
        for machine in [self.worker, *self.machines]:
            machine.clear()


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Three]:
    made = Three(tmp_path)
    yield made
    made.end()


def alive_at(machine: Machine) -> set[str]:
    return {node for node, state in machine.nodes().items() if state == "ALIVE"}


def test_any_of_three_machines_may_die(three: Three) -> None:
    said = three.start(1)
    assert "runs in the background" in said
    assert "Too few control nodes run yet" in said
    assert "runs in the background" in three.start(2)
    assert "runs in the background" in three.start(3)
    number, joining = three.head()
    three.worker.join(joining)
    assert three.worker.run(DOUBLES) == 198
    before = alive_at(three.worker)
    # Its head and its control node, as if its power were cut.
    three.machines[number - 1].kill()
    others = {1, 2, 3} - {number}
    until(lambda: (now := alive_at(three.worker)) != before and len(now) == 2, 30)
    assert three.worker.run(DOUBLES) == 198
    three.worker.leave()
    for other in others:
        assert "stopped the control node" in three.stop(other)
        assert three.machines[other - 1].processes() == set()


def test_a_node_that_named_all_three_was_refused_by_one_that_waits_to_be_head(three: Three) -> None:
    ports = [free_port() for _ in three.machines]
    for number, port in enumerate(ports, 1):
        three.start(number, port)
    _, token = three.first()
    named = zip(three.machines, ports, strict=True)
    addresses = [f"{machine.host}:{port}" for machine, port in named]
    # At once, and in an order in which the head is the last one, whichever it is.
    for first in range(3):
        order = addresses[first:] + addresses[:first]
        three.worker.join(Joining(",".join(order), token))
        assert three.worker.run(DOUBLES) == 198
        three.worker.leave()
    nobody = f"127.0.0.1:{free_port()},127.0.0.1:{free_port()}"
    with pytest.raises(CommandError, match="no head took this node in: 127") as error:
        three.worker.join(Joining(nobody, token))
    assert str(error.value).count(" cannot be reached (Connection refused") == 2


def test_a_control_node_that_runs_is_used(three: Three) -> None:
    three.start(1)
    three.machines[0].hoplo("stop")
    assert len(three.machines[0].processes()) == 1, "its control node goes on"
    assert "runs already" in three.start(1)
    assert "stopped the control node" in three.stop(1)
    assert three.machines[0].processes() == set()
    with pytest.raises(CommandError, match="no node of yours runs here"):
        three.stop(1)


Words = Callable[[Three], tuple[str, ...]]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (lambda three: (str(three.folder),), "say by --host which one is meant"),
        (lambda three: (str(three.folder), "--host", "127.0.0.9"), "none of the control nodes"),
        (lambda three: (str(three.folder.parent),), "the folder that `hoplo control init` made"),
    ],
)
def test_what_cannot_be_told_to_be_here(three: Three, arguments: Words, why: str) -> None:
    with pytest.raises(CommandError, match=why):
        three.machines[0].hoplo("start", "--head", "--control", *arguments(three))
    assert three.machines[0].processes() == set()
