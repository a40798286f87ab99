"""`inspect_serializability`, with the arguments of Ray's."""

from __future__ import annotations

from typing import Any, TextIO

from hoplo.util.inspect import UnpicklablePart
from hoplo.util.inspect import inspect_serializability as _inspect

__all__ = ["FailureTuple", "inspect_serializability"]

FailureTuple = UnpicklablePart


def inspect_serializability(
    base_obj: Any, name: str | None = None, depth: int = 3, print_file: TextIO | None = None
) -> tuple[bool, set[UnpicklablePart]]:
    """`hoplo.util.inspect_serializability`; `depth` has no effect, the innermost parts are found.

    >>> inspect_serializability(3, name="three")
    three can be pickled
    (True, set())
    """
    return _inspect(base_obj, name, print_file=print_file)
