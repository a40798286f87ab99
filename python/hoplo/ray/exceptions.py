"""Errors under Ray's names: they are hoplo's own classes, so `except` works with either name.

    RayError        HoploError
    RayTaskError    TaskError
    RayActorError   ActorError
    the others      the same name, where hoplo has such an error

What hoplo never raises has a class all the same, so that programs that name it run.
"""

from __future__ import annotations

import pickle
import traceback

from hoplo import _serialization
from hoplo.exceptions import (
    ActorDiedError,
    ActorError,
    ActorPlacementGroupRemoved,
    ActorUnavailableError,
    ActorUnschedulableError,
    GetTimeoutError,
    HoploError,
    NodeDiedError,
    ObjectLostError,
    ObjectStoreFullError,
    OutOfDiskError,
    OutOfMemoryError,
    OwnerDiedError,
    PendingCallsLimitExceeded,
    RuntimeEnvSetupError,
    SerializationError,
    TaskCancelledError,
    TaskError,
    TaskPlacementGroupRemoved,
    TaskUnschedulableError,
    WorkerCrashedError,
)

from ._absent import absent

__all__ = [
    "ActorAlreadyExistsError",
    "ActorDiedError",
    "ActorHandleNotFoundError",
    "ActorPlacementGroupRemoved",
    "ActorUnavailableError",
    "ActorUnschedulableError",
    "AsyncioActorExit",
    "AuthenticationError",
    "CrossLanguageError",
    "GetTimeoutError",
    "LocalRayletDiedError",
    "NodeDiedError",
    "ObjectFetchTimedOutError",
    "ObjectFreedError",
    "ObjectLostError",
    "ObjectReconstructionFailedError",
    "ObjectRefStreamEndOfStreamError",
    "ObjectStoreFullError",
    "OufOfBandObjectRefSerializationException",
    "OutOfDiskError",
    "OutOfMemoryError",
    "OwnerDiedError",
    "PendingCallsLimitExceeded",
    "PlasmaObjectNotAvailable",
    "RayActorError",
    "RayCgraphCapacityExceeded",
    "RayChannelError",
    "RayChannelTimeoutError",
    "RayDirectTransportError",
    "RayError",
    "RaySystemError",
    "RayTaskError",
    "ReferenceCountingAssertionError",
    "RpcError",
    "RuntimeEnvSetupError",
    "StreamingGeneratorReplayInconsistentError",
    "TaskCancelledError",
    "TaskPlacementGroupRemoved",
    "TaskUnschedulableError",
    "UnserializableException",
    "UserCodeException",
    "WorkerCrashedError",
]

RayError = HoploError
RayTaskError = TaskError
UserCodeException = TaskError
RayActorError = ActorError
LocalRayletDiedError = NodeDiedError
OufOfBandObjectRefSerializationException = SerializationError

ActorAlreadyExistsError = ValueError
"""What creating an actor raises whose name is taken."""
ActorHandleNotFoundError = ValueError
"""What `get_actor` raises for a name that no actor has."""


class RaySystemError(HoploError):
    """Never raised by hoplo."""


class RayChannelError(RaySystemError):
    """Never raised by hoplo: it has no channels."""


class RayChannelTimeoutError(RayChannelError, TimeoutError):
    """Never raised by hoplo: it has no channels."""


class RayCgraphCapacityExceeded(RaySystemError):
    """Never raised by hoplo: it has no compiled graphs."""


class RayDirectTransportError(RaySystemError):
    """Never raised by hoplo: arrays go through the object store."""


class StreamingGeneratorReplayInconsistentError(RaySystemError):
    """Never raised by hoplo."""


class AsyncioActorExit(HoploError):
    """Never raised by hoplo: `exit_actor` raises a BaseException of its own."""


class AuthenticationError(HoploError):
    """Never raised by hoplo: who has no token cannot join (ConnectionFailedError)."""


class CrossLanguageError(HoploError):
    """Never raised by hoplo: it runs Python only."""


class ObjectFetchTimedOutError(ObjectLostError):
    """Never raised by hoplo: who fetches an object waits for it."""


class ObjectFreedError(ObjectLostError):
    """Never raised by hoplo: an object is freed when nothing refers to it."""


class ObjectReconstructionFailedError(ObjectLostError):
    """Never raised by hoplo: a finished object is not made again (ObjectLostError)."""


class ReferenceCountingAssertionError(ObjectLostError, AssertionError):
    """Never raised by hoplo."""


class ObjectRefStreamEndOfStreamError(HoploError):
    """Never raised by hoplo: streams end by StopIteration."""


class PlasmaObjectNotAvailable(HoploError):
    """Never raised by hoplo."""


class RpcError(HoploError):
    """Never raised by hoplo."""


class UnserializableException(HoploError):
    """What `from_bytes` gives for an error that cannot be read. `get` raises none.

    There a RemoteErrorStandIn is the `cause` of the TaskError.
    """


def to_bytes(error: HoploError) -> bytes:
    """`error.to_bytes()`: what `from_bytes` makes an error of, in this or another process."""
    text = "".join(traceback.format_exception(error))
    try:
        pickled = _serialization.dumps_in_band(error)
    except Exception:
        pickled = b""
    return pickle.dumps((pickled, text))


def from_bytes(data: bytes) -> HoploError:
    """`RayError.from_bytes(data)`: the error. One that cannot be read here has its text alone.

    >>> try:
    ...     hoplo.get(square.remote(None))
    ... except RayError as error:
    ...     copy = RayError.from_bytes(error.to_bytes())
    >>> isinstance(copy, TypeError)
    True
    """
    pickled, text = pickle.loads(data)
    try:
        error: HoploError = pickle.loads(pickled)
        return error
    except Exception:
        return UnserializableException(text)


RAY_EXCEPTION_TYPES = [
    kind for kind in vars().copy().values() if isinstance(kind, type) and kind is not ValueError
]
"""All of them, for `except`."""

__getattr__ = absent(__name__, __all__)
__path__: list[str] = []  # so that `from ray.exceptions import X` asks the finder, which explains
