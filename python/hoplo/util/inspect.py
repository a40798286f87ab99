"""Why can this not be sent to another process?"""

from __future__ import annotations

from typing import Any, NamedTuple, TextIO

from hoplo._serialization import find_unpicklable, why_unpicklable

__all__ = ["UnpicklablePart", "inspect_serializability"]


class UnpicklablePart(NamedTuple):
    """A part of a value that cannot be pickled.

    >>> import threading
    >>> fine, parts = inspect_serializability([threading.Lock()], name="locks")
    locks cannot be pickled:
      locks[0] (lock): cannot pickle '_thread.lock' object
    >>> [part.path for part in parts]
    ['locks[0]']
    """

    path: str
    """How the value leads to it, such as `model.layers[2].lock`."""
    type_name: str
    reason: str
    """What pickle says."""


def inspect_serializability(
    obj: Any, name: str | None = None, *, print_file: TextIO | None = None
) -> tuple[bool, set[UnpicklablePart]]:
    """Whether `obj` can be sent to another process, and the innermost parts that cannot.

    Prints them as well, to `print_file` or standard output.

    >>> import threading
    >>> fine, parts = inspect_serializability({"lock": threading.Lock()}, name="config")
    config cannot be pickled:
      config['lock'] (lock): cannot pickle '_thread.lock' object
    >>> fine
    False
    """
    shown = name or getattr(obj, "__name__", None) or type(obj).__name__
    if why_unpicklable(obj) is None:
        print(f"{shown} can be pickled", file=print_file)
        return True, set()
    parts = [
        UnpicklablePart(found.path, type(found.part).__name__, str(found.reason))
        for found in find_unpicklable(obj, shown)
    ]
    print(f"{shown} cannot be pickled:", file=print_file)
    for found in parts:
        print(f"  {found.path} ({found.type_name}): {found.reason}", file=print_file)
    return False, set(parts)
