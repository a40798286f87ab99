"""What the Rust module gives to Python, and what it calls there.

Everything here is implemented in `crates/py`. In the other direction the Rust side calls:

    hoplo._api.initialize_once()                         the API is used before init
    hoplo._api.not_a_ref(value, where) -> TypeError      what to raise for get(3), cancel(3), ...
    hoplo._errors.encode_error(error, function, pid)     a user's exception, to bytes
    hoplo._errors.make_task_error(payload)               ... and back
    hoplo._errors.system_error(code, message, details, cause)
    hoplo._errors.is_retryable(error, retry_exceptions)
    hoplo._serialization.dumps_by_name(value) -> (bytes, buffers) | None
    hoplo._serialization.dumps_by_value(value) -> (bytes, buffers)
    hoplo._serialization.dumps_definition(target) -> bytes
    hoplo._serialization.check_definition_size(target, name, size)   of one that is not small
    hoplo._serialization.dumps_stored_definition(ref) -> bytes   of a pickle that is an object
    hoplo._serialization.serialization_error(value, name, error)
    hoplo._signature.check(function, args, kwargs, name) raises TypeError when a call of a remote
                                                         function cannot fit
    hoplo._signature.check_shape(shape, args, kwargs, name)   ... of a method: MethodInfo.shape
    hoplo.runtime_env.merged(outer, inner)               canonical JSON of nested environments
    hoplo.actor.no_such_method(class_name, name, known) -> AttributeError
    hoplo.remote_function.with_options(function, given)  `.options(**given)` of a RemoteFunction
    hoplo.actor.with_method_options(method, given)       `.options(**given)` of an ActorMethod
    hoplo._worker.*                                      see that module
"""

import sys
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import Future
from types import FrameType
from typing import Any, Generic, Never, NoReturn, Self, final, overload, type_check_only

from typing_extensions import ParamSpec, TypeVar, Unpack

from ._api import InitConfig
from ._option_types import ForTasks
from ._options import ActorOptions, MethodOptions, TaskOptions
from .actor import MethodInfo

_T = TypeVar("_T")
_Given = TypeVar("_Given", default=Any)
"""What `.remote()` gives,"""
_P = ParamSpec("_P", default=...)
"""and what it takes."""
_Instance = TypeVar("_Instance", default=Any, covariant=True)

__version__: str
RUNTIME_ENV_BYTES_MAX: int
"""What a `runtime_env` may take as canonical JSON."""
PACKAGE_BYTES_MAX: int
PACKAGE_BYTES_WARNED: int
PACKAGE_FILES_MAX: int
PACKAGES_BYTES_MAX: int
NAME_PATIENCE: float
"""Seconds for which who looks something up by its name waits for the cluster's head."""
INLINE_BYTES_MAX: int
"""Values up to this size travel in messages; larger ones lie in the object store."""
FAILURE_PAYLOAD_BYTES_MAX: int

# ------------------------------------------------------------------------------- objects

@final
class ObjectRef(Generic[_T]):
    """The name of an object that exists, or that will exist once its task has run.

    `hoplo.get(ref)` and `await ref` give the value, or raise what the task raised. Refs of the same
    object are equal. A ref may be passed to tasks and actors, returned from them, and stored inside
    other objects; the object lives as long as any process holds a ref of it, or a living object
    contains one. `ObjectRef[int]` is for annotations.

    >>> ref = square.remote(3)
    >>> hoplo.get(ref), ref.future().result()
    (9, 9)
    """

    def hex(self) -> str:
        """The id, as hexadecimal text of 40 characters."""

    def binary(self) -> bytes:
        """The id, as 20 bytes."""

    def task_id(self) -> str:
        """The id of the task that makes the object; of a `put`, the task that called it."""

    def future(self) -> Future[_T]:
        """A `concurrent.futures.Future` of the value. Cancelling it does not cancel the task."""

    def __await__(self) -> Generator[Any, None, _T]: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __copy__(self) -> Self: ...
    def __deepcopy__(self, _memo: Any) -> Self: ...
    def __reduce__(self) -> tuple[Any, ...]: ...
    def __class_getitem__(cls, key: Any) -> Any: ...

