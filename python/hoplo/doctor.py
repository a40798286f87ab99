"""`hoplo doctor program.py`: what a program uses of Ray, and what of it hoplo has.

It reads the program and runs nothing of it. It follows the names that `import ray` and `from ray
... import` bind, and looks each of them up where the facade `hoplo.ray` does: what it finds there
is there. Options of `init`, `remote` and `.options()` and fields of a `runtime_env` that stand in
the program are checked by the tables that check them when it runs.

    there        hoplo has it
    no effect    taken, and changes nothing
    not there    the program would fail there; what to use stands beside it
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType

from hoplo import _api, _options, _placement
from hoplo import runtime_env as _runtime_env
from hoplo.ray import _absent, _init

__all__ = ["Use", "main", "uses_of"]

THERE, NO_EFFECT, NOT_THERE = "there", "no effect", "not there"


@dataclass(frozen=True, order=True, slots=True)
class Use:
    """One name of Ray's in a program."""

    line: int
    name: str
    """As Ray calls it, such as `ray.util.queue.Queue` or `init(local_mode=)`."""
    state: str
    """Of `THERE`, `NO_EFFECT`, `NOT_THERE`."""
    remedy: str = ""


def uses_of(source: str, file: str = "<program>") -> list[Use]:
    """What the program uses of Ray, by line. Raises SyntaxError for what is no Python.

    >>> for use in uses_of("import ray\\nray.init(local_mode=True)\\nray.data.range(3)"):
    ...     print(use.line, use.name, use.state)
    1 ray there
    2 init(local_mode=) no effect
    2 ray.init there
    3 ray.data not there
    """
    reader = _Reader()
    reader.visit(ast.parse(source, file))
    return sorted(set(reader.uses))


