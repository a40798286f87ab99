"""Where the nodes of the cluster are."""

from __future__ import annotations

import json

from hoplo import _core

__all__ = ["address_of_node"]


def address_of_node(node_id: str) -> str | None:
    """The address by which others reach the node, also one that is dead; None: there is none."""
    for node in json.loads(_core.query("nodes")):
        if node["NodeID"] == node_id:
            return str(node["NodeManagerAddress"])
    return None
