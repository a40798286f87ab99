"""Heads of one user share a home, and so the place where tokens lie."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from machines import JOIN, Machine, alive, until

Make = Callable[[str], Machine]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Make]:
    """Machines with one home."""
    made = []

    def make(name: str) -> Machine:
        folder = tmp_path / name
        folder.mkdir(mode=0o700)
        made.append(Machine(folder, tmp_path))
        return made[-1]

    yield make
    for it in made:
        it.end()
        it.clear()


def test_a_second_head_with_the_same_home_took_the_token_of_the_first(
    machine: Make, tmp_path: Path
) -> None:
    first, second = machine("first"), machine("second")
    usual = tmp_path / ".hoplo/token"
    one = first.head()
    assert one.token == usual
    text = usual.read_text()
    two = second.head()
    assert two.token.parent == usual.parent
    assert two.token.name.startswith("token-")
    assert second.started is not None
    assert f"Note: {usual} is the token of another head of yours" in second.started.stdout
    assert usual.read_text() == text
    # The lines that both have printed are true.
    for number, joining in enumerate((one, two)):
        machine(f"node-{number}").join(joining)
    third = machine("third").hoplo(
        "start", "--head", "--port", "0", "--token-file", str(usual), check=False
    )
    assert "holds the token of another head, which runs: name another file" in third.stderr
    second.leave()
    assert not two.token.exists()
    assert usual.read_text() == text
    first.leave()
    assert not usual.exists()


def test_what_a_dead_head_left_is_in_nobodys_way(machine: Make, tmp_path: Path) -> None:
    first, second = machine("first"), machine("second")
    usual = tmp_path / ".hoplo/token"
    first.head()
    text, pid = usual.read_text(), first.pid
    os.kill(pid, signal.SIGKILL)
    # Its lock goes with its last thread.
    until(lambda: not alive(pid) and not Path(f"/proc/{pid}/task").exists())
    assert second.head().token == usual
    assert usual.read_text() != text
    # It goes on, and the usual file is another head's by now.
    out = first._start("--head").stdout
    found = JOIN.search(out)
    assert found
    assert found[2] != str(usual)