class _Reader(ast.NodeVisitor):
    def __init__(self) -> None:
        self.uses: list[Use] = []
        self._names: dict[str, str] = {}
        """What the program's names stand for, by their full names in Ray."""
        self._remote: set[str] = set()
        """Names of functions and classes that the program made remote."""

    # ------------------------------------------------------------------------ imports

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            name = alias.name.removeprefix("hoplo.")
            if name.partition(".")[0] == "ray":
                own = alias.asname or alias.name.partition(".")[0]
                self._names[own] = name if alias.asname else name.partition(".")[0]
                self._found(node.lineno, name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = (node.module or "").removeprefix("hoplo.")
        if node.module == "hoplo":
            module = ""
        for alias in node.names:
            name = f"{module}.{alias.name}" if module else alias.name
            if node.level == 0 and name.partition(".")[0] == "ray":
                self._found(node.lineno, module if alias.name == "*" else name)
                self._names[alias.asname or alias.name] = name

    # ------------------------------------------------------------------------ uses

    def visit_Attribute(self, node: ast.Attribute) -> None:
        name = self._name_of(node)
        if name is not None:
            self._found(node.lineno, name)
            return  # what is inside is the beginning of that name
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        name = self._name_of(node)
        if name is not None and isinstance(node.ctx, ast.Load):
            self._found(node.lineno, name)

    def visit_Call(self, node: ast.Call) -> None:
        called = self._name_of(node.func)
        if called == "ray.init":
            self._options(node, "init", (*_api._INIT_OPTIONS, *_OF_INIT), _init.WITHOUT_EFFECT)
        elif called in ("ray.remote", "ray.method"):
            self._options(node, called[4:], _OF_REMOTE, _WITHOUT_EFFECT)
        elif isinstance(node.func, ast.Attribute) and node.func.attr == "options":
            if self._is_remote(node.func.value):
                self._options(node, "options", _OF_REMOTE, _WITHOUT_EFFECT)
        elif called == "ray.put":
            self._options(node, "put", ("_owner",), ())
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._note_remote(node.name, node.decorator_list)
        self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._note_remote(node.name, node.decorator_list)
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        made = node.value
        while isinstance(made, ast.Call):
            if self._name_of(made.func) == "ray.remote":
                self._remote |= {t.id for t in node.targets if isinstance(t, ast.Name)}
                break
            made = made.func
        self.generic_visit(node)

    # ------------------------------------------------------------------------ what is known

    def _name_of(self, node: ast.expr) -> str | None:
        """The full name in Ray of `a.b.c`, if `a` stands for something of Ray's."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self._names:
            return None
        return ".".join([self._names[node.id], *reversed(parts)])

    def _note_remote(self, name: str, decorators: Iterable[ast.expr]) -> None:
        for decorator in decorators:
            made = decorator.func if isinstance(decorator, ast.Call) else decorator
            if self._name_of(made) == "ray.remote":
                self._remote.add(name)

    def _is_remote(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id in self._remote

    def _found(self, line: int, name: str) -> None:
        for use in looked_up(line, name):
            self.uses.append(use)

    def _say(self, line: int, name: str, state: str, remedy: str = "") -> None:
        self.uses.append(Use(line, name, state, remedy))

    def _options(
        self, call: ast.Call, where: str, known: Iterable[str], without: Iterable[str]
    ) -> None:
        for keyword in call.keywords:
            name, line = keyword.arg, keyword.value.lineno
            if name is None:
                continue  # **options: nobody knows before it runs
            if name in _absent.OPTIONS:
                self._say(line, f"{where}({name}=)", NOT_THERE, _absent.OPTIONS[name])
            elif name in without:
                self._say(line, f"{where}({name}=)", NO_EFFECT)
            elif name not in known:
                self._say(line, f"{where}({name}=)", NOT_THERE, "hoplo has no such option")
            elif name == "runtime_env" and isinstance(keyword.value, ast.Dict):
                self._environment(keyword.value)

    def _environment(self, fields: ast.Dict) -> None:
        for key in fields.keys:
            if isinstance(key, ast.Constant) and key.value not in _runtime_env._FIELDS:
                remedy = "pip, uv and py_executable work, or install what it names on every node"
                self._say(key.lineno, f"runtime_env[{key.value!r}]", NOT_THERE, remedy)


def looked_up(line: int, name: str) -> Iterator[Use]:
    """The longest beginning of `name` that is a name of the facade's, or what is missing.

    What follows a function or a value is not looked at: who knows what it gives?
    """
    here: object = import_module("hoplo.ray")
    known = "ray"
    for part in name.split(".")[1:]:
        # `ray.util.placement_group` is a function, and a module around it.
        here = sys.modules.get(f"hoplo.{known}", here)
        if not isinstance(here, ModuleType | type):
            break
        try:
            here = getattr(here, part)
        except (AttributeError, ImportError) as error:
            remedy = _absent.remedy(f"{known}.{part}")
            yield Use(line, f"{known}.{part}", NOT_THERE, remedy or _hint(error))
            return
        known = f"{known}.{part}"
    yield Use(line, known, THERE)


def _hint(error: Exception) -> str:
    _, _, hint = str(error).partition("; ")
    return hint


_OF_INIT = ("job_config", "logging_config", "_memory")
_WITHOUT_EFFECT = ("_metadata", "_labels")
_OF_REMOTE = frozenset({*_options._TASK, *_options._ACTOR, *_options._METHOD})
_OF_REMOTE |= {*_placement._OLD_STYLE}


def main(arguments: list[str]) -> int:
    """Prints a report about each program. The status: 1: something is not there; 2: unreadable."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print("usage: hoplo doctor program.py ...", file=sys.stderr)
        return 0 if arguments else 2
    status = 0
    for file in arguments:
        try:
            uses = uses_of(Path(file).read_text(), file)
        except (OSError, UnicodeDecodeError) as error:
            print(f"hoplo.doctor: cannot read {file}: {error}", file=sys.stderr)
            status = 2
            continue
        except SyntaxError as error:
            print(f"hoplo.doctor: {file}:{error.lineno}: {error.msg}", file=sys.stderr)
            status = 2
            continue
        print(report(file, uses))
        if status == 0 and any(use.state == NOT_THERE for use in uses):
            status = 1
    return status


def report(file: str, uses: list[Use]) -> str:
    """What is printed about one program."""
    if not uses:
        return f"{file}: uses nothing of Ray"
    by_state = {
        state: [use for use in uses if use.state == state]
        for state in (NOT_THERE, NO_EFFECT, THERE)
    }
    lines = [f"{file}: " + ", ".join(f"{len(found)} {s}" for s, found in by_state.items())]
    for state, found in by_state.items():
        places: dict[tuple[str, str], list[int]] = {}
        for use in found:
            places.setdefault((use.name, use.remedy), []).append(use.line)
        for (name, remedy), at in sorted(places.items()):
            where = f"line {at[0]}" if len(at) == 1 else f"lines {', '.join(map(str, at))}"
            lines.append(f"  {state:10} {name}  ({where})" + (f": {remedy}" if remedy else ""))
    if not by_state[NOT_THERE]:
        lines.append(f"  run it: python -m hoplo.ray {file}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
