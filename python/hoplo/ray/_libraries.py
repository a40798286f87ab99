"""Names that a library imports from Ray though most of its users never use them.

The library would not be imported without them. They are given to it alone: a program that imports
the same module hears at once that hoplo has it not.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, NoReturn

from ._absent import absent, told
from .util.named import get_node_ip_address

__all__ = ["made_for_importer"]


def _refusing(name: str) -> Callable[..., NoReturn]:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise NotImplementedError(told(name))

    refuse.__name__ = name.rpartition(".")[2]
    return refuse


LIBRARIES: dict[str, dict[str, dict[str, Any]]] = {
    "modin": {
        "ray.data": {"from_pandas_refs": _refusing("ray.data.from_pandas_refs")},
        "ray._private": {},
        "ray._private.services": {"get_node_ip_address": get_node_ip_address},
    },
    "xgboost_ray": {
        "ray.train": {},
        "ray.train._internal": {},
        "ray.train._internal.session": {"get_session": lambda: None},
    },
}
"""Of each library the modules that it imports, with what it takes from them."""


def made_for_importer(name: str) -> ModuleType | None:
    """The module `ray.X`, if a library that needs it imports it just now."""
    modules = LIBRARIES.get(_importer().partition(".")[0], {})
    if name not in modules:
        return None
    made = ModuleType(name, f"What is imported of {name} by a library that can do without it.")
    made.__dict__.update(modules[name])
    made.__dict__["__getattr__"] = absent(f"hoplo.{name}", list(modules[name]))
    made.__dict__["__path__"] = []
    return made


def _importer() -> str:
    """The name of the module whose import is under way."""
    frame = sys._getframe(1)
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name.partition(".")[0] != "importlib" and not name.startswith("hoplo.ray._"):
            return name
        frame = frame.f_back  # type: ignore[assignment]
    return ""
