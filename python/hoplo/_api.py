"""The functions of `import hoplo` that are Python: they check arguments, then ask `_core`."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    NamedTuple,
    Never,
    ParamSpec,
    Protocol,
    TypeVar,
    Unpack,
    overload,
)

from . import _core, _options, _texts
from . import runtime_env as _runtime_env
from ._option_types import ForBoth
from ._options import refuse_unknown
from .actor import ActorClass, ActorProxy
from .actor import make as _make_actor_class
from .remote_function import make as _make_remote_function

if TYPE_CHECKING:
    import numpy as np

    from ._typed import TypedActorClass
    from .runtime_context import RuntimeContext

_T = TypeVar("_T")
_C = TypeVar("_C", bound=type[Any])
_P = ParamSpec("_P")


# ------------------------------------------------------------------------------- the session


class InitConfig(NamedTuple):
    """What `init` was asked for, checked; the Rust side reads it once."""

    address: str | None
    """None: a node of our own; "auto": the one that runs on this machine; else where to join."""
    cluster: str | None
    """Where the head of a cluster listens: its node on this machine, else one of our own joins."""
    token_file: str | None
    """The file with the token to join with; None: HOPLO_TOKEN, or ~/.hoplo/token."""
    num_cpus: float | None
    """None: as many as this process may use."""
    num_gpus: float | None
    """None: as many as the machine has."""
    memory: float | None
    """Bytes for tasks that ask for `memory`; None: what objects leave of the machine's."""
    resources: Mapping[str, float]
    labels: Mapping[str, str]
    object_store_memory: int | None
    """Bytes; None: 30% of the machine's, at least 64 MiB."""
    namespace: str | None
    """None: one that no other job has."""
    log_to_driver: bool
    folds_output: bool
    """Whether lines that several workers print are folded; see `HOPLO_FOLD_OUTPUT`."""
    runtime_env: str | None
    """Canonical JSON, see `hoplo.runtime_env`."""
    temp_dir: str | None
    """The folder in which the session's folder is made; None: see `HOPLO_TMPDIR`."""
    daemon_program: str
    """Path of the `hoplo` program that can run a node."""
    python: str
    """Path of this Python, for the zygote."""
    sys_path: tuple[str, ...]
    cwd: str | None
    argv0: str
    preload: tuple[str, ...]
    """Modules that the zygote should import, since this program uses them."""
    python_version: str
    """Of this program, such as "3.12"."""
    locality: bool
    """Whether tasks go where their large arguments lie; see `HOPLO_LOCALITY`."""
    task_events: bool
    """Whether the node remembers tasks that have ended."""


class Context(Mapping[str, Any]):
    """What `init` returns: the session's address and ids, by name.

    At the end of `with hoplo.init():` hoplo is shut down.

    >>> with hoplo.init(num_cpus=2, namespace="mine") as context:
    ...     context["namespace"]
    'mine'
    """

    def __init__(self, info: dict[str, Any]) -> None:
        self.address_info = info
        self.dashboard_url: str | None = None

    def __getitem__(self, key: str) -> Any:
        return self.address_info[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.address_info)

    def __len__(self) -> int:
        return len(self.address_info)

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *_: object) -> None:
        self.disconnect()

    def disconnect(self) -> None:
        """Shuts hoplo down. Does nothing when it is down already."""
        shutdown()

    def __repr__(self) -> str:
        return f"Context({self.address_info})"


_context: Context | None = None


