"""The nodes of the cluster, with what Ray's programs ask of them."""

from __future__ import annotations

import json
from typing import Any

import hoplo
from hoplo import _core
from hoplo._labels import NODE_ID_LABEL_OF_RAY

__all__ = ["address_of_node", "nodes"]


def nodes() -> list[dict[str, Any]]:
    """The nodes of the cluster: what `hoplo.nodes` says of each, and the same under Ray's keys.

    Also there are: alive, NodeName (its address), DeathReason (always 0, which is unspecified),
    DeathReasonMessage (why it is dead; empty while it lives), and a label with its id.

    >>> [node] = hoplo.ray.nodes()
    >>> node["alive"], node["Labels"]["ray.io/node-id"] == node["NodeID"]
    (True, True)
    """
    return [as_ray(row) for row in hoplo.nodes()]


def as_ray(row: dict[str, Any]) -> dict[str, Any]:
    """What `hoplo.nodes` says of a node, with Ray's keys as well."""
    return {
        **row,
        "alive": row["Alive"],
        "NodeName": row["NodeManagerAddress"],
        "DeathReason": 0,
        "DeathReasonMessage": row["Reason"] or "",
        "Labels": {NODE_ID_LABEL_OF_RAY: row["NodeID"], **row["Labels"]},
    }


def address_of_node(node_id: str) -> str | None:
    """The address by which others reach the node, also one that is dead; None: there is none."""
    for node in json.loads(_core.query("nodes")):
        if node["NodeID"] == node_id:
            return str(node["NodeManagerAddress"])
    return None