@final
class ObjectRefGenerator(Generic[_T]):
    """The refs of the values that a generator task or method yields, in their order.

    `next()` and `for`, or `async for`, wait until the next value is there and give its ref. If the
    generator raised, the last ref holds the error: `get` raises it. `hoplo.wait` takes a generator
    in place of a ref: it is ready when the next ref is there or the generator has ended. Dropping
    it cancels the task. It cannot be sent to another process; its refs can.

    >>> @hoplo.remote
    ... def letters(word):
    ...     yield from word
    >>> [hoplo.get(ref) for ref in letters.remote("abc")]
    ['a', 'b', 'c']
    """

    def __iter__(self) -> Iterator[ObjectRef[_T]]: ...
    def __next__(self) -> ObjectRef[_T]: ...
    def __aiter__(self) -> AsyncIterator[ObjectRef[_T]]: ...
    def __anext__(self) -> Awaitable[ObjectRef[_T]]: ...
    def completed(self) -> ObjectRef[None]:
        """A ref that is ready when the generator has ended; `get` of it raises what ended it."""

    def next_ready(self) -> bool:
        """Whether `next()` would give a ref without waiting."""

    def is_finished(self) -> bool:
        """Whether the generator has ended and all of its refs were taken."""

    def task_id(self) -> str:
        """The id of the task that yields the values."""

    def __hash__(self) -> int: ...
    def __class_getitem__(cls, key: Any) -> Any: ...

@final
class StoreBuffer:
    """Writable memory in the object store, until `put` seals it; supports the buffer protocol.

    `put` of an array or buffer that lies wholly inside one copies nothing; from then on the memory
    must not be written. Dropped without a `put`, it is freed. 64-byte aligned.
    """

    @property
    def nbytes(self) -> int: ...
    def __len__(self) -> int: ...
    if sys.version_info >= (3, 12):
        def __buffer__(self, flags: int, /) -> memoryview: ...

def allocate(nbytes: int) -> StoreBuffer:
    """Memory in the store for `hoplo.empty`. Raises ObjectStoreFullError."""

@overload
def get(refs: ObjectRef[_T], *, timeout: float | None = None) -> _T: ...
@overload
def get(refs: list[ObjectRef[_T]], *, timeout: float | None = None) -> list[_T]: ...
@overload
def get(refs: Any, *, timeout: float | None = None) -> Any:
    """The value of a ref, or the list of the values of a list of refs. Waits until they are there.

    If a task raised, `get` raises an error that is an instance of both `TaskError` and the type
    that the task raised; of a list as soon as one of its refs has failed. After `timeout` seconds
    it raises `GetTimeoutError`, whose text says what each missing result waits for. Arrays of 4 KiB
    and more are read-only; those in the object store are not copied.

    >>> hoplo.get([hoplo.put(1), hoplo.put(2)])
    [1, 2]
    """

def put(value: _T, *, copies: int = 1) -> ObjectRef[_T]:
    """Stores `value` as an object that all processes can read, and returns its ref.

    In a cluster, `copies` is the number of nodes that are to have it. The others fetch it after
    `put` has returned, and keep it as long as anybody has a ref: so it outlives the node of the
    process that put it. With fewer nodes there are fewer copies, until more join; for each copy
    that is lost with a node another one is made. `hoplo.experimental.wait_for_copies` waits until
    there are so many.

    Raises TypeError for a ref, SerializationError for a value that cannot be pickled, and
    ObjectStoreFullError when neither memory nor disk has room for it.

    >>> table = hoplo.put({"a": 1})
    >>> hoplo.get(table)
    {'a': 1}
    """

def wait(
    refs: Sequence[_T], num_returns: int, timeout: float | None, fetch_local: bool
) -> tuple[list[_T], list[_T]]:
    """Checked arguments of `hoplo.wait`. Both lists keep the order of `refs`."""

@final
class Folded:
    """A value that lies in the store, and is no object yet.

    A task that returns it gives it without a copy.
    """

    def put(self) -> ObjectRef[Any]:
        """A ref of the value. ValueError if it is an object already."""

def fold_members(
    op: str,
    refs: list[ObjectRef[Any]],
    for_all: bool,
    come_again: Callable[[list[int]], bool] | None = None,
) -> Folded | tuple[str, bool, list[int]]:
    """What all of these, which lie in stores, give together.

    Or why nodes cannot make it, whether another try may help, and where in `refs` those are that no
    node has any more. `op` is "sum", "prod", "min", "max" or "mean"; nodes make no mean of whole
    numbers, nor of float16 and bfloat16. Waits until it is made, on its way to this node. With
    `for_all` the task that runs returns it first, and nodes that have members are to have it, too.

    Where nodes die and the others can go on, `come_again` is called with the places of members that
    are lost, and says whether these are there again. Without it, or if not, the reduce is given up.
    """

