"""How `import ray.util.queue` finds `hoplo.util.queue`.

`ray.X` is the module `hoplo.ray.X` if the facade has one, else `hoplo.X`. There is one module under
all of its names, so a class is the same whichever name it was imported by. What hoplo has not
raises ModuleNotFoundError, which says what to use.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

from ._absent import FACADE, as_ray, told

PREFIXES = ("ray.", f"{FACADE}.")
ELSEWHERE = {
    "cloudpickle": "cloudpickle",
    "dag.class_node": "hoplo.ray.dag",
    "dag.compiled_dag_node": "hoplo.ray.dag",
    "dag.dag_node": "hoplo.ray.dag",
    "dag.function_node": "hoplo.ray.dag",
    "dag.input_node": "hoplo.ray.dag",
    "dag.output_node": "hoplo.ray.dag",
    "experimental.compiled_dag_ref": "hoplo.ray.dag",
    "experimental.locations": "hoplo.experimental",
    "runtime_env.runtime_env": "hoplo.ray.runtime_env",
    "util.accelerators.accelerators": "hoplo.ray.util.accelerators",
    "util.dask.scheduler": "hoplo.ray.util.dask",
    "util.debug": "hoplo.ray.util.named",
    "util.helpers": "hoplo.util.iter",
    "util.state.api": "hoplo.ray.util.state",
}
"""Modules of Ray's that have another name here, or are another project's."""


HIDDEN = {"util.placement_group": "hoplo.util.placement_group"}
"""Modules whose name in the module around them is that of a function.

They are known before anybody imports them: an import would put the module in the function's place.
"""


class Finder(MetaPathFinder):
    """Finds modules of Ray's among ours."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        prefix = next((p for p in PREFIXES if name.startswith(p)), None)
        if prefix is None:
            return None
        # Another `ray`: Ray itself, or a package of the program's own.
        if prefix == "ray." and sys.modules.get("ray") is not sys.modules[FACADE]:
            return None
        ours = f"{FACADE}.{name[len(prefix) :]}"
        if name != ours and _has_file(ours):
            return ModuleSpec(name, _Alias(ours))
        if _has_file(ours):
            return None  # found the usual way
        elsewhere = _elsewhere(name[len(prefix) :])
        if elsewhere is not None:
            return ModuleSpec(name, _Alias(elsewhere))
        text = told(as_ray(ours))
        if text is None:
            return None
        from ._libraries import made_for_importer

        made = made_for_importer(as_ray(ours))
        if made is None:
            raise ModuleNotFoundError(text)
        return ModuleSpec(name, _Made(made), is_package=True)


class _Alias(Loader):
    """Gives a module that is there under another name."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._alias = name
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        self._alias = spec.name
        module = import_module(self._name)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import gave it the alias's
        know_hidden(self._alias)


class _Made(Loader):
    """Gives a module that was made for whoever imports it."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        """It is whole."""


def know_hidden(package: str) -> None:
    """Makes the hidden modules of a package known, whose name is `ray.X` or that of the facade."""
    for rest, target in HIDDEN.items():
        for prefix in PREFIXES:
            name = f"{prefix}{rest}"
            if name.rpartition(".")[0] == package:
                sys.modules[name] = import_module(target)


def install() -> None:
    """From now on, imports ask the finder first."""
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder())


def _has_file(name: str) -> bool:
    """Whether the facade has that module itself."""
    from pathlib import Path

    parts = name.split(".")[2:]
    if parts[0].startswith("_as_ray"):
        return True
    stem = Path(__file__).parent.joinpath(*parts)
    return stem.with_suffix(".py").exists() or (stem / "__init__.py").exists()


def _elsewhere(rest: str) -> str | None:
    if rest in ELSEWHERE:
        return ELSEWHERE[rest]
    if any(part.startswith("_") for part in rest.split(".")):
        return None
    try:
        return f"hoplo.{rest}" if find_spec(f"hoplo.{rest}") is not None else None
    except ModuleNotFoundError:
        return None
