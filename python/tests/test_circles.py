"""Modules of a crate form no circle: who reads one needs to know those below it, and no other.

A module and those inside it count as one room, so a child may name its parent. What a module's
tests name does not count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

CRATES = Path(__file__).resolve().parents[2] / "crates"

Module = tuple[str, ...]

# Circles that are left, by crate and member. Take out what was opened; nothing comes in.
LEFT: dict[str, list[set[str]]] = {
    "sim": [
        {
            "asks",
            "carrier",
            "client",
            "cluster",
            "daemon",
            "faults",
            "fiber",
            "haul",
            "host",
            "invariants",
            "kernel",
            "lead",
            "table",
            "wires",
            "workload",
        },
        {
            "control::clients",
            "control::coordinators",
            "control::process",
            "control::replicas",
            "control::world",
        },
    ],
}


def modules(source: Path) -> dict[Module, str]:
    found = {}
    for path in sorted(source.rglob("*.rs")):
        name = path.relative_to(source).with_suffix("").parts
        if name[-1] in ("lib", "main", "mod"):
            name = name[:-1]
        if not any(part == "sabotage" or part.endswith("tests") for part in name):
            text = re.sub(r"//.*", "", path.read_text())
            found[name] = re.split(r"#\[cfg\(test\)\]\s*mod \w+ \{", text)[0]
    return found


def expanded(tree: str) -> Iterator[str]:
    """`a::{b, c::{d}}` is `a::b` and `a::c::d`."""
    opening = tree.find("{")
    if opening < 0:
        yield tree
        return
    depth, item = 0, ""
    for char in tree[opening + 1 : tree.rindex("}")] + ",":
        depth += (char == "{") - (char == "}")
        if char == "," and depth == 0:
            if item:
                yield from expanded(tree[:opening] + item)
            item = ""
        else:
            item += char


def paths(text: str) -> Iterator[list[str]]:
    """What it names of its own crate, in `use` lines and elsewhere."""
    for tree in re.findall(r"\buse\s+((?:crate|super|self)\b[^;]*);", text):
        for path in expanded(re.sub(r"\s+", "", re.sub(r"\bas\s+\w+", "", tree))):
            yield path.split("::")
    for path in re.findall(r"\b((?:crate|super)(?:::\w+)+)", text):
        yield path.split("::")


def named(module: Module, path: list[str], known: set[Module]) -> Module:
    """The module that a path, written in another one, is about."""
    base: Module = () if path[0] == "crate" else module
    rest = path[1:] if path[0] in ("crate", "self") else path
    while rest and rest[0] == "super":
        base, rest = base[:-1], rest[1:]
    for part in rest:
        if (*base, part) not in known:
            break
        base = (*base, part)
    return base


def edges(source: Path) -> dict[Module, set[Module]]:
    known = modules(source)
    graph = {}
    for module, text in known.items():
        others = {named(module, path, set(known)) for path in paths(text)}
        graph[module] = {other for other in others if module[: len(other)] != other}
    return graph


def reachable(graph: dict[Module, set[Module]], start: Module) -> set[Module]:
    seen: set[Module] = set()
    todo = list(graph[start])
    while todo:
        one = todo.pop()
        if one not in seen:
            seen.add(one)
            todo.extend(graph.get(one, ()))
    return seen


def circles(source: Path) -> list[set[str]]:
    graph = edges(source)
    reach = {module: reachable(graph, module) for module in graph}
    found: list[set[str]] = []
    for module in graph:
        if module in reach[module]:
            circle = {"::".join(one) for one in reach[module] if module in reach.get(one, ())}
            if circle not in found:
                found.append(circle)
    return found


def test_modules_of_a_crate_form_a_circle() -> None:
    crates = sorted(path.parent.name for path in CRATES.glob("*/src"))
    assert "py" in crates
    found = {crate: circles(CRATES / crate / "src") for crate in crates}
    assert {crate: those for crate, those in found.items() if those} == LEFT


def test_the_look_at_modules_sees_no_circle(tmp_path: Path) -> None:
    (tmp_path / "lib.rs").write_text("mod a;\nmod b;\nmod c;\n")
    (tmp_path / "a.rs").write_text("use crate::{\n    b::{self, One},\n    c,\n};\n")
    (tmp_path / "b.rs").write_text("fn two() {\n    super::c::three();\n}\n")
    (tmp_path / "c.rs").write_text("#[cfg(test)]\nmod tests {\n    use crate::a;\n}\n")
    assert circles(tmp_path) == []
    (tmp_path / "c.rs").write_text("use crate::a::Four;\n")
    assert circles(tmp_path) == [{"a", "b", "c"}]