def fold_as_they_come(
    op: str, count: int, batches: Iterator[tuple[list[ObjectRef[Any]], bool]]
) -> Folded | None:
    """What `count` members give together that come one after the other, at nodes of their own.

    `batches` gives refs whose members lie in stores, and whether others come. The task that runs
    returns the result first, and nodes that have members are to have it, too. None if nodes do not
    make it, or if `batches` ends before the last member came.
    """

def assemble(
    items: list[Any], parts: list[tuple[int, int, ObjectRef[Any], int, int]]
) -> Folded | None: ...
def places_of(ref: ObjectRef[Any]) -> list[tuple[int, int]] | None: ...
def this_node() -> int: ...
def is_stored(ref: ObjectRef[Any]) -> bool:
    """Whether this process knows that it has a value, which lies in the store of some node."""

def is_elsewhere(ref: ObjectRef[Any]) -> bool:
    """Whether this process knows that it has a value, which lies in the store of another node."""

def cancel(target: Any, force: bool, recursive: bool) -> None:
    """Checked arguments of `hoplo.cancel`: an ObjectRef or ObjectRefGenerator."""

# ------------------------------------------------------------------------------- tasks

@type_check_only
class _Remote(Generic[_Given, _P]):
    """What `.remote()` takes and gives."""

    # A ref stands for its value. Type checkers can be told so of positions, and of no name.
    @overload
    def remote(self, *args: _P.args, **kwargs: _P.kwargs) -> _Given: ...
    @overload
    def remote(self, _1: ObjectRef[Any], /, *args: Any, **kwargs: Any) -> _Given: ...
    @overload
    def remote(self, _1: Any, _2: ObjectRef[Any], /, *args: Any, **kwargs: Any) -> _Given: ...
    @overload
    def remote(
        self, _1: Any, _2: Any, _3: ObjectRef[Any], /, *args: Any, **kwargs: Any
    ) -> _Given: ...
    @overload
    def remote(
        self, _1: Any, _2: Any, _3: Any, _4: ObjectRef[Any], /, *args: Any, **kwargs: Any
    ) -> _Given: ...
    @overload
    def remote(
        self, _1: Any, _2: Any, _3: Any, _4: Any, _5: ObjectRef[Any], /, *args: Any, **kwargs: Any
    ) -> _Given: ...
    @overload
    def remote(
        self,
        _1: Any,
        _2: Any,
        _3: Any,
        _4: Any,
        _5: Any,
        _6: ObjectRef[Any],
        /,
        *args: Any,
        **kwargs: Any,
    ) -> _Given:
        """Calls the function in a worker, and returns at once.

        Returns an ObjectRef; with `num_returns` above 1 a list of them, with 0 None; for a
        generator function an ObjectRefGenerator. An argument that is an ObjectRef is replaced by
        its value before the function runs.
        """

