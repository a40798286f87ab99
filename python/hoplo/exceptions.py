"""Every error that hoplo raises.

    HoploError
    |-- TaskError                    the code of a task or method raised
    |-- GetTimeoutError              (also TimeoutError) `get` gave up waiting
    |-- TaskCancelledError           `cancel` reached the task
    |-- WorkerCrashedError           the process that ran the task ended
    |   `-- OutOfMemoryError         ... because it used more memory than it may
    |-- ActorError
    |   |-- ActorDiedError           the actor is gone for good
    |   |-- ActorUnavailableError    the actor cannot be reached now, and may come back
    |   |-- ActorUnschedulableError  the node that it had to live on is no more
    |   `-- ActorPlacementGroupRemoved   the placement group that it was to live in is no more
    |-- TaskUnschedulableError       the node that it had to run on is no more
    |-- TaskPlacementGroupRemoved    the placement group that the task was to run in is no more
    |-- PendingCallsLimitExceeded    as many calls are unfinished as `max_pending_calls` allows
    |-- ObjectLostError              no copy of the object is left
    |   `-- OwnerDiedError           ... because its caller ended before it was made
    |-- ObjectStoreFullError         neither memory nor disk has room for the object
    |   `-- OutOfDiskError           ... because the disk refused to take spilled objects
    |-- RuntimeEnvSetupError         the environment that a task asked for cannot be made
    |-- WorkerStartError             no worker could be started, whatever its environment
    |-- NodeDiedError                the node's daemon ended
    |-- CollectiveGroupError         a rank of a group of `hoplo.util.collective` is gone
    |-- CollectiveTimeoutError       (also TimeoutError) a rank of a group did not come in time
    |-- ConnectionFailedError        (also ConnectionError) `init` found no daemon to join
    |-- SerializationError           (also TypeError) a value cannot be pickled
    `-- DeserializationError         a value cannot be unpickled here

An error raised by the user's code comes back as an instance of both `TaskError` and the user's own
type, so that `except ValueError` works across processes as it does inside one.

>>> hoplo.get(square.remote(None))
Traceback (most recent call last):
hoplo.exceptions.TaskError(TypeError): square raised TypeError in worker process ...
"""

from __future__ import annotations

__all__ = [
    "ActorDiedError",
    "ActorError",
    "ActorPlacementGroupRemoved",
    "ActorUnavailableError",
    "ActorUnschedulableError",
    "CollectiveGroupError",
    "CollectiveTimeoutError",
    "ConnectionFailedError",
    "DeserializationError",
    "GetTimeoutError",
    "HoploError",
    "NodeDiedError",
    "ObjectLostError",
    "ObjectStoreFullError",
    "OutOfDiskError",
    "OutOfMemoryError",
    "OwnerDiedError",
    "PendingCallsLimitExceeded",
    "RemoteErrorStandIn",
    "RuntimeEnvSetupError",
    "SerializationError",
    "TaskCancelledError",
    "TaskError",
    "TaskPlacementGroupRemoved",
    "TaskUnschedulableError",
    "WorkerCrashedError",
    "WorkerStartError",
]


class HoploError(Exception):
    """What every error of hoplo is an instance of.

    An error that `get` or `await` raises for a ref that failed has its ids as attributes, as
    hexadecimal text: `object_id` is `ref.hex()`, `task_id` is `ref.task_id()`. Otherwise they are
    None. `node_id` and `actor_id` of a TaskError say in which node and actor the code raised; in
    other errors they are None.

    >>> try:
    ...     hoplo.get(square.remote(None))
    ... except HoploError as error:
    ...     isinstance(error, TypeError)
    True
    """

    task_id: str | None = None
    actor_id: str | None = None
    object_id: str | None = None
    node_id: str | None = None


