"""What may still change: where objects are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TypedDict

from hoplo import _core

__all__ = ["Location", "get_object_locations", "object_locations"]

_REFS_A_QUESTION = 1000


class Location(TypedDict):
    """Where the bytes of an object are."""

    node_ids: list[str]
    """Nodes that have all of them, as in `hoplo.nodes()`."""
    object_size: int | None
    """In bytes; None while the object is not in a store (it is small, or there is no value yet)."""
    did_spill: bool
    """Whether one of the nodes has them on disk."""


def object_locations(refs: Sequence[Any]) -> dict[Any, Location]:
    """Which nodes have the bytes of these objects.

    Asks all nodes; one that does not answer within a second counts as if it had none. A small value
    travels in messages and is in no store: its `node_ids` are empty.

    >>> import numpy as np
    >>> ref = hoplo.put(np.zeros(1_000_000))
    >>> where = hoplo.experimental.object_locations([ref])[ref]
    >>> len(where["node_ids"]), where["object_size"] >= 8_000_000, where["did_spill"]
    (1, True, False)
    """
    if not isinstance(refs, list | tuple) or not all(isinstance(r, _core.ObjectRef) for r in refs):
        raise TypeError("object_locations takes a list of refs")
    found: dict[str, Location] = {
        ref.hex(): {"node_ids": [], "object_size": None, "did_spill": False} for ref in refs
    }
    names = list(found)
    for start in range(0, len(names), _REFS_A_QUESTION):
        asked = ",".join(names[start : start + _REFS_A_QUESTION])
        for row in json.loads(_core.query("locations", asked)):
            location = found[row["object_id"]]
            location["object_size"] = row["size"]
            if row["is_here"]:
                location["node_ids"].append(row["node"])
                location["did_spill"] |= row["is_spilled"]
    return {ref: found[ref.hex()] for ref in refs}


def get_object_locations(refs: Sequence[Any], timeout_ms: int = -1) -> dict[Any, Location]:
    """`object_locations`, as Ray calls it. Nodes have a second to answer, whatever `timeout_ms`."""
    return object_locations(refs)
