"""What is built on tasks and actors, under the names of `ray.util`."""

from __future__ import annotations

from hoplo.util import (
    ActorPool,
    as_completed,
    get_current_placement_group,
    get_placement_group,
    map_unordered,
    placement_group,
    placement_group_table,
    remove_placement_group,
)

from .._absent import absent
from .._finder import know_hidden
from .actor_group import ActorGroup
from .check_serialize import inspect_serializability
from .named import get_node_ip_address, list_named_actors, log_once
from .serialization import deregister_serializer, register_serializer

__all__ = [
    "ActorGroup",
    "ActorPool",
    "as_completed",
    "deregister_serializer",
    "get_current_placement_group",
    "get_node_ip_address",
    "get_placement_group",
    "inspect_serializability",
    "list_named_actors",
    "log_once",
    "map_unordered",
    "placement_group",
    "placement_group_table",
    "register_serializer",
    "remove_placement_group",
]

know_hidden(__name__)

__getattr__ = absent(__name__, __all__)
