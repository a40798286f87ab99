"""What Ray has and hoplo has not: one table, read by the facade's modules and by `hoplo.doctor`.

A name that is in no module of the facade is looked up here, by its full name in Ray or by that of
the module around it. What is found says what to use in its place.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NoReturn

FACADE = "hoplo.ray"

ABSENT: dict[str, str] = {
    "ray.ClientBuilder": "init(address='HOST:PORT') joins a cluster from any machine",
    "ray.ClientContext": "init(address='HOST:PORT') joins a cluster from any machine",
    "ray.Language": "hoplo runs Python only",
    "ray._private": "that is Ray's inside; util and the runtime context tell much",
    "ray._raylet": "that is Ray's inside; ids and refs are names of `ray` itself",
    "ray.air": "hoplo has no libraries on top: call their trainers inside tasks and actors",
    "ray.autoscaler": "a cluster has the nodes that `hoplo start --address HEAD` adds",
    "ray.client": "init(address='HOST:PORT') joins a cluster from any machine",
    "ray.client_builder": "init(address='HOST:PORT') joins a cluster from any machine",
    "ray.cluster_utils": "start nodes by `hoplo start`, each with a HOPLO_TMPDIR of its own",
    "ray.cpp_function": "hoplo runs Python only; call C++ by ctypes or pybind11 inside a task",
    "ray.cross_language": "hoplo runs Python only",
    "ray.dag.collective_node": "hoplo.allreduce(refs) and its kin take refs of any calls",
    "ray.dag.context": "compiled graphs have no settings here",
    "ray.dashboard": "`hoplo status`, `hoplo list` and `hoplo logs` show what runs",
    "ray.data": "hoplo has no datasets: util.map_unordered over chunks does much of it",
    "ray.experimental.channel": "pass refs, or stream values from a generator task",
    "ray.experimental.collective": "hoplo.allreduce(refs) and its kin take refs of any calls",
    "ray.experimental.dynamic_resources": "give resources to init() or `hoplo start`",
    "ray.experimental.rdt": "arrays go through the object store",
    "ray.experimental.set_resource": "give resources to init() or `hoplo start`",
    "ray.experimental.shuffle": "the example distributed_sort.py shuffles by tasks",
    "ray.experimental.state": "ray.util.state has it",
    "ray.internal": "an object goes when nothing refers to it: drop its refs",
    "ray.java_actor_class": "hoplo runs Python only",
    "ray.java_function": "hoplo runs Python only",
    "ray.job_submission": "start the program on a node, with init(address='auto')",
    "ray.llm": "hoplo has no libraries on top: run the engine inside actors",
    "ray.rllib": "hoplo has no libraries on top; the example train_policy.py trains with actors",
    "ray.scripts": "the command is `hoplo`",
    "ray.serve": "hoplo has no server: run one, such as uvicorn, inside actors",
    "ray.train": "hoplo has no trainers: one actor for each worker, in a placement group",
    "ray.tune": "hoplo has no tuner: util.map_unordered over the trials runs them",
    "ray.util.accelerators.tpu": "name TPUs as resources: init(resources={'TPU': 4})",
    "ray.util.check_open_ports": "`ss -tlnp` shows the ports at which a node listens",
    "ray.util.client.RayAPIStub": "init(address='HOST:PORT') joins a cluster from any machine",
    "ray.util.client.server": "init(address='HOST:PORT') joins a cluster from any machine",
    "ray.util.client.worker": "init(address='HOST:PORT') joins a cluster from any machine",
    "ray.util.client_connect": "init(address='HOST:PORT') joins a cluster from any machine",
    "ray.util.collective.backend_registry": "call another library inside of actors",
    "ray.util.collective.collective_group": "get_group_handle() gives a group with its methods",
    "ray.util.connect": "init(address='HOST:PORT') joins a cluster from any machine",
    "ray.util.dask.ProgressBarCallback": "dask.diagnostics.ProgressBar works",
    "ray.util.dask.RayDaskCallback": "callbacks of Dask's own hear of each task",
    "ray.util.dask.callbacks": "callbacks of Dask's own hear of each task",
    "ray.util.dask.dataframe_optimize": "Dask optimizes its graphs itself",
    "ray.util.dask.local_ray_callbacks": "callbacks of Dask's own hear of each task",
    "ray.util.dask.unpack_ray_callbacks": "callbacks of Dask's own hear of each task",
    "ray.util.debugpy": "`hoplo why` says where code stands; debugpy works inside a task",
    "ray.util.disconnect": "shutdown() leaves a cluster",
    "ray.util.disable_log_once_globally": "log_once says each thing once in a process",
    "ray.util.enable_periodic_logging": "log_once says each thing once in a process",
    "ray.util.get_node_instance_id": "nodes() tells the id, the host and the labels of each node",
    "ray.util.horovod": "torch.distributed works inside actors",
    "ray.util.lightgbm": "call lightgbm inside tasks and actors",
    "ray.util.metrics": "hoplo has no metrics yet: count in an actor, or log",
    "ray.util.multiprocessing.JoinableQueue": "util.queue.Queue is for all processes",
    "ray.util.pdb": "`hoplo why` says where code stands; debugpy works inside a task",
    "ray.util.ray_debugpy": "`hoplo why` says where code stands; debugpy works inside a task",
    "ray.util.rpdb": "`hoplo why` says where code stands; debugpy works inside a task",
    "ray.util.serialization_addons": "values of starlette and pydantic are sent without it",
    "ray.util.sgd": "torch.distributed works inside actors",
    "ray.util.spark": "hoplo runs on its own nodes: `hoplo start`",
    "ray.util.state.common.ClusterEventState": "hoplo has no events; see `hoplo why`",
    "ray.util.state.common.GetLogOptions": "get_log() of ray.util.state takes arguments",
    "ray.util.state.common.Link": "each row of list_tasks() has its parent_task_id",
    "ray.util.state.common.ListApiResponse": "the functions of ray.util.state give rows",
    "ray.util.state.common.NestedTaskSummary": "each row of list_tasks() has its parent_task_id",
    "ray.util.state.common.RuntimeEnvState": "`hoplo why` says what is being built for a task",
    "ray.util.state.common.SummaryApiResponse": "the functions of ray.util.state give dicts",
    "ray.util.state.list_cluster_events": "hoplo has no events; `hoplo why` tells what happened",
    "ray.util.state.list_runtime_envs": "`hoplo why` says what is being built for a task",
    "ray.util.tpu": "name TPUs as resources: init(resources={'TPU': 4})",
    "ray.util.tracing": "timeline() tells what ran when",
    "ray.util.xgboost": "call xgboost inside tasks and actors",
    "ray.widgets": "print what you want to see",
    "ray.workflow": "hoplo has no durable workflows: store results, and call .remote() with refs",
}

for _name in (
    "CommunicatorMetadata",
    "RDTManager",
    "TensorTransportManager",
    "TensorTransportMetadata",
    "deregister_nixl_memory",
    "register_nixl_memory",
    "register_nixl_memory_pool",
    "register_tensor_transport",
    "set_nixl_cuda_stream",
    "set_target_device_for_ref",
    "set_target_for_ref",
    "wait_tensor_freed",
):
    ABSENT[f"ray.experimental.{_name}"] = "arrays and tensors go through the object store"

OPTIONS: dict[str, str] = {
    "enable_tensor_transport": "arrays and tensors go through the object store",
    "tensor_transport": "arrays and tensors go through the object store",
    "_tensor_transport": "arrays and tensors go through the object store",
}
"""Of `remote`, `options`, `method` and `put`."""


def remedy(name: str) -> str | None:
    """What to use in place of `name`, such as `ray.data.Dataset`; None if the table has it not."""
    while name:
        if name in ABSENT:
            return ABSENT[name]
        name = name.rpartition(".")[0]
    return None


def told(name: str) -> str | None:
    """The message about `name`; None if the table has it not."""
    found = remedy(name)
    return found and f"{name} is not in hoplo; {found}"


def refusing(name: str, remedy: str) -> Callable[..., NoReturn]:
    """What takes the place of a method that hoplo has not."""

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError(f"{name}() is not in hoplo; {remedy}")

    refuse.__name__ = name.rpartition(".")[2]
    return refuse


def as_ray(module: str) -> str:
    """What a program that says `import ray` calls a module of the facade."""
    return module.removeprefix("hoplo.")


def absent(module: str, known: list[str]) -> Callable[[str], Any]:
    """The `__getattr__` of a module of the facade: its modules, and errors that name a remedy."""

    def __getattr__(name: str) -> Any:  # noqa: N807
        full = f"{as_ray(module)}.{name}"
        if not name.startswith("__"):
            try:
                return import_module(f"{module}.{name}")
            except ModuleNotFoundError as error:
                if error.name not in (None, f"{module}.{name}"):
                    raise  # of a library that the module needs
        _refuse(full, known)

    return __getattr__


def _refuse(full: str, known: list[str]) -> NoReturn:
    import difflib

    module, _, name = full.rpartition(".")
    text = None if name.startswith("__") else told(full)
    if text is None:
        near = difflib.get_close_matches(name, known, n=1)
        text = f"module {module!r} of hoplo has no attribute {name!r}"
        text += f"; did you mean {near[0]!r}?" if near else ""
    raise AttributeError(text)