class TaskError(HoploError):
    """The code of a task or an actor's method raised an exception.

    Raised by `get` and `await` for each result of the call, and for results of calls that took one
    of them as an argument. It is also an instance of the type that was raised, unless its `cause`
    is a RemoteErrorStandIn. The text holds the worker's traceback: fix what it shows. With the
    option `retry_exceptions` hoplo runs the task again after such an error.

    >>> try:
    ...     hoplo.get(square.remote(None))
    ... except TaskError as error:
    ...     type(error.cause), error.function_name
    (<class 'TypeError'>, 'square')
    """

    cause: BaseException
    """The exception as it was raised; also `__cause__`."""
    function_name: str = ""
    """The function or method that raised, such as `Counter.add`, or the name that
    `.options(name=...)` gave the call."""
    pid: int = 0
    """The worker's process."""
    traceback_text: str = ""
    """The worker's traceback."""

    _payload: bytes
    _text: str = ""

    def __str__(self) -> str:
        return self._text or super().__str__()

    def __reduce__(self) -> tuple[object, ...]:
        from ._errors import make_task_error

        if "_payload" not in self.__dict__:
            return (type(self), self.args)
        return (make_task_error, (self._payload,))


class RemoteErrorStandIn(Exception):
    """Takes the place of an exception that could not be pickled, or not be unpickled here.

    It is the `cause` of a `TaskError`. Give the exception's class an `__init__` that accepts its
    own `args`, or a `__reduce__`, or make its module importable, to get the exception itself.

    >>> print(RemoteErrorStandIn("shop.OutOfStock", "no apples left"))
    shop.OutOfStock: no apples left
    """

    def __init__(self, type_name: str, text: str) -> None:
        super().__init__(type_name, text)
        self.type_name = type_name
        """The type's full name, such as `package.module.Name`."""
        self.text = text
        """What `str()` of the exception gave."""

    def __str__(self) -> str:
        return f"{self.type_name}: {self.text}"


class GetTimeoutError(HoploError, TimeoutError):
    """`get` was given a `timeout`, and not every result was there in time.

    The text says what each missing result waits for. Nothing is cancelled: call `get` again, or
    `cancel` the ref.

    >>> hoplo.get(square.options(resources={"rare": 1}).remote(3), timeout=0.5)
    Traceback (most recent call last):
    hoplo.exceptions.GetTimeoutError: the result was not there in time...
    """


class TaskCancelledError(HoploError):
    """The task was cancelled by `cancel`, before or while it ran.

    Raised by `get` on its results. It is expected where your code cancels; elsewhere find the code
    that did.
    """


class WorkerCrashedError(HoploError):
    """The worker process ended while it ran the task, and the task's retries are used up.

    The text gives the signal or the exit code and the last lines that the worker printed. A
    segmentation fault or `os._exit` in the code or in one of its libraries is the usual reason. A
    task that may safely run again can be given more `max_retries`.
    """


class OutOfMemoryError(WorkerCrashedError):
    """The worker was ended because it used more than its `memory=`, or the machine had none left.

    Raise the task's `memory=`, make the task smaller, or let fewer run at once by giving each more
    `num_cpus` or `memory`.
    """


class ActorError(HoploError):
    """What every error about an actor's life is an instance of."""


class ActorDiedError(ActorError):
    """The actor is gone and does not come back.

    Its constructor raised, its process ended with no `max_restarts` left, it was killed, it left by
    `exit_actor`, or its creator's job ended. The text says which. Create another one, or create
    it with `max_restarts`.
    """


class ActorUnavailableError(ActorError):
    """The actor's process died during the call, or its restarts fail; the actor may come back.

    The call may have run, or not. If it may safely run twice, call again, or create the actor with
    `max_task_retries`, so that hoplo does.

    `get_actor`, and the creation of an actor with a name, raise it when nobody said within 15 s who
    has the name: the cluster's head does not answer. An actor of that name may be alive.
    """


class ActorUnschedulableError(ActorError):
    """The actor's `NodeAffinitySchedulingStrategy` names a node that is dead, or was never there.

    Name another one, or give `soft=True`. An actor that asks for too much stays pending.
    """


class TaskUnschedulableError(HoploError):
    """The task's `NodeAffinitySchedulingStrategy` names a node that is dead, or was never there.

    Name another one, or give `soft=True`. A task that asks for too much stays pending.
    """


class TaskPlacementGroupRemoved(HoploError):
    """The placement group that the task was to run in was removed, or ended with its job.

    Make another group, or run the task outside of groups.
    """


