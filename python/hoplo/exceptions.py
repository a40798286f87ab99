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
    |   `-- ActorUnschedulableError  no node can ever hold the actor
    |-- TaskUnschedulableError       no node can ever run the task
    |-- PendingCallsLimitExceeded    the actor's `max_pending_calls` are waiting
    |-- ObjectLostError              no copy is left, and nothing can make it again
    |   `-- OwnerDiedError           ... because the process that owned it ended
    |-- ObjectStoreFullError         neither memory nor disk has room for the object
    |   `-- OutOfDiskError           ... because the disk refused to take spilled objects
    |-- RuntimeEnvSetupError         the environment that a task asked for cannot be made
    |-- NodeDiedError                the node's daemon ended
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
    "ActorUnavailableError",
    "ActorUnschedulableError",
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
    "TaskUnschedulableError",
    "WorkerCrashedError",
]


class HoploError(Exception):
    """What every error of hoplo is an instance of.

    The ids that an error is about are attributes where they are known: `task_id`, `actor_id`,
    `object_id`, `node_id` (hexadecimal text, else None).

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

    Raised by `get` and `await` for each result of the call, and for the results of the calls that
    took one of them as an argument. It is also an instance of the type that was raised. The text
    holds the worker's traceback: fix what it shows. To run the task again by itself after such an
    error, set `retry_exceptions`.

    >>> try:
    ...     hoplo.get(square.remote(None))
    ... except TaskError as error:
    ...     type(error.cause), error.function_name
    (<class 'TypeError'>, 'square')
    """

    cause: BaseException
    """The exception as it was raised; also `__cause__`."""
    function_name: str = ""
    """The function or method that raised, such as `Counter.add`."""
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

    Raised by `get` on its results. Expected where you cancel; elsewhere, look for who did.
    """


class WorkerCrashedError(HoploError):
    """The worker process ended while it ran the task, and the task's retries are used up.

    The text gives the signal or the exit code and the last lines that the worker printed. A
    segmentation fault or `os._exit` in the code or in one of its libraries is the usual reason. A
    task that may safely run again can be given more `max_retries`.
    """


class OutOfMemoryError(WorkerCrashedError):
    """The worker was stopped because it used more memory than its task or this machine may use.

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
    """The call did not get through, because the actor is restarting or cannot be reached.

    It may or may not have run. Call again, or create the actor with `max_task_retries` so that
    hoplo does; only for methods that may safely run twice.
    """


class ActorUnschedulableError(ActorError):
    """The actor's `scheduling_strategy` names a node that cannot hold it, ever.

    Not raised yet: on one machine an actor that asks for too much stays pending, with a warning.
    """


class TaskUnschedulableError(HoploError):
    """The task's `scheduling_strategy` names a node that cannot run it, ever.

    Not raised yet: on one machine a task that asks for too much stays pending, with a warning.
    """


class PendingCallsLimitExceeded(HoploError):
    """This caller has as many calls waiting at the actor as its `max_pending_calls` allows.

    Raised by `.remote()`; the call was not made. Wait for earlier results first.
    """


class ObjectLostError(HoploError):
    """No copy of the object is left, and the task that made it cannot be run again.

    An object from `put` has no task that could make it again: it lives as long as one copy does.
    """


class OwnerDiedError(ObjectLostError):
    """The process that had called for the result ended before it was there.

    Other processes with a ref run the task again in its stead, where they can; the call of an
    actor's method they cannot. Call again, from a process that lives as long as it is needed.
    """


class ObjectStoreFullError(HoploError):
    """The object fits neither in the object store nor on the disk it spills to.

    The text says who holds what. Drop refs and arrays that you no longer need, or give `init` more
    `object_store_memory`. It belongs to the call: what is stored already stays readable.
    """


class OutOfDiskError(ObjectStoreFullError):
    """The store's memory is full, and the disk refuses to take objects, mostly for want of space.

    The text gives the system's reason. Nothing is lost: free some disk and try again, or move the
    spill folder with `init(_temp_dir=...)`.
    """


class RuntimeEnvSetupError(HoploError):
    """The `runtime_env` of the task or actor cannot be made, as when its `working_dir` is gone."""


class NodeDiedError(HoploError):
    """The node's daemon ended, and with it the workers and objects of that node.

    In a driver: call `shutdown`, then `init`, to start afresh.
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

    Mostly a module that is importable where the value was made and is not here: see
    `runtime_env={"py_modules": [...]}`. Its cause is the error that unpickling raised.
    """
