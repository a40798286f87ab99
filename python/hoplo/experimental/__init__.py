"""What may still change: where objects are, and when they are on several nodes."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any, TypedDict

from hoplo import _core
from hoplo._api import seconds

__all__ = ["Location", "get_object_locations", "object_locations", "wait_for_copies"]

_REFS_A_QUESTION = 1000

_LOOK_AGAIN_S = (0.01, 0.5)
"""At first, and at most: each look asks all nodes."""

_UNKNOWN_S = 5.0
"""For so long nobody may know of the copies: who did died, and another node takes its place."""


class Location(TypedDict):
    """Where the bytes of an object are."""

    node_ids: list[str]
    """Nodes that have all of them, as in `hoplo.nodes()`."""
    object_size: int | None
    """In bytes; None while the object is not in a store (it is small, or there is no value yet)."""
    did_spill: bool
    """Whether one of the nodes has them on disk."""
    copies_wanted: int | None
    """The `copies` of `hoplo.put`: on so many nodes they are to be. None for other objects."""
    copies_had: int | None
    """On so many nodes they are, and stay as long as anybody has a ref. Copies that readers made do
    not count: they may go when memory is short."""


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
    return _locations(refs, "object_locations")


def _locations(refs: Sequence[Any], asker: str) -> dict[Any, Location]:
    if not isinstance(refs, list | tuple) or not all(isinstance(r, _core.ObjectRef) for r in refs):
        raise TypeError(f"{asker} takes a list of refs")
    found: dict[str, Location] = {
        ref.hex(): {
            "node_ids": [],
            "object_size": None,
            "did_spill": False,
            "copies_wanted": None,
            "copies_had": None,
        }
        for ref in refs
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
            if row["copies_wanted"] is not None:
                location["copies_wanted"] = row["copies_wanted"]
                location["copies_had"] = row["copies_had"]
    return {ref: found[ref.hex()] for ref in refs}


def get_object_locations(refs: Sequence[Any], timeout_ms: int = -1) -> dict[Any, Location]:
    """`object_locations`, as Ray calls it. Nodes have a second to answer, whatever `timeout_ms`."""
    return object_locations(refs)


def wait_for_copies(refs: Sequence[Any], timeout: float | None = None) -> bool:
    """Waits until each of these objects is on as many nodes as `hoplo.put(value, copies=...)` said.

    False if it is not so after `timeout` seconds: there are too few nodes, for instance, or the
    others have no room. True if it is: while one of the nodes that have it lives, none is lost.

    Raises ValueError for an object that was not put with copies, or is lost.

    >>> ref = hoplo.put("kept", copies=2)
    >>> hoplo.experimental.wait_for_copies([ref], timeout=0)  # there is one node
    False
    """
    limit = seconds(timeout)
    began = time.monotonic()
    missing = refs
    while True:
        where = _locations(missing, "wait_for_copies")
        missing = [ref for ref, at in where.items() if _copies_missing(at) != 0]
        if not missing:
            return True
        waited = time.monotonic() - began
        if limit is not None and waited >= limit:
            return False
        unknown = [ref for ref in missing if _copies_missing(where[ref]) is None]
        if unknown and waited >= _UNKNOWN_S:
            raise ValueError(
                f"{unknown[0]} was not put with copies, or is lost: pass refs of "
                "hoplo.put(value, copies=2), and see with hoplo.get whether it is lost"
            )
        time.sleep(min(_LOOK_AGAIN_S[0] + waited / 10, _LOOK_AGAIN_S[1]))


def _copies_missing(at: Location) -> int | None:
    """None if nobody says how many there are to be."""
    wanted, had = at["copies_wanted"], at["copies_had"]
    return None if wanted is None or had is None else max(wanted - had, 0)
