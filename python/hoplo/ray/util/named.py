"""Small questions: which actors have names, which address this machine has."""

from __future__ import annotations

import json
from typing import Any

from hoplo import _core
from hoplo._api import initialize_once

from .._nodes import address_of_node

__all__ = ["get_node_ip_address", "list_named_actors", "log_once", "reset_log_once"]

_logged: set[str] = set()


def list_named_actors(all_namespaces: bool = False) -> list[Any]:
    """The names of the actors of this job's namespace that have one, and live.

    With `all_namespaces` a list of dicts with "name" and "namespace", of all namespaces.

    >>> first = Counter.options(name="first").remote()
    >>> "first" in list_named_actors()
    True
    """
    if not isinstance(all_namespaces, bool):
        raise TypeError(f"all_namespaces must be True or False, not {all_namespaces!r}")
    initialize_once()
    here = _core.runtime_context()["namespace"]
    named = [
        row for row in json.loads(_core.query("actors")) if row["name"] and row["state"] != "DEAD"
    ]
    if all_namespaces:
        return [{"name": row["name"], "namespace": row["namespace"]} for row in named]
    return [row["name"] for row in named if row["namespace"] == here]


def get_node_ip_address() -> str:
    """The address by which others of the cluster reach this node.

    >>> get_node_ip_address().count(".")
    3
    """
    initialize_once()
    return address_of_node(_core.runtime_context()["node_id"]) or "127.0.0.1"


def log_once(key: str) -> bool:
    """True the first time that this process asks with `key`, False afterwards.

    >>> log_once("a warning"), log_once("a warning")
    (True, False)
    """
    is_new = key not in _logged
    _logged.add(key)
    return is_new


def reset_log_once(key: str | None = None) -> None:
    """`log_once(key)` is True once more; without a key, that of all.

    >>> log_once("again"), reset_log_once("again"), log_once("again")
    (True, None, True)
    """
    if key is None:
        _logged.clear()
    else:
        _logged.discard(key)
