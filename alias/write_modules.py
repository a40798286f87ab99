"""Writes the modules of the package `ray`: `python alias/write_modules.py`.

Type checkers alone read them. When a program runs, `import ray` gives `hoplo.ray`, and that finds
its modules itself. So each file here just names the module that an import gives. A test says when
one is missing.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import hoplo.ray
from hoplo.ray._finder import ELSEWHERE, HIDDEN

FOLDER = Path(__file__).parent
KEPT = "ray/__init__.py"
"""What runs."""
UNTYPED = "from typing import Any\n\n\ndef __getattr__(name: str) -> Any: ...\n"


def modules() -> dict[str, str]:
    """Of each module `ray.X` that can be imported, the one that it is."""
    facade = Path(hoplo.ray.__file__).parent
    names = {"", *ELSEWHERE, *HIDDEN, *_below(facade), *_below(facade.parent)}
    ours = (name for name in names if name.partition(".")[0] != "ray")
    return {
        f"ray.{name}".rstrip("."): import_module(f"hoplo.ray.{name}".rstrip(".")).__name__
        for name in sorted(ours)
    }


def files() -> dict[str, str]:
    """The text of each file, by its path."""
    known = modules()
    written = {}
    for name, target in known.items():
        inside = [one.rpartition(".")[2] for one in known if one.rpartition(".")[0] == name]
        stem = name.replace(".", "/") + "/__init__" * bool(inside)
        path = f"{stem}.py"
        written[f"{stem}.pyi" if path == KEPT else path] = _text(target, inside)
    return written


def _text(target: str, inside: list[str]) -> str:
    if not target.startswith("hoplo."):
        return UNTYPED  # another project's, which may have no types
    text = f"from {target} import *\n"
    # A function may have the name of a module: it keeps that name.
    known = getattr(import_module(target), "__all__", ())
    lines = [f"from . import {one} as {one}\n" for one in inside if one not in known]
    return f"{text}\n{''.join(lines)}" if lines else text


def _below(folder: Path) -> list[str]:
    """The names of public modules in a package."""
    paths = (path.relative_to(folder).with_suffix("") for path in folder.rglob("*.py"))
    names = (".".join(path.parts).removesuffix(".__init__") for path in paths)
    return [name for name in names if not any(part[0] == "_" for part in name.split("."))]


if __name__ == "__main__":
    for old in (FOLDER / "ray").rglob("*.py*"):
        if old.is_file() and old != FOLDER / KEPT:
            old.unlink()
    for path, text in files().items():
        (FOLDER / path).parent.mkdir(parents=True, exist_ok=True)
        (FOLDER / path).write_text(text)
    (FOLDER / "ray" / "py.typed").touch()
