"""What a process knows of the groups that it belongs to, and how it talks with their rendezvous.

A membership belongs to who made it: an actor, a task, or the driver of a session. A task that ends
leaves its groups. What a thread of it that lives on made is given up when it is found.

Data goes like this. Small tensors travel inside the call and its answer. Of large ones the call has
a ref (`hoplo.put`: one copy into shared memory), and the answer has refs of what this rank gets.
While these come, the process waits for the ref of `broken`, too: so it hears of a death at once,
whatever it waits for. A timeout bounds all of that. Who gives up while data comes raises it alone:
others may have what they get, and the operation counts as done.

Arguments are checked before the rendezvous is asked. What is refused is told to it, since the
others wait for this rank (`refusing`).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import hoplo
from hoplo import _core
from hoplo._worker import when_the_task_ends
from hoplo.exceptions import (
    ActorError,
    CollectiveGroupError,
    CollectiveTimeoutError,
    GetTimeoutError,
    HoploError,
)

from ._meeting import Call
from ._rendezvous import Member, Rendezvous, View

if TYPE_CHECKING:
    from ._tensors import Array

NAMESPACE = "hoplo.util.collective"

SMALL_BYTES_MAX = 16 << 10
"""Of a tensor that travels inside messages."""

SMALL_BYTES_OF_ALL_MAX = 64 << 10
"""The same, times the ranks: what one of them may get."""

MEMBERS_CALLS_MAX = 10_000
"""Calls that wait at a rendezvous, two for each member and one for what it does."""

ANSWER_SECONDS = 10
"""More than its timeout: so long a member waits for what the rendezvous says of that."""

LATE_SHARE = 0.1
"""Of a timeout, and a second at the most: the time to find out what data waits for."""

ALARM_SECONDS = 2
"""Where data does not come, so long a member waits for the word that a rank is gone."""

_memberships: dict[str, Membership] = {}
_declared: dict[str, tuple[Any, Any]] = {}
"""Rendezvous that this driver has made for others: with the session, and kept alive by this."""
_lock = threading.Lock()


class Membership:
    """This process as a member of one group."""

    def __init__(self, name: str, timeout: float) -> None:
        self.name = name
        self.timeout = timeout
        """Seconds, of an operation that says nothing else."""
        self.owner = _owner()
        self.view: View | None = None
        context = _core.runtime_context()
        self._member = Member(uuid.uuid4().hex, _what(), os.getpid(), str(context["node_id"]))
        self._rendezvous: Any = None
        self._life: Any = None
        """A call that ends when this process no longer belongs: the rendezvous watches its ref."""
        self._broken: Any = None
        """A call that ends when the epoch is broken."""
        self._numbers: dict[Any, itertools.count[int]] = defaultdict(itertools.count)

    # ---- what it belongs to ----

    def join(self, rank: int, world_size: int, timeout: float) -> None:
        """Becomes a member; waits until all have."""

        def ask(rendezvous: Any, life: list[Any]) -> Any:
            return rendezvous.join.remote(self._member, life, rank, world_size, timeout)

        self._enter(self._ask_first(ask, timeout))

    def agree(self, kind: str, rank: int | None, timeout: float) -> View:
        """Waits until all that live want the same; then this is in the next epoch."""
        nodes = [str(node["NodeID"]) for node in hoplo.nodes() if node["Alive"]]
        asked = (rank, nodes, timeout)
        if self._rendezvous is not None:
            ask = self._rendezvous.agree.remote
            with contextlib.suppress(ActorError):
                ref = ask(kind, self._member, None, self.view, *asked)
                self._enter(_answer(ref, timeout, self.name))
                assert self.view is not None
                return self.view

        def ask_another(rendezvous: Any, life: list[Any]) -> Any:
            return rendezvous.agree.remote(kind, self._member, life, self.view, *asked)

        self._enter(self._ask_first(ask_another, timeout))
        assert self.view is not None
        return self.view

    def leave(self, why: str) -> None:
        """Tells the rendezvous, and waits until that knows it."""
        if self._rendezvous is not None:
            left = self._rendezvous.leave.remote(self._member.id, why)
            hoplo.wait([left], timeout=ANSWER_SECONDS)  # before the handle goes, and the actor
        self._rendezvous = self._life = self._broken = None

    def _ask_first(self, ask: Any, timeout: float) -> Any:
        """The answer of a rendezvous that this process comes to for the first time.

        One that is found by its name may be ending, or its node may be dead.
        """
        deadline = time.monotonic() + timeout
        while True:
            rendezvous = made_or_found(self.name)
            life = rendezvous.alive.remote(self._member.id)
            try:
                answer = _answer(ask(rendezvous, [life]), timeout, self.name)
            except ActorError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)  # its name is free in a moment
                continue
            self._rendezvous, self._life = rendezvous, life
            return answer

    def _enter(self, view: View) -> None:
        self.view = view
        self._numbers.clear()
        self._broken = self._rendezvous.broken.remote(view.epoch)

    # ---- operations ----

    def meet(self, call: Call, brings: list[Array], gets: list[Array], timeout: float) -> None:
        """Brings arrays to the meeting of all ranks, and writes what it gets into others."""
        self._meet(self._next(None), call, brings, gets, timeout)

    def meet_one(
        self,
        pair: tuple[int, int],
        call: Call,
        brings: list[Array],
        gets: list[Array],
        timeout: float,
    ) -> None:
        """The same for what one rank sends another one."""
        self._meet(self._next(pair), call, brings, gets, timeout)

    @contextlib.contextmanager
    def refusing(self, kind: str, pair: tuple[int, int] | None = None) -> Iterator[None]:
        """What is raised inside, before this rank comes to a meeting, is told to the others.

        Of a pair that cannot be, nobody waits for it.
        """
        assert self.view is not None
        try:
            yield
        except Exception as error:
            ranks = range(self.view.size)
            if pair and (pair[0] == pair[1] or any(rank not in ranks for rank in pair)):
                raise
            self._refuse(self._next(pair), Call(kind, root=pair and pair[0]), error)
            raise

    def _refuse(self, key: tuple[Any, ...], call: Call, error: Exception) -> None:
        assert self.view is not None
        call = call._replace(refused=f"{type(error).__name__}: {error}")
        told = self._rendezvous.meet.remote(self._member.id, self.view.epoch, key, call, [], 0.0)
        hoplo.wait([told], timeout=ANSWER_SECONDS)  # this process may end now

    def _next(self, pair: tuple[int, int] | None) -> tuple[Any, ...]:
        """The key of the next operation of all ranks, or of a pair."""
        if pair is None:
            return "all", next(self._numbers["all"])
        return "pair", *pair, next(self._numbers[pair])

    def _meet(
        self,
        key: tuple[Any, ...],
        call: Call,
        brings: list[Array],
        gets: list[Array],
        timeout: float,
    ) -> None:
        import numpy as np

        assert self.view is not None
        deadline = time.monotonic() + timeout
        try:
            pieces = [self._piece(array) for array in brings]
        except Exception as error:
            self._refuse(key, call, error)
            raise
        ask = self._rendezvous.meet.remote
        try:
            got = _answer(
                ask(self._member.id, self.view.epoch, key, call, pieces, timeout),
                timeout,
                self.name,
            )
        except ActorError as error:
            raise self._rendezvous_died(error) from None
        assert len(got) in (0, len(gets)), (call, got)
        if got and isinstance(got[0], hoplo.ObjectRef):
            try:
                got = self._fetched(got, deadline, min(1.0, LATE_SHARE * timeout))
            except GetTimeoutError as error:
                raise CollectiveTimeoutError(
                    f"{call.named(self.view.rank)} of group {self.name!r} did not end within "
                    f"{timeout:g} s in rank {self.view.rank}: all have called it, and what this "
                    f"rank gets has not come yet (others may have theirs, and the next call is the "
                    f"next operation): {error}"
                ) from None
        for array, value in zip(gets, got, strict=False):
            np.copyto(array, value)

    def _piece(self, array: Array) -> Any:
        import numpy as np

        assert self.view is not None
        plain = np.asarray(array)
        small = plain.nbytes <= SMALL_BYTES_MAX
        if small and plain.nbytes * self.view.size <= SMALL_BYTES_OF_ALL_MAX:
            return plain
        return hoplo.put(plain)

    def _fetched(self, refs: list[Any], deadline: float, grace: float) -> list[Any]:
        """Their values; CollectiveGroupError as soon as a rank is gone, unless all are there.

        After the deadline, GetTimeoutError: `grace` is for what it says.
        """
        waiting = list(dict.fromkeys(refs))
        while waiting and _until(deadline) > 0:
            ready, _ = hoplo.wait([*waiting, self._broken], num_returns=1, timeout=_until(deadline))
            waiting = [ref for ref in waiting if ref not in ready]
            if waiting and self._broken in ready:
                self._raise_if_broken(0)
        try:
            values: list[Any] = hoplo.get(refs, timeout=max(grace, _until(deadline)))
        except GetTimeoutError:
            raise
        except HoploError:
            self._raise_if_broken(ALARM_SECONDS)
            raise
        return values

    def _raise_if_broken(self, timeout: float) -> None:
        if not hoplo.wait([self._broken], timeout=timeout)[0]:
            return
        try:
            error = hoplo.get(self._broken)
        except ActorError as died:
            raise self._rendezvous_died(died) from None
        if error is not None:
            raise error

    def _rendezvous_died(self, error: ActorError) -> CollectiveGroupError:
        return CollectiveGroupError(
            f"the process in which the members of group {self.name!r} meet is gone: call "
            f"shrink({self.name!r}) or rejoin({self.name!r}) in all of them, which makes another "
            f"one ({error})"
        )


# ------------------------------------------------------------------------------- this process


def find(name: str) -> Membership | None:
    """The group that this actor, task or driver belongs to, if it does."""
    with _lock:
        membership = _memberships.get(name)
    if membership is None or membership.owner == _owner():
        return membership
    forget(name, membership, "ended")
    return None


def keep(membership: Membership) -> None:
    """From now on `find` finds it."""
    with _lock:
        _memberships[membership.name] = membership
    context = _core.runtime_context()
    is_task = context["actor_id"] is None and context["worker_mode"] != "driver"
    if is_task and threading.current_thread() is threading.main_thread():
        when_the_task_ends(lambda: forget(membership.name, membership, "ended"))


def forget(name: str, membership: Membership, why: str) -> None:
    """The process does not belong to the group any more."""
    with _lock:
        if _memberships.get(name) is not membership:
            return
        del _memberships[name]
    if membership.owner[0] == _owner()[0]:
        membership.leave(why)


def made_or_found(name: str) -> Any:
    """The rendezvous of that name, made if there is none."""
    rendezvous = hoplo.remote(Rendezvous).options(
        name=name,
        namespace=_namespace(),
        get_if_exists=True,
        num_cpus=0,
        max_concurrency=MEMBERS_CALLS_MAX,
        enable_task_events=False,
    )
    return rendezvous.remote(name)


def declare(name: str, world_size: int, ranks: dict[str, int], timeout: float) -> None:
    """Makes the rendezvous of a group whose members are these actors."""
    rendezvous = made_or_found(name)
    _answer(rendezvous.declare.remote(world_size, ranks), timeout, name)
    _declared[name] = (_core._session_number(), rendezvous)


def undeclare(name: str) -> bool:
    """Lets go what `declare` made. False if there was nothing."""
    return _declared.pop(name, None) is not None


def declared_place(name: str) -> tuple[int, int] | None:
    """World size and rank of this actor in a group that a driver declared."""
    actor_id = _core.runtime_context()["actor_id"]
    if actor_id is None:
        return None
    try:
        rendezvous = hoplo.get_actor(name, namespace=_namespace())
        ok, place = hoplo.get(rendezvous.place.remote(str(actor_id)), timeout=ANSWER_SECONDS)
    except (ValueError, ActorError):
        return None
    return place if ok else None


def _answer(ref: Any, timeout: float, name: str) -> Any:
    """What the rendezvous answers; raises the error that it answers with."""
    try:
        ok, value = hoplo.get(ref, timeout=timeout + ANSWER_SECONDS)
    except GetTimeoutError as error:
        raise CollectiveTimeoutError(
            f"the rendezvous of group {name!r} did not answer within {timeout:g} s: {error}"
        ) from None
    if not ok:
        raise value
    return value


def _until(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())


def _namespace() -> str:
    return f"{NAMESPACE}/{_core.runtime_context()['namespace']}"


def _owner() -> tuple[Any, ...]:
    """Who runs here: session, and the actor or the task."""
    context = _core.runtime_context()
    return _core._session_number(), context["actor_id"] or context["task_id"]


def _what() -> str:
    context = _core.runtime_context()
    if context["worker_mode"] == "driver":
        return "the driver"
    if context["actor_id"] is None:
        return f"task {context['task_name']}"
    name = context["actor_name"]
    said = (context["task_name"] or "").partition(".")[0]
    return f"actor {name or said or str(context['actor_id'])[:8]}"
