"""Rows of nodes, with the label that Ray's nodes have: the id of each."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import ParamSpec

from hoplo._labels import NODE_ID_LABEL_OF_RAY
from hoplo.util import state
from hoplo.util.state.rows import NodeState

__all__ = ["get_node", "list_nodes"]

_Asked = ParamSpec("_Asked")


def _labelled(row: NodeState) -> NodeState:
    labels = {NODE_ID_LABEL_OF_RAY: row.node_id, **(row.labels or {})}
    return dataclasses.replace(row, labels=labels)


def _all(function: Callable[_Asked, list[NodeState]]) -> Callable[_Asked, list[NodeState]]:
    @functools.wraps(function)
    def listed(*args: _Asked.args, **kwargs: _Asked.kwargs) -> list[NodeState]:
        return [_labelled(row) for row in function(*args, **kwargs)]

    return listed


def _one(function: Callable[_Asked, NodeState | None]) -> Callable[_Asked, NodeState | None]:
    @functools.wraps(function)
    def found(*args: _Asked.args, **kwargs: _Asked.kwargs) -> NodeState | None:
        row = function(*args, **kwargs)
        return None if row is None else _labelled(row)

    return found


list_nodes = _all(state.list_nodes)
get_node = _one(state.get_node)