class _Turns:
    """One at a time begins or ends the session: `init`, the first API call, and `shutdown`.

    Who waits can be interrupted by Ctrl-C. A signal handler or a destructor may run in the middle
    of a turn, in the same thread: it gets no turn, since it would find half a session, or wait for
    itself. In the child of a fork nobody has a turn, whatever thread of the parent had it.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._is_taken = False

    def take(self, act: Callable[[], _T]) -> _T:
        with self._lock:
            if self._is_taken:  # by this very thread
                raise _InTurnError(
                    "hoplo.init() or hoplo.shutdown() runs in this thread: what interrupts it, a "
                    "signal handler or a destructor, cannot use hoplo before it has ended"
                )
            self._is_taken = True
            try:
                return act()
            finally:
                self._is_taken = False


class _InTurnError(RuntimeError):
    """Of a thread that begins or ends the session already."""


_turns = _Turns()


def _after_fork_in_child() -> None:
    global _turns
    _turns = _Turns()


os.register_at_fork(after_in_child=_after_fork_in_child)


def init(
    address: str | None = None,
    *,
    num_cpus: float | None = None,
    num_gpus: float | None = None,
    memory: float | None = None,
    resources: Mapping[str, float] | None = None,
    labels: Mapping[str, str] | None = None,
    object_store_memory: int | None = None,
    namespace: str | None = None,
    ignore_reinit_error: bool = False,
    log_to_driver: bool | None = None,
    runtime_env: Mapping[str, Any] | None = None,
    logging_level: int | str | None = None,
    enable_task_events: bool | None = None,
    _temp_dir: str | None = None,
    _token_file: str | None = None,
    **unknown: Any,
) -> Context:
    """Starts a node for this program, or joins one that runs. The first API call does it, too.

    `address` "local" starts a node that ends with this program. "auto" joins the node that
    `hoplo start` left on this machine, or, without one, that of the program of yours that began
    last and has a node of its own. The path of a session's folder joins that node. "HOST:PORT"
    joins the cluster of the head that listens there: the node of it that runs on this machine, or,
    if there is none, one without CPUs that ends with this program. For that it needs a token:
    `_token_file`, HOPLO_TOKEN or ~/.hoplo/token. Of several machines that may be head name all,
    with commas between. None is the address in HOPLO_ADDRESS, or "local" if that is not set.

    `num_cpus`, `num_gpus` and `resources` say how many units of each the node has; `memory` and
    `object_store_memory` are in bytes. What is not given is what the machine has. They and `labels`
    are for a new node: ValueError when one is joined.

    With `enable_task_events=False` no node remembers what the job's tasks and methods did:
    `timeline()` and `hoplo.util.state` show them only while they are not finished.

    Raises RuntimeError when `init` was called before, unless `ignore_reinit_error`, and
    ConnectionFailedError when no node can be joined or started. When threads call it at once, the
    first one begins the session, and the others wait and find it.

    >>> context = hoplo.init(num_cpus=4, namespace="mine")
    """
    refuse_unknown(unknown, _INIT_OPTIONS, "init")

    def begin() -> Context:
        global _context
        if _core.is_initialized():
            if ignore_reinit_error and _context is not None:
                return _context
            if ignore_reinit_error:
                return Context(_core.runtime_context())
            raise RuntimeError(
                "hoplo.init() was called already, or a task calls it: call hoplo.shutdown() first, "
                "or pass ignore_reinit_error=True to go on with what runs"
            )
        if logging_level is not None:
            import logging

            logging.getLogger("hoplo").setLevel(logging_level)
        config = _config(
            address or os.environ.get("HOPLO_ADDRESS") or "local",
            num_cpus=num_cpus,
            num_gpus=num_gpus,
            memory=memory,
            resources=resources,
            labels=labels,
            object_store_memory=object_store_memory,
            namespace=namespace,
            log_to_driver=log_to_driver,
            runtime_env=runtime_env,
            task_events=enable_task_events,
            temp_dir=_temp_dir,
            token_file=_token_file,
        )
        _context = Context(_core.init(config))
        atexit.unregister(shutdown)
        atexit.register(shutdown)
        return _context

    return _turns.take(begin)


def _config(
    address: Any,
    *,
    num_cpus: Any,
    num_gpus: Any,
    memory: Any,
    resources: Any,
    labels: Any,
    object_store_memory: Any,
    namespace: Any,
    log_to_driver: Any,
    runtime_env: Mapping[str, Any] | None,
    task_events: Any,
    temp_dir: Any,
    token_file: Any,
) -> InitConfig:
    """What `init` was given, checked."""
    place = _options.text("address", address)
    joined: str | None = None
    head = None if os.path.exists(place) else _HEAD_ADDRESS.fullmatch(place)
    if head is None and _is_address(place):
        raise ValueError(
            f"init(address={place!r}) is no address of a head: give HOST:PORT as `hoplo start "
            f"--head` shows it, 'auto', 'local', or the path of a session's folder"
        )
    if token_file is not None and head is None:
        raise ValueError("_token_file is for init(address='HOST:PORT'), which joins a cluster")
    if place != "local":
        joined = None if head else place
        of_a_new_node = {
            "num_cpus": num_cpus,
            "num_gpus": num_gpus,
            "memory": memory,
            "resources": resources or None,
            "labels": labels or None,
            "object_store_memory": object_store_memory,
        }
        given = [name for name, value in of_a_new_node.items() if value is not None]
        if given:
            raise ValueError(
                f"init(address={place!r}) joins a node that runs, and cannot change what it has: "
                f"leave out {', '.join(given)}; they are given to `hoplo start`"
            )

    remembers = _given(_options.boolean, "enable_task_events", task_events)
    if remembers is None:
        remembers = _switch("HOPLO_TASK_EVENTS")
    if not remembers:
        # So that workers know it, too.
        env = dict(runtime_env or {})
        env["env_vars"] = {**env.get("env_vars", {}), "HOPLO_TASK_EVENTS": "off"}
        runtime_env = env

    named = _given(_options.custom_resources, "resources", resources) or {}
    folder = _current_folder()
    return InitConfig(
        address=joined,
        cluster=head and head[1],
        token_file=_given(_options.path, "_token_file", token_file),
        num_cpus=_given(_options.quantity, "num_cpus", num_cpus),
        num_gpus=_given(_options.whole_gpus, "num_gpus", num_gpus),
        memory=_given(_options.memory_bytes, "memory", memory),
        resources={**({} if joined or head else own_resources), **named},
        labels=_given(_options.string_map, "labels", labels) or {},
        object_store_memory=_given(_store_bytes, "object_store_memory", object_store_memory),
        namespace=_given(_options.text, "namespace", namespace),
        log_to_driver=_given(_options.boolean, "log_to_driver", log_to_driver) is not False,
        folds_output=_switch("HOPLO_FOLD_OUTPUT"),
        runtime_env=_runtime_env.normalized(runtime_env),
        temp_dir=_given(_options.path, "_temp_dir", temp_dir),
        daemon_program=_daemon_program(),
        python=sys.executable,
        sys_path=_import_paths(),
        cwd=None if folder is None else _texts.sent(folder),
        argv0=(sys.argv[0] if sys.argv else "").encode(errors="replace").decode(),
        preload=tuple(name for name in _WORTH_PRELOADING if name in sys.modules),
        python_version=_texts.PYTHON,
        locality=_switch("HOPLO_LOCALITY"),
        task_events=remembers,
    )


def _switch(variable: str) -> bool:
    """An environment variable that switches something off."""
    value = os.environ.get(variable, "on")
    if value not in ("on", "off"):
        raise ValueError(f"the environment variable {variable} is {value!r}: set it to on or off")
    return value == "on"


_ONE_ADDRESS = r"(?:\[[0-9A-Fa-f:.]+\]|[^\s/:,\[\]]+):[0-9]{1,5}"
_HEAD_ADDRESS = re.compile(rf"(?:hoplo://)?({_ONE_ADDRESS}(?:,{_ONE_ADDRESS})*)")


def _is_address(place: str) -> bool:
    """Of another machine, in some form."""
    return ":" in place and "/" not in place.partition("://")[0] and not os.path.exists(place)


own_resources: dict[str, float] = {}
"""What a node that `init` starts has besides: programs written for Ray look for some names."""


def initialize_once() -> None:
    """Called by the Rust side when the API is used before `init`."""
    if _core.is_initialized():
        return
    if getattr(_thread, "begins_no_session", False):
        raise RuntimeError("hoplo was shut down, and this thread begins no new session")
    init(ignore_reinit_error=True)


_thread = threading.local()


def begin_no_session_here() -> None:
    """What this thread calls after `shutdown` fails; it would begin a session nobody asked for."""
    _thread.begins_no_session = True


def shutdown() -> None:
    """Ends this program's session: its workers, objects and actors go.

    The node ends, too, if `init` started it. A node that `init` joined stays, and so do detached
    actors there. Does nothing when there is no session. `init` may be called again afterwards.
    Arrays that `get` gave stay as they are, and keep their memory in the store of such a node.

    >>> hoplo.shutdown()
    >>> hoplo.is_initialized()
    False
    """

    def end() -> None:
        global _context
        _context = None
        _core.shutdown()

    with contextlib.suppress(_InTurnError):
        _turns.take(end)


def is_initialized() -> bool:
    """Whether this process has a session: after `init`, and in tasks and actors.

    >>> with hoplo.init():
    ...     hoplo.is_initialized()
    True
    """
    return _core.is_initialized()


_INIT_OPTIONS = (
    "address",
    "num_cpus",
    "num_gpus",
    "memory",
    "resources",
    "labels",
    "object_store_memory",
    "namespace",
    "ignore_reinit_error",
    "log_to_driver",
    "runtime_env",
    "logging_level",
    "_temp_dir",
    "_token_file",
)
_WORTH_PRELOADING = ("numpy",)


def _given(check: Callable[[str, Any], Any], name: str, value: Any) -> Any:
    return None if value is None else check(name, value)


def _store_bytes(name: str, value: Any) -> int:
    if isinstance(value, float):  # such as 2e9
        value = int(_options.memory_bytes(name, value))
    return int(_options.integer(1 << 20, "in bytes")(name, value))


def _current_folder() -> str | None:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None


def _import_paths() -> tuple[str, ...]:
    """Where this program imports from, for its workers, which may run elsewhere."""
    here = _current_folder()
    entries = (entry for entry in sys.path if isinstance(entry, str))
    if here is None:  # deleted: nothing can be imported from it
        return tuple(_texts.sent(entry) for entry in entries if os.path.isabs(entry))
    return tuple(_texts.sent(os.path.normpath(os.path.join(here, entry))) for entry in entries)


def _daemon_program() -> str:
    """The `hoplo` program of this installation, else the first in PATH, else just its name."""
    if sys.prefix != sys.base_prefix:  # a virtual environment: no need of slow imports
        program = os.path.join(sys.prefix, "bin", "hoplo")
        if os.access(program, os.X_OK):
            return program
    import shutil
    import sysconfig

    folders = (sysconfig.get_path("scripts"), os.path.dirname(sys.executable))
    user_scripts = sysconfig.get_path("scripts", f"{os.name}_user")
    for folder in (*folders, user_scripts):
        program = os.path.join(folder, "hoplo")
        if os.access(program, os.X_OK):
            return program
    return shutil.which("hoplo") or "hoplo"


# ------------------------------------------------------------------------------- tasks, actors


class Decorator(Protocol):
    """What `remote` gives when it is given options alone."""

    @overload
    def __call__(self, target: _C, /) -> TypedActorClass[_C]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, target: Callable[..., Never], /) -> _core.RemoteFunction: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, target: Callable[_P, Iterator[_T] | AsyncIterator[_T]], /
    ) -> _core.RemoteFunction[_core.ObjectRefGenerator[_T], _P]: ...
    @overload
    def __call__(
        self, target: Callable[_P, _T], /
    ) -> _core.RemoteFunction[_core.ObjectRef[_T], _P]: ...


@overload
def remote(target: _C, /) -> TypedActorClass[_C]: ...  # type: ignore[overload-overlap]
@overload  # of mypy: what gives a type parameter, which would also match the next one
def remote(target: Callable[..., Never], /) -> _core.RemoteFunction: ...
@overload
def remote(  # type: ignore[overload-overlap]
    target: Callable[_P, Iterator[_T] | AsyncIterator[_T]], /
) -> _core.RemoteFunction[_core.ObjectRefGenerator[_T], _P]: ...
@overload
def remote(target: Callable[_P, _T], /) -> _core.RemoteFunction[_core.ObjectRef[_T], _P]: ...
@overload
def remote(*, num_returns: int | str, **options: Unpack[ForBoth]) -> Callable[[Any], Any]: ...
@overload
def remote(**options: Unpack[ForBoth]) -> Decorator: ...
def remote(*targets: Any, **options: Any) -> Any:
    """Makes a remote function of a function, or an actor class of a class.

    Written as `@hoplo.remote`, or with options as `@hoplo.remote(num_cpus=2)`. For tasks these are
    `num_cpus`, `num_gpus`, `memory` (bytes), `resources`, `num_returns`, `max_retries`,
    `retry_exceptions`, `max_calls`, `name`, `runtime_env`, `scheduling_strategy`, `label_selector`,
    `fallback_strategy`, `accelerator_type`. For actors they are the resources, `runtime_env` and
    the last four as well, and `name`, `namespace`, `get_if_exists`, `lifetime`, `max_restarts`,
    `max_task_retries`, `max_concurrency`, `concurrency_groups`, `max_pending_calls`,
    `checkpoint_every`, `checkpoint_interval_s`.

    Raises TypeError for an option that does not exist, TypeError or ValueError for a wrong value,
    and ValueError for an `async def` function.

    >>> @hoplo.remote
    ... def square(x):
    ...     return x * x
    >>> hoplo.get(square.remote(4))
    16
    """
    if targets and (options or len(targets) > 1):
        raise TypeError(
            "hoplo.remote takes a function or class and nothing else, or options by name: "
            "@hoplo.remote, or @hoplo.remote(num_cpus=2)"
        )
    if targets:
        return _make(targets[0], {})
    if not options:
        raise TypeError("write @hoplo.remote without brackets, or with options between them")
    # What gets decorated is not known yet, but a name that neither kind has is wrong now.
    refuse_unknown(options, {**_options._TASK, **_options._ACTOR}, "hoplo.remote")
    return lambda target: _make(target, options)


def _make(target: Any, options: Mapping[str, Any]) -> Any:
    if isinstance(target, type):
        return _make_actor_class(target, options)
    if isinstance(target, _core.RemoteFunction | ActorClass):
        raise TypeError(f"{target.__name__} is remote already; change options with .options()")
    if callable(target) and hasattr(target, "__name__"):
        return _make_remote_function(target, options)
    raise TypeError(
        f"hoplo.remote takes a function or a class, not {_described(target)}; wrap it in a def"
        if callable(target)
        else f"hoplo.remote takes a function or a class, not {_described(target)}; "
        f"options go by name, as in @hoplo.remote(num_cpus=2)"
    )


def kill(actor: ActorProxy[Any], *, no_restart: bool = True) -> None:
    """Ends an actor's process now, in the middle of what it does.

    Calls that run or wait raise ActorDiedError. With `no_restart=False` the actor starts again if
    it has `max_restarts` left, and calls made after this wait for that. To let it finish the calls
    made before, drop all its handles, or call `actor.__hoplo_terminate__.remote()`.

    >>> counter = Counter.remote()
    >>> hoplo.kill(counter)
    >>> hoplo.get(counter.add.remote())
    Traceback (most recent call last):
    hoplo.exceptions.ActorDiedError: Counter (actor:...) was killed by hoplo.kill()
    """
    if not isinstance(actor, _core.ActorHandle):
        hint = "; use hoplo.cancel for tasks" if _is_ref(actor) else ""
        raise TypeError(f"kill takes an actor's handle, not {_described(actor)}{hint}")
    _core.kill(actor, bool(no_restart))


def cancel(
    ref: _core.ObjectRef[Any] | _core.ObjectRefGenerator[Any],
    *,
    force: bool = False,
    recursive: bool = True,
) -> None:
    """Cancels the task that makes `ref`; `get` on its results raises TaskCancelledError.

    A task that has not started never runs. One that runs gets a KeyboardInterrupt; a call of an
    `async def` method is cancelled at its next `await`. For a task that has ended nothing changes.
    `force=True` ends the worker process: ValueError for a method of an actor. `recursive=True` also
    cancels the tasks that the task called.

    >>> ref = square.options(resources={"rare": 1}).remote(3)
    >>> hoplo.cancel(ref)
    >>> hoplo.get(ref)
    Traceback (most recent call last):
    hoplo.exceptions.TaskCancelledError: task:... of square was cancelled
    """
    if isinstance(ref, _core.ActorHandle):
        raise TypeError("cancel takes the ref of a task; use hoplo.kill for an actor")
    if not _is_ref(ref):
        raise not_a_ref(ref, "cancel")
    from ._collectives import chosen_by

    _core.cancel(ref, bool(force), bool(recursive))
    if (choice := chosen_by(ref)) is not None:
        _core.cancel(choice, bool(force), bool(recursive))


def get_actor(name: str, namespace: str | None = None) -> _core.ActorHandle:
    """The handle of the actor of that name in `namespace`, or in this job's own.

    Raises ValueError when there is no such actor, with names that are spelled like it. Raises
    ActorDiedError when it was lost with an earlier head, and ActorUnavailableError when nobody said
    within 15 s who has the name, as while the cluster's head is away: the actor may be alive.

    >>> counter = Counter.options(name="visits").remote()
    >>> hoplo.get(hoplo.get_actor("visits").add.remote())
    1
    """
    _options.text("name", name)
    if isinstance(name, str):
        _options.sendable("name", name)
    return _core.get_actor(name, _given(_options.text, "namespace", namespace))


# ------------------------------------------------------------------------------- objects


def wait(
    refs: Sequence[_T],
    *,
    num_returns: int = 1,
    timeout: float | None = None,
    fetch_local: bool = True,
) -> tuple[list[_T], list[_T]]:
    """Waits until `num_returns` of `refs` are ready, or until `timeout` seconds have passed.

    Returns two lists, both in the order of `refs`: the ready ones, `num_returns` at most, and the
    others. A ref whose task failed is ready. A generator of refs is ready when its next ref is, or
    when it has ended. Raises ValueError for a ref that is given twice. An object is ready when it
    is on this node: its bytes are fetched if they are elsewhere. With `fetch_local=False` nothing
    is fetched, and it is ready as soon as some node has it.

    >>> ready, waiting = hoplo.wait([square.remote(i) for i in range(4)], num_returns=2)
    >>> len(ready), len(waiting)
    (2, 2)
    """
    if _is_ref(refs):
        raise TypeError("wait takes a list of refs; write hoplo.wait([ref])")
    if not isinstance(refs, list | tuple):
        raise TypeError(f"wait takes a list of refs, not {_described(refs)}")
    if not refs:
        return [], []
    if type(num_returns) is not int:
        num_returns = _options.whole("num_returns", num_returns)
    if not 1 <= num_returns <= len(refs):
        raise ValueError(
            f"num_returns must be from 1 to the number of refs, {len(refs)}, not {num_returns}"
        )
    # It refuses what is no ref, and doubles: a look at each here would cost more than the wait.
    return _core.wait(refs, num_returns, seconds(timeout), bool(fetch_local))


def empty(shape: int | tuple[int, ...], dtype: Any = float) -> np.ndarray[Any, Any]:
    """A numpy array in the memory of the object store, so that `put` of it copies nothing.

    `shape` and `dtype` are those of `numpy.empty`, and as there the values are arbitrary. Fill the
    array, then `put` it or return it. Do not write to it afterwards: others read the same memory.

    Raises TypeError for a dtype with Python objects, ObjectStoreFullError when there is no room.

    >>> frame = hoplo.empty((1080, 1920, 3), "uint8")
    >>> frame[:] = 0
    >>> ref = hoplo.put(frame)
    """
    import numpy as np

    kind = np.dtype(dtype)
    if kind.hasobject:
        raise TypeError(f"empty needs a dtype of plain data, not {kind}")
    dimensions = (shape,) if isinstance(shape, int) else tuple(shape)
    nbytes = kind.itemsize
    for length in dimensions:
        if length < 0:
            raise ValueError(f"empty needs lengths of 0 or more, not {shape}")
        nbytes *= int(length)
    if nbytes == 0:
        return np.empty(dimensions, kind)
    initialize_once()
    memory: Any = _core.allocate(nbytes)
    return np.ndarray(dimensions, kind, buffer=memory)


# ------------------------------------------------------------------------------- what there is


def nodes() -> list[dict[str, Any]]:
    """The nodes of the cluster, a dict for each: those that live, then the last 100 that died.

    Its keys: NodeID, Alive, NodeManagerAddress, NodeManagerHostname, Resources, Labels (as
    `init` or `hoplo start` was given them), session_dir, and pid (of the daemon).

    >>> [node["Alive"] for node in hoplo.nodes()]
    [True]
    """
    return _query_list("nodes")


def cluster_resources() -> dict[str, float]:
    """The resources of all nodes of the cluster together, by name; memory in bytes.

    >>> with hoplo.init(num_cpus=2, resources={"license": 1}):
    ...     total = hoplo.cluster_resources()
    >>> total["CPU"], total["license"]
    (2.0, 1.0)
    """
    return _query_map("cluster_resources")


def available_resources() -> dict[str, float]:
    """The part of `cluster_resources()` that no task or actor holds now.

    A resource of which nothing is left is missing. Each node of the cluster is asked: one that does
    not answer within a second is left out, and named on stderr.

    >>> with hoplo.init(num_cpus=2):
    ...     hoplo.available_resources()["CPU"]
    2.0
    """
    return _query_map("available_resources")


def get_gpu_ids() -> list[int]:
    """The ids of the GPUs that the current task or actor may use; in a driver, of all GPUs.

    CUDA_VISIBLE_DEVICES names the same devices.

    >>> @hoplo.remote(num_gpus=1)
    ... def mine():
    ...     return hoplo.get_gpu_ids()
    >>> with hoplo.init(num_gpus=2):
    ...     len(hoplo.get(mine.remote()))
    1
    """
    return _core.gpu_ids()


def get_runtime_context() -> RuntimeContext:
    """Where this code runs: ids of its job, node, task and actor, its resources and names.

    >>> with hoplo.init(namespace="mine"):
    ...     context = hoplo.get_runtime_context()
    ...     context.namespace, context.worker_mode
    ('mine', 'driver')
    """
    from .runtime_context import RuntimeContext

    return RuntimeContext()


def timeline(filename: str | os.PathLike[str] | None = None) -> list[dict[str, Any]] | None:
    """The tasks that ran lately, as Chrome trace events: a list of dicts, times in microseconds.

    Each node remembers about the last 30,000 of a job's, also when their driver has ended; see
    `hoplo.util.state`.

    With `filename` they are written to that file as JSON, and None is returned. Open the file in
    chrome://tracing or ui.perfetto.dev.

    >>> hoplo.get(square.remote(3))
    9
    >>> "square" in [event["name"] for event in hoplo.timeline()]
    True
    """
    import json

    initialize_once()
    events = _trace(_query_list("timeline"))
    if filename is None:
        return events
    with open(filename, "w") as file:
        json.dump(events, file)
    return None


def _trace(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Chrome trace events of runs: a row for each process, times in microseconds."""
    rows = {process: row for row, process in enumerate(dict.fromkeys(r["process"] for r in runs))}
    names = [
        {"name": "thread_name", "ph": "M", "pid": 0, "tid": row, "args": {"name": process}}
        for process, row in rows.items()
    ]
    spans = [
        {
            "name": run["name"],
            "cat": "task",
            "ph": "X",
            "ts": run["started_ns"] / 1000,
            "dur": run["ran_ns"] / 1000,
            "pid": 0,
            "tid": rows[run["process"]],
            "args": {"task": run["task"], "failed": run["failed"]},
        }
        for run in sorted(runs, key=lambda run: run["started_ns"])
    ]
    return names + spans