class ActorPlacementGroupRemoved(ActorError):
    """The placement group that the actor was to live in was removed, or ended with its job.

    Make another group, or create the actor outside of groups.
    """


class PendingCallsLimitExceeded(HoploError):
    """This process has as many unfinished calls at the actor as its `max_pending_calls` allows.

    Raised by `.remote()`; the call was not made. Wait for earlier results first.
    """


class ObjectLostError(HoploError):
    """No copy of the object is left, or the copy on disk cannot be read.

    It went because hoplo knew of no ref to it: it does not count refs that a program pickles by
    itself. Keep a ref as long as you need the object, and pass refs in arguments and results.
    """


class OwnerDiedError(ObjectLostError):
    """The process that had called for the result ended before the result was there.

    If it was the result of a task, another process that holds a ref runs the task again. The call
    of an actor's method is not run again. Call again, from a process that lives long enough.
    """


class ObjectStoreFullError(HoploError):
    """Neither the memory of the object store nor the disk has room for the object.

    The text says which processes hold how much. Drop refs and arrays that you no longer need, or
    give `init` more `object_store_memory`. Objects that are stored already stay readable.
    """


class OutOfDiskError(ObjectStoreFullError):
    """The store's memory is full, and the disk takes no more, mostly because it is full as well.

    The text gives the system's reason. Nothing is lost: free disk space and try again, or choose a
    folder on another disk with `init(_temp_dir=...)`.
    """


class RuntimeEnvSetupError(HoploError):
    """The `runtime_env` of the task or actor cannot be made.

    The text says why, for example that its `working_dir` is gone, or what `pip install` said last.
    """


class WorkerStartError(HoploError):
    """No worker could be started for the task or actor: three starts in a row failed.

    The text says what became of the last one, with the lines that it printed: the machine has no
    memory or no process left for it, or it ended before it was ready.
    """


class NodeDiedError(HoploError):
    """The node's daemon ended, and with it the workers and objects of that node.

    In a driver: call `shutdown`, then `init`, to start afresh.
    """


class CollectiveGroupError(HoploError):
    """A rank of a group of `hoplo.util.collective` is gone: its process died, or it left.

    Or it is out of step: it left out a call. Then `ranks` is empty, and `shrink` helps.

    Every operation of the group raises it in all other ranks, until these have called `shrink`, to
    go on without the rank, or `rejoin`, to go on with a new process in its place. The text says
    which ranks, and why; they are also in `ranks`. If the process died in which the group meets,
    `ranks` is empty, and the same two help.

    >>> try:
    ...     collective.allreduce(gradient)  # doctest: +SKIP
    ... except CollectiveGroupError as error:
    ...     rank, size = collective.shrink()
    """

    def __init__(self, text: str, ranks: tuple[int, ...] = ()) -> None:
        super().__init__(text)
        self.ranks = tuple(ranks)
        """In ascending order, as they were when it happened."""

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (*self.args, self.ranks))


class CollectiveTimeoutError(HoploError, TimeoutError):
    """An operation of a group of `hoplo.util.collective` did not end within `timeout`.

    The text says which ranks did not come. Their processes live; those that died raise
    CollectiveGroupError. The operation has failed for all ranks, also for those that come late, so
    the group may be used further. If all came, and the data did not in time, the text says so: it
    has failed in this rank only.
    """


class ConnectionFailedError(HoploError, ConnectionError):
    """`init` could not start a daemon, or found none at the `address` it was told to join."""


class SerializationError(HoploError, TypeError):
    """An argument, a result or a captured variable cannot be pickled.

    The text names the path to the part that cannot, such as `args[1].model.lock`. Create such a
    thing (a lock, a socket, an open file) inside the task or in the actor's constructor, or leave
    it out in `__getstate__`. `hoplo.util.inspect_serializability` shows all such parts.
    """


class DeserializationError(HoploError):
    """A value arrived and cannot be unpickled in this process.

    Mostly because a module can be imported where the value was made, and not here: see
    `runtime_env={"py_modules": [...]}`. `__cause__` is the error that unpickling raised.
    """