@final
class RemoteFunction(_Remote[_Given, _P]):
    """A function that runs in workers: `f.remote(...)` calls it. Made by `hoplo.remote`.

    `f.options(...)` changes options, `f.map(items)` calls it for many items, and `f.__wrapped__` is
    the plain function. It can be sent to other processes.
    """

    def __new__(
        cls, function: Callable[..., Any], options: TaskOptions, arity: tuple[int, int]
    ) -> RemoteFunction[_Given, _P]:
        """All copies made by `.options()` share the export, which the first call makes.

        `arity` is (least, most) positional arguments with which a call without keywords certainly
        fits. A most of -1 is any number; (1, 0) is never certain. Outside of it
        `hoplo._signature.check` decides.
        """

    @overload
    def options(
        self, *, num_returns: int | str, **options: Unpack[ForTasks]
    ) -> RemoteFunction[Any, _P]: ...
    @overload
    def options(self, **options: Unpack[ForTasks]) -> RemoteFunction[_Given, _P]:
        """The same function with some options changed: those of `hoplo.remote`."""

    def map(
        self, *iterables: Iterable[Any], chunk_size: int | None = None, refs: bool = False
    ) -> Iterator[Any]:
        """Yields the function's values for the items, in order; like the builtin `map`.

        One task runs `chunk_size` items; by default as many as take about 5 ms, by measured time.
        Several iterables give several arguments. The first error is raised where its value would be
        yielded. An iterable may be endless: only as many items are taken as keep all workers busy.
        `refs=True` yields an ObjectRef for each item in place of its value.

        >>> list(square.map([1, 2, 3]))
        [1, 4, 9]
        """

    def _with(self, options: TaskOptions) -> RemoteFunction[_Given, _P]:
        """A copy with other options that shares the export."""

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raises TypeError: `f()` runs nothing; call `f.remote()`."""

    def __reduce__(self) -> tuple[Any, ...]: ...
    @property
    def _function(self) -> Callable[..., Any]: ...
    @property
    def _options(self) -> TaskOptions: ...
    @property
    def _arity(self) -> tuple[int, int]: ...
    @property
    def __wrapped__(self) -> Callable[..., Any]: ...
    @property
    def __name__(self) -> str: ...
    @property
    def __qualname__(self) -> str: ...

# ------------------------------------------------------------------------------- actors

@final
class ActorTemplate:
    """A class to create actors of: exported once, by content hash, at the first `create`."""

    def __new__(
        cls,
        actor_class: type,
        class_name: str,
        methods: Sequence[MethodInfo],
        is_async: bool,
    ) -> ActorTemplate: ...
    def create(
        self, options: ActorOptions, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> ActorHandle:
        """Starts an actor and returns at once. The arguments have been checked.

        With `get_if_exists`, the handle of the actor that has the name already. A name that is
        taken without it: ValueError. `max_concurrency` 0: 1000 when `is_async`, else 1.
        """

@type_check_only
class _Handle(Generic[_Instance]):
    """What of an `ActorProxy` is a handle: type checkers know its methods of the class alone."""

    def __getattribute__(self, name: str, /) -> Never: ...

@final
class ActorHandle(_Handle[_Instance]):
    """Stands for an actor: `handle.method.remote(...)` calls a method of it.

    A handle can be passed to tasks and actors, returned, stored and pickled; all copies stand for
    the same actor. When no process holds a handle any more, the actor ends, after the calls that
    were made before. A detached actor stays until `hoplo.kill`.

    >>> counter = Counter.remote()
    >>> hoplo.get([counter.add.remote(), counter.add.remote(10)])
    [1, 11]
    """

    @property
    def _actor_id(self) -> str:
        """The id, as hexadecimal text."""

    @property
    def _class_name(self) -> str: ...
    def __getattribute__(self, name: str, /) -> Any: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __dir__(self) -> list[str]: ...
    def __copy__(self) -> Self: ...
    def __deepcopy__(self, _memo: Any) -> Self: ...
    def __reduce__(self) -> tuple[Any, ...]: ...
    def __class_getitem__(cls, key: Any) -> Any: ...

@final
class ActorMethod:
    """A method of an actor, to be called."""

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the method in the actor, and returns at once: what `RemoteFunction.remote` does."""

    def options(self, **options: Any) -> ActorMethod:
        """The same method with some options changed: those of `hoplo.method`."""

    def _with(self, options: MethodOptions) -> ActorMethod:
        """A copy with these options in place of the method's own, where they are not None."""

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raises TypeError: call `actor.method.remote()`."""

    @property
    def __name__(self) -> str: ...

def kill(actor: ActorHandle[Any], no_restart: bool) -> None:
    """Checked arguments of `hoplo.kill`."""

def get_actor(name: str, namespace: str | None) -> ActorHandle:
    """Checked arguments of `hoplo.get_actor`; None: the job's own namespace."""

# ------------------------------------------------------------------------------- the session

def init(config: InitConfig) -> dict[str, Any]:
    """Starts or joins a node.

    Gives address, node_id, job_id, session_dir, namespace, node_ip_address.

    Raises ConnectionFailedError. Not called when `is_initialized()`.
    """

def shutdown() -> None:
    """Leaves the session, and ends what `init` started. Does nothing when there is none."""

def is_initialized() -> bool: ...
def gpu_ids() -> list[int]:
    """The GPUs granted to the current task or actor; in a driver, all of the machine's."""

