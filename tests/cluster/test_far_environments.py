"""Environments with a Python of their own on other nodes: each node builds its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from far import where
from machines import until
from wheels import wheel

import hoplo


@pytest.fixture
def env(tmp_path: Path) -> dict[str, Any]:
    """With one package, `daheim`, that says where it lies."""
    path = wheel(tmp_path / "wheels", "daheim", code="PLACE = __file__\n")
    options = ["--no-index", "--no-cache-dir"]
    return {"pip": {"packages": [f"daheim @ file://{path}"], "pip_install_options": options}}


@hoplo.remote
def place() -> str:
    import daheim  # type: ignore[import-not-found]

    return str(daheim.PLACE)


@hoplo.remote
def outer(strategy: Any) -> str:
    """A task of another node, called without a word on its environment."""
    found: str = hoplo.get(place.options(scheduling_strategy=strategy).remote())
    return found


@hoplo.remote
class Actor:
    async def place(self) -> str:
        import daheim

        return str(daheim.PLACE)


def own(far: Any, number: int) -> str:
    return f"{far.machines[number].folder}/environments/"


def test_the_node_that_failed_is_named(far: Any, env: dict[str, Any]) -> None:
    env["pip"]["packages"].append("absentee")
    task = place.options(runtime_env=env, scheduling_strategy=far.on(2))
    with pytest.raises(hoplo.exceptions.RuntimeEnvSetupError) as caught:
        hoplo.get(task.remote(), timeout=60)
    assert f"failed at node {far.ids[2]}" in str(caught.value)
    assert "No matching distribution found for absentee" in str(caught.value)
    actor = Actor.options(runtime_env=env, scheduling_strategy=far.on(1)).remote()
    with pytest.raises(hoplo.exceptions.HoploError, match=f"failed at node {far.ids[1]}"):
        hoplo.get(actor.place.remote(), timeout=60)


def test_each_node_builds_its_own_and_calls_inherit_it(far: Any, env: dict[str, Any]) -> None:
    calls = [
        outer.options(runtime_env=env, scheduling_strategy=far.on(1)).remote(far.on(2)),
        place.options(runtime_env=env, scheduling_strategy=far.on(1)).remote(),
    ]
    actor = Actor.options(runtime_env=env, scheduling_strategy=far.on(2)).remote()
    places = hoplo.get([*calls, actor.place.remote()], timeout=90)
    assert [it.startswith(own(far, n)) for it, n in zip(places, (2, 1, 2), strict=True)] == [
        True
    ] * 3
    # Without one that asks for it nobody gets it.
    with pytest.raises(ModuleNotFoundError):
        hoplo.get(place.options(scheduling_strategy=far.on(1)).remote(), timeout=20)


def test_a_program_that_is_on_one_node_only(far: Any, tmp_path: Path) -> None:
    os.symlink(sys.executable, tmp_path / "python")

    @hoplo.remote
    def executable() -> str:
        return sys.executable

    env = {"py_executable": str(tmp_path / "python")}
    there = executable.options(runtime_env=env, scheduling_strategy=far.on(2))
    assert hoplo.get(there.remote(), timeout=20) == str(tmp_path / "python")
    os.unlink(tmp_path / "python")
    elsewhere = executable.options(runtime_env=env, scheduling_strategy=far.on(1))
    with pytest.raises(hoplo.exceptions.RuntimeEnvSetupError, match="cannot be started on node"):
        hoplo.get(elsewhere.remote(), timeout=20)


def test_who_asks_why_hears_that_it_is_built_at_another_node(far: Any, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    slow = tmp_path / "slow"
    slow.mkdir()
    (slow / "pyproject.toml").write_text(
        "[build-system]\nrequires = []\nbuild-backend = 'slow_build'\nbackend-path = ['.']\n"
    )
    (slow / "slow_build.py").write_text(f"open({str(gate)!r}).read()\nraise ValueError('enough')\n")
    env = {"pip": {"packages": [f"slow @ file://{slow}"], "pip_install_options": ["--no-index"]}}
    there = far.on(1)
    ref = place.options(runtime_env=env, scheduling_strategy=there).remote()
    said = "its environment is being built (pip install slow @"
    until(lambda: said in far.machines[0].hoplo("why", ref.hex()).stdout, what="why says so")
    # Its node has all CPUs for others.
    others = [where.options(scheduling_strategy=there, num_cpus=2).remote() for _ in range(4)]
    assert len(hoplo.get(others, timeout=20)) == 4
    with open(gate, "w"):
        pass
    with pytest.raises(hoplo.exceptions.RuntimeEnvSetupError, match="ValueError: enough"):
        hoplo.get(ref, timeout=60)
