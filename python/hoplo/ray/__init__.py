"""Ray's API, as programs written for Ray call it: `import hoplo.ray as ray`.

Most names are hoplo's own. What differs in a name, an argument or a small way is adapted here.
What hoplo has not raises an error that names the nearest thing that it has. Three ways lead here:

    import hoplo.ray as ray                the program says so
    python -m hoplo.ray program.py ...     `import ray` means this, in its workers as well
    pip install ./alias                    the same for every program of that Python

>>> import hoplo.ray as ray
>>> @ray.remote
... def square(x):
...     return x * x
>>> ray.get([square.remote(i) for i in range(4)])
[0, 1, 4, 9]
"""

from __future__ import annotations

import logging

from hoplo import (
    ActorClass,
    ActorHandle,
    ObjectRef,
    ObjectRefGenerator,
    available_resources,
    cluster_resources,
    get_actor,
    get_gpu_ids,
    is_initialized,
    kill,
    method,
    timeline,
)
from hoplo._dynamic import DynamicRefs
from hoplo._logging import LoggingConfig
from hoplo.util.placement_group import PlacementGroupID

from . import _finder, _patches
from ._absent import absent
from ._calls import cancel, get, put, remote, wait
from ._ids import (
    ActorClassID,
    ActorID,
    ClusterID,
    FunctionID,
    JobID,
    NodeID,
    ObjectID,
    TaskID,
    UniqueID,
    WorkerID,
)
from ._init import init, shutdown, take_variables
from ._nodes import nodes
from .runtime_context import get_runtime_context

__all__ = [
    "LOCAL_MODE",
    "SCRIPT_MODE",
    "WORKER_MODE",
    "ActorClass",
    "ActorClassID",
    "ActorHandle",
    "ActorID",
    "ClusterID",
    "DynamicObjectRefGenerator",
    "FunctionID",
    "JobID",
    "LoggingConfig",
    "NodeID",
    "ObjectID",
    "ObjectRef",
    "ObjectRefGenerator",
    "PlacementGroupID",
    "TaskID",
    "UniqueID",
    "WorkerID",
    "__version__",
    "available_resources",
    "cancel",
    "cluster_resources",
    "get",
    "get_actor",
    "get_gpu_ids",
    "get_runtime_context",
    "init",
    "is_initialized",
    "kill",
    "logger",
    "method",
    "nodes",
    "put",
    "remote",
    "shutdown",
    "timeline",
    "wait",
]

__version__ = "2.60.0"
"""The version of Ray whose names and defaults these are. `hoplo.__version__` is hoplo's."""
__commit__ = "none"

SCRIPT_MODE = 0
WORKER_MODE = 1
LOCAL_MODE = 2

DynamicObjectRefGenerator = DynamicRefs

logger = logging.getLogger(__name__)
"""Where libraries of Ray's say something. hoplo itself logs nothing there."""

_finder.install()
_patches.install(__version__)
_patches.name_resources()
take_variables()

__getattr__ = absent(__name__, __all__)