def runtime_context() -> dict[str, Any]:
    """Where this code runs.

    Keys: job_id, node_id, worker_id, worker_mode ("driver" or "worker"), namespace, task_id,
    task_name, task_function_name, actor_id, actor_name (None or hexadecimal or plain text),
    attempt (int), reconstructed (bool), assigned_resources (dict), runtime_env (JSON text or None),
    placement_group_id (None or hexadecimal), captures (whether children run in that group),
    address, session_dir. In an async actor the current call is the one that
    `hoplo._worker.current_call` holds.
    """

def is_cancelled() -> bool:
    """Whether the task or call that this code belongs to has been asked to stop.

    Raises RuntimeError in a driver and in an async actor.
    """

def current_actor() -> ActorHandle:
    """A handle of the actor that this code runs in. Raises RuntimeError elsewhere."""

def query(kind: str, arg: str | None = None, missing: list[str] | None = None) -> str:
    """JSON text from the daemon.

    Nodes that did not answer are named in `missing`, a sentence each; on stderr if it is None.

    kind: nodes, cluster_resources, available_resources, tasks, history (runs that have ended; of
    each job at most as many as `arg` says), actors (those of dead nodes: at most so many, or the
    one with this id), jobs, objects, locations (of the objects whose hexadecimal ids are in `arg`),
    workers, past_processes, placement_groups, logs, control, why, timeline, summary, status.
    "nodes" has the fields of `hoplo.nodes`; "timeline" is a list of runs: name, task, process,
    started_ns, ran_ns, failed; "summary" is of this job and holds tasks_finished,
    method_calls_finished, objects_stored, bytes_stored.
    """

def create_group(
    name: str,
    detached: bool,
    strategy: str,
    bundles: list[tuple[dict[str, float], dict[str, str]]],
) -> tuple[str, str | None]:
    """Makes a placement group: its id, and why no node could ever hold it, or None."""

def wait_group(group: str, timeout: float | None = None) -> str | None:
    """Waits until it is created or removed: "CREATED", "REMOVED", or None when the time is over."""

def group_ready(group: str, value: _T) -> ObjectRef[_T] | None:
    """A ref that is ready, with this value, once the group is there; None: it is too large."""

def remove_group(group: str) -> None: ...
def kv_put(key: bytes, value: bytes, overwrite: bool = True) -> bool:
    """Stores a value in the control store; True when the key was new."""

def kv_get(key: bytes) -> bytes | None: ...
def kv_delete(key: bytes) -> bool: ...
def kv_keys(prefix: bytes) -> list[bytes]: ...

# ------------------------------------------------------------------------------- workers

def wake_main_thread_by(reader: int) -> None: ...
def retire() -> None:
    """This worker takes no more calls, and ends when those that it has begun have."""

def note_print(is_open: bool) -> None:
    """A worker is about to print; `is_open`: a text that does not end with a line."""

def adopt_orphans() -> None:
    """Descendants whose parents end become children of this process, from now on."""

def _packs() -> bool:
    """Whether environments that leave this process must name packages."""

def _session_number() -> int:
    """Distinguishes the sessions of this process."""

def _export_package(content: memoryview) -> str:
    """Makes a package known to the processes of the job; its hash, by which they fetch it."""

def _fetch_package(hash: str) -> bytes | memoryview:
    """The bytes of a package."""

def worker_main(fd: int, runtime_env: str | None = None) -> int:
    """Serves tasks from the daemon at the other end of `fd` until it closes; the exit status.

    `runtime_env` is what this process was made with, as canonical JSON: tasks made here inherit it.

    Runs in the main thread. Sync tasks, and methods of actors that run one call at a time, it calls
    itself; others go through `hoplo._worker.ActorRuntime`.
    """

def ask_for_checkpoint() -> bool:
    """`checkpoint()`: one is made when the call that runs has ended. False: of no such actor."""

def leave_actor() -> None:
    """`exit_actor()`, before it raises: this process ends, whatever becomes of the exception."""

def interrupted() -> bool:
    """Whether the task that the main thread runs now has been asked to stop; true only once."""