def _query_list(kind: str) -> list[dict[str, Any]]:
    return _parsed(kind)  # type: ignore[no-any-return]


def _query_map(kind: str) -> dict[str, float]:
    return _parsed(kind)  # type: ignore[no-any-return]


def _parsed(kind: str) -> Any:
    import json

    if not _core.is_initialized():
        raise RuntimeError(f"hoplo.{kind}() needs a session: call hoplo.init() first")
    return json.loads(_core.query(kind))


# ------------------------------------------------------------------------------- messages


def not_a_ref(value: object, where: str) -> TypeError:
    """What to raise when `where` (get, wait, cancel) was given `value` in place of a ref."""
    if isinstance(value, _core.ActorHandle):
        hint = "that is an actor; call one of its methods with .remote() for a ref"
    elif isinstance(value, _core.RemoteFunction | _core.ActorMethod):
        hint = f"call it first: {value.__name__}.remote()"
    elif isinstance(value, _core.ObjectRefGenerator):
        hint = "that is a generator of refs; take them with next() or a for loop"
    elif where == "get" and isinstance(value, list | tuple | set | frozenset | dict):
        hint = "give it one ref, or a list of them"
    else:
        hint = "it takes what .remote() and hoplo.put() return"
    return TypeError(f"{where} was given {_described(value)}, which is not an ObjectRef: {hint}")


def seconds(timeout: object) -> float | None:
    """A checked timeout: None waits for ever."""
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise TypeError(
            f"timeout must be a number of seconds or None, not {_options.shown(timeout)}"
        )
    if not timeout >= 0:
        raise ValueError(
            f"timeout must be 0 or more seconds, not {_options.shown(timeout)}; None waits for ever"
        )
    return _options.to_float(timeout)


def _is_ref(value: object) -> bool:
    return isinstance(value, _core.ObjectRef | _core.ObjectRefGenerator)


def _described(value: object) -> str:
    try:
        text = repr(value)
    except Exception:
        text = "..."
    short = text if len(text) <= 40 else f"{text[:37]}..."
    return f"{short} ({type(value).__name__})"