@final
class Turn:
    """Where the event loop of an async actor waits."""

    def prepare(
        self,
        event_loop: Any,
        limits: dict[str | None, int],
        starters: Mapping[str, Callable[[Any, str], None]],
        method_of: Callable[[str], Callable[..., Any]],
        stream: Callable[[ActorCall, Any], Coroutine[Any, Any, None]],
    ) -> None:
        """The loop whose turns these are, and how it runs calls; once in a process.

        `limits` are those of the concurrency groups; None is the default one. Calls of the others
        are started in loops of their own by `starters`: of a coroutine and its name. `stream`
        sends the items of what a streaming call's method returned.
        """

    def take(self, timeout: float | None, serves: bool) -> bool:
        """Waits for calls, nudges, or `timeout` seconds, and starts the calls.

        Stops the loop at the actor's end. Unless it `serves`, calls are left alone. True: look at
        the files.
        """

    def cancel_waiting(self, task_id: str) -> bool:
        """Fails a call that waits for its group; False if none of that id does."""

    def nudge(self) -> None:
        """From any thread: the loop has something to do."""

    def watch(self, fd: int) -> None:
        """Nudges whenever something happens in the epoll set `fd`."""

@final
class _Awaiter:
    """What a coroutine suspends on that awaits a ref, or the next one of a stream."""

    @property
    def object_id(self) -> str | None:
        """The ref's `hex()`; None: of a stream."""

    def __await__(self) -> Self: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Any: ...

@final
class CallRun:
    """The coroutine of one call of an async actor. Never raises: the call gets every error."""

    @property
    def task_id(self) -> str: ...
    @property
    def cr_frame(self) -> FrameType | None:
        """Where the user's coroutine waits, for `Task.get_stack`."""

    @property
    def cr_await(self) -> Any:
        """The user's coroutine, while it waits."""

    @property
    def name(self) -> str: ...
    @property
    def began(self) -> float:
        """Seconds by `time.monotonic`; 0: not yet."""

    def __await__(self) -> Self: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Any: ...
    def send(self, value: Any) -> Any: ...
    def throw(self, error: Any, value: Any = None, traceback: Any = None) -> Any: ...
    def close(self) -> None: ...

@final
class ActorCall:
    """One method call that waits in an actor's process to be run by `ActorRuntime`.

    Exactly one of `run`, `finish`, `fail` ends it. Its top-level refs are already local when it is
    handed over.
    """

    @property
    def task_id(self) -> str: ...
    @property
    def method(self) -> str: ...
    @property
    def group(self) -> str | None:
        """The concurrency group asked for at the call, else by the method; None: the default."""

    def run(self, method: Callable[..., Any]) -> None:
        """Runs the whole call in this thread: arguments, generator, result, errors.

        Never raises.
        """

    def item(self, value: Any) -> bool:
        """Stores the next value of a streaming call; False when the consumer wants a pause."""

    def when_room(self, callback: Callable[[], None]) -> None:
        """Calls `callback` once, from any thread, when the consumer of a stream wants more."""

    def finish(self, value: Any) -> None:
        """Replies with the result; of a streaming call, with its end (value None). Never raises.

        A value that cannot be pickled makes the reply a SerializationError.
        """

    def fail(self, error: BaseException) -> None:
        """Replies with the error, encoded as the user's own. Never raises.

        But TaskCancelledError goes as itself, and `hoplo.actor.ActorExit` ends the process: calls
        that run reply first, calls that wait get ActorDiedError.
        """

# ------------------------------------------------------------------------------- named by others

def _holds_ref(items: list[Any]) -> bool:
    """Whether one of the items is an ObjectRef."""

def _restore_ref(id: bytes) -> ObjectRef[Any]:
    """What a pickled ref calls when it is read."""

def _restore_actor(id: bytes, interface: bytes) -> ActorHandle:
    """What a pickled handle calls when it is read."""

def _restore_function(
    key: bytes, name: str, options: TaskOptions, arity: tuple[int, int], names: Sequence[Any]
) -> RemoteFunction:
    """What a pickled remote function calls when it is read, by the key of its export."""

def _before_fork() -> None:
    """Runs before every `os.fork`."""

def _after_fork_in_parent() -> None:
    """Runs after every `os.fork`: waits until the child has arrays of its own."""

def _after_fork_in_child() -> None:
    """Runs in the child of every `os.fork`: what the parent holds is not the child's."""

def _try_pickling(value: Any) -> None:
    """Raises what pickling the value raises. Nothing is sent, so no ref inside is kept."""

def _encode(value: Any) -> bytes:
    """The bytes of a value, for tests of the codec."""

def _decode(bytes: bytes) -> Any:
    """The value of such bytes."""
