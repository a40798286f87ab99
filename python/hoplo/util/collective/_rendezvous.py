"""The rendezvous of a group: an actor in which its members meet. Messages go through it, data does
not: a tensor of more than 16 KiB stays where it is, and a ref of it is what is handed around.

It is a named actor in a namespace of its own, made by whoever asks first, and it ends when no
member is left that holds a handle of it. It decides four things.

    who belongs      empty --join--> forming --all have come--> open --a member is gone--> broken
                                                                  ^                          |
                                                                  +--- shrink or rejoin -----+
    who is gone      Each member makes a call of `alive`, which does not end while it belongs, and
                     gives the ref of that call. If its process dies, the ref fails within
                     milliseconds (its owner died). Nobody asks anybody whether he lives.
    what is called   Operations of all ranks are numbered by each member, and so are those of each
                     pair. Whoever comes with number n comes to the n-th meeting (`_meeting.py`).
    what goes on     `shrink` is agreed on when all that live have asked for it. `rejoin` is, when
                     besides the places of those that are gone have been taken again.

A call that a member refuses itself, for its arguments, comes too, and fails the operation for all.

A rank may leave out a call, so that its numbers are behind. What it calls then comes to an
operation that has timed out. If it is another operation than that, the rank has left that one out:
its numbers are put right, and nobody need know. If it is the same it may be late: it hears that the
operation is over, and its next call comes to the next one. A rank that was late, and then misses
the next operation though it had half the timeout for it, is out of step. Nobody can know by how
much, and to guess would mix tensors of different steps. So the epoch is broken, and `shrink` begins
another one, with all numbers at their start.

Each agreement begins an *epoch*. What a member says carries its epoch, so a late word of an old one
is an error and nothing else.

An answer is a pair: True with what was asked for, or False with the error that the member raises.
So what a method raises is a mistake of this module.

# Invariants
- RDV-1: a rank has one living member at most; ranks of an open epoch are 0 to size - 1.
- RDV-2: an operation fails for all that take part, or for none: also for those that come later.
- RDV-3: in a broken epoch nobody waits, but for an agreement.
- RDV-4: nothing is kept of a meeting when all have their answers.
- RDV-5: nobody waits in an operation for a rank that waits for an agreement.

If the process of the rendezvous dies itself, members hear so by their next answer. `shrink` or
`rejoin` makes another one, which takes over from what the first member that comes to it knows (its
View). Members whose node is dead are gone then; those that do not come in time are, too.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

import hoplo
from hoplo.exceptions import CollectiveGroupError, CollectiveTimeoutError, HoploError

from ._meeting import Call, Meeting, Pieces

Answer = tuple[bool, Any]

Key = tuple[Any, ...]
"""Of a meeting: ("all", n) or ("pair", from rank, to rank, n)."""


class Member(NamedTuple):
    """A process that belongs to a group."""

    id: str
    """Unique for each time that it joins."""
    what: str
    """Such as "actor Trainer"."""
    pid: int
    node_id: str

    def shown(self) -> str:
        return f"{self.what}, pid {self.pid} on node {self.node_id[:8]}"


class View(NamedTuple):
    """What a member knows of an epoch."""

    epoch: int
    rank: int
    size: int
    world_size: int
    """The size that the group was made with; `rejoin` brings it back to this."""
    members: tuple[Member, ...]
    """By rank."""


class _Forming(NamedTuple):
    member: Member
    answer: asyncio.Future[Answer]


class _Asked(NamedTuple):
    """A member that wants an agreement."""

    kind: str
    answer: asyncio.Future[Answer]


class _Met(NamedTuple):
    """A meeting, and what its participants wait for."""

    meeting: Meeting
    answers: dict[int, asyncio.Future[Answer]]


class _Missed(NamedTuple):
    """What a meeting that timed out was, and when that happened."""

    call: Call
    ranks: list[int]
    timeout: float
    at: float


class _Failed(NamedTuple):
    """A meeting that failed, kept for those that have still to come to it."""

    error: Exception
    to_come: set[int]
    missed: _Missed | None
    """None: it failed in another way, and is not over before all have heard so."""


class Rendezvous:
    """The actor. Its methods are called by `_member.py` only."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lives: dict[str, asyncio.Event] = {}
        """For each member that is watched: set when it no longer belongs."""
        self._watches: set[asyncio.Task[None]] = set()
        self._declared: tuple[int, dict[str, int]] | None = None
        """World size, and the rank of each actor by its id."""
        self._forget()

    def _forget(self) -> None:
        """There is no group."""
        self._epoch = 0
        self._size = self._world_size = 0
        self._ranks: dict[int, Member] = {}
        self._gone: dict[int, str] = {}
        """Why, for each rank of the epoch that no longer belongs."""
        self._left: set[int] = set()
        """Those of them that left in order."""
        self._unheard: dict[int, Member] = {}
        """Members that another rendezvous had, and that have not come to this one."""
        self._forming: dict[int, _Forming] = {}
        self._forming_size = 0
        self._meetings: dict[Key, _Met | _Failed] = {}
        self._start_numbers()
        self._broken: asyncio.Future[Exception] | None = None
        """Has its result when the epoch is broken. None: there is no epoch."""
        self._asked: dict[str, _Asked] = {}
        self._newcomers: dict[int, Member] = {}
        self._gave_up: set[int] = set()
        """Ranks that asked as others did that still wait, and whose timeout is over."""
        self._emptied = asyncio.Event()

    def _start_numbers(self) -> None:
        """All ranks are in step."""
        self._left_out: dict[Key, int] = defaultdict(int)
        """By rank and the key without its number: calls that the rank does not know it left out."""
        self._late: dict[Key, tuple[int, float]] = {}
        """By the same: the last operation that the rank came to too late, and when it heard so."""
        self._out_of_step: CollectiveGroupError | None = None

    # ---------------------------------------------------------------------------- lives

    async def alive(self, member_id: str) -> None:
        """Ends when the member no longer belongs to the group."""
        await self._lives.setdefault(member_id, asyncio.Event()).wait()
        self._lives.pop(member_id, None)

    def _watch(self, member: Member, life: Any) -> None:
        """`life`: the ref of the member's call of `alive`."""

        async def watched() -> None:
            try:
                await life
            except HoploError as error:
                self._on_death(member, _reason(error))

        watch = asyncio.ensure_future(watched())
        self._watches.add(watch)
        watch.add_done_callback(self._watches.discard)

    def _release(self, member_id: str) -> None:
        """The member's `alive` ends; if its process is dead, nobody hears that."""
        life = self._lives.get(member_id)
        if life is not None:
            life.set()

    def _on_death(self, member: Member, why: str) -> None:
        self._release(member.id)
        reason = f"{member.shown()}; {why}"
        for rank, forming in self._forming.items():
            if forming.member.id == member.id:
                text = f"rank {rank} died while group {self._name!r} was made ({reason})"
                self._fail_forming(CollectiveGroupError(text, (rank,)))
                return
        for rank, one in list(self._newcomers.items()):
            if one.id == member.id:
                del self._newcomers[rank]
                self._asked.pop(member.id, None)
        for rank, one in list(self._ranks.items()):
            if one.id == member.id:
                self._lose(rank, reason)

    def _lose(self, rank: int, why: str) -> None:
        member = self._ranks.pop(rank)
        self._asked.pop(member.id, None)
        self._gave_up.discard(rank)
        self._gone[rank] = why
        self._break()
        if self._ranks or self._unheard:
            self._agree_if_all_have()
        else:
            self._end()

    def _error(self) -> CollectiveGroupError:
        """Of the epoch, some of whose ranks are gone or out of step."""
        ranks = tuple(sorted(self._gone))
        if not ranks and self._out_of_step is not None:
            return self._out_of_step
        if not ranks:
            text = f"group {self._name!r} goes on without this process, or has ended"
            return CollectiveGroupError(text)
        reasons = "\n".join(f"  rank {rank}: {self._gone[rank]}" for rank in ranks)
        return CollectiveGroupError(
            f"{_ranks(ranks)} of {self._size} of group {self._name!r} {_are(ranks)} gone: call "
            f"shrink({self._name!r}) in all others to go on without, or rejoin({self._name!r}) in "
            f"them and in a new process for each\n{reasons}",
            ranks,
        )

    def _break(self) -> None:
        assert self._broken is not None
        error = self._error()
        if not self._broken.done():
            self._broken.set_result(error)
        for met in self._meetings.values():
            if isinstance(met, _Met):
                _answer_all(met.answers.values(), (False, error))
        self._meetings.clear()

    async def broken(self, epoch: int) -> Exception | None:
        """Ends with the error when the epoch is broken; with None when it ended."""
        broken = self._broken
        if epoch != self._epoch or broken is None:
            return None
        try:
            return await asyncio.shield(broken)
        except asyncio.CancelledError:
            if not broken.cancelled():
                raise
            return None

    # ---------------------------------------------------------------------------- joining

    async def declare(self, world_size: int, ranks: dict[str, int]) -> Answer:
        """The driver says which actors are to be the members."""
        if self._declared is not None or self._forming or self._broken is not None:
            return False, RuntimeError(f"group {self._name!r} is there already")
        self._declared = world_size, ranks
        return True, None

    async def place(self, actor_id: str | None) -> Answer:
        """World size and rank that were declared for an actor."""
        if self._declared is None or actor_id not in self._declared[1]:
            return False, RuntimeError(
                f"group {self._name!r} is not initialized in this process: call "
                f"init_collective_group(world_size, rank, group_name={self._name!r}) first"
            )
        return True, (self._declared[0], self._declared[1][actor_id])

    async def join(
        self, member: Member, life: list[Any], rank: int, world_size: int, timeout: float
    ) -> Answer:
        """Waits until all ranks have joined; then a View."""
        if self._left and not await _within(timeout, self._emptied.wait()):
            self._release(member.id)
            names = _ranks(sorted(self._ranks))
            return False, CollectiveTimeoutError(
                f"group {self._name!r} is being destroyed, and {names} did not leave it within "
                f"{timeout:g} s"
            )
        if self._broken is not None:
            self._release(member.id)
            return False, RuntimeError(
                f"group {self._name!r} is there already, of size {self._size}: take another "
                f"group_name; to take the place of a rank that is gone call rejoin()"
            )
        for other, forming in self._forming.items():
            have = self._forming_size
            if have != world_size:
                self._release(member.id)
                error = ValueError(
                    f"rank {rank} of group {self._name!r} has world_size={world_size}, and rank "
                    f"{other} has world_size={have}"
                )
                self._fail_forming(error)
                return False, error
            if other == rank:
                self._release(member.id)
                return False, ValueError(
                    f"rank {rank} of group {self._name!r} is taken: by {forming.member.shown()}"
                )
        self._forming_size = world_size
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._forming[rank] = _Forming(member, answer)
        self._watch(member, life[0])
        if len(self._forming) == world_size:
            members = {at: forming.member for at, forming in self._forming.items()}
            answers = {at: forming.answer for at, forming in self._forming.items()}
            self._world_size = world_size
            self._forming.clear()
            self._open(members, answers)

        def missing() -> list[int]:
            return [at for at in range(world_size) if at not in self._forming]

        def waits_for() -> str:
            absent = f"{_ranks(missing())} of {world_size}"
            return f"the making of group {self._name!r}: {absent} did not join it yet"

        if await _within(timeout, answer, waits_for):
            return answer.result()
        absent = missing()
        del self._forming[rank]
        self._release(member.id)
        return False, CollectiveTimeoutError(
            f"{_ranks(absent)} of {world_size} did not join group {self._name!r} within "
            f"{timeout:g} s"
        )

    def _fail_forming(self, error: Exception) -> None:
        for forming in self._forming.values():
            self._release(forming.member.id)
        _answer_all([forming.answer for forming in self._forming.values()], (False, error))
        self._forming.clear()

    def _open(self, members: dict[int, Member], answers: dict[int, asyncio.Future[Answer]]) -> None:
        """Begins an epoch."""
        assert sorted(members) == list(range(len(members))), "RDV-1"
        if self._broken is not None and not self._broken.done():
            self._broken.cancel()
        self._epoch += 1
        self._size = len(members)
        self._ranks = dict(members)
        self._gone, self._left, self._unheard = {}, set(), {}
        self._gave_up.clear()
        self._meetings.clear()
        self._start_numbers()
        self._broken = asyncio.get_running_loop().create_future()
        by_rank = tuple(members[rank] for rank in range(self._size))
        for rank, answer in answers.items():
            view = View(self._epoch, rank, self._size, self._world_size, by_rank)
            _answer_all([answer], (True, view))

    async def leave(self, member_id: str, why: str) -> None:
        """The member destroys the group for itself, or ends."""
        self._release(member_id)
        for rank, member in list(self._ranks.items()):
            if member.id == member_id:
                self._on_leave(rank, f"{member.shown()}; it {why}")

    def _on_leave(self, rank: int, why: str) -> None:
        member = self._ranks.pop(rank)
        self._asked.pop(member.id, None)
        self._gave_up.discard(rank)
        self._gone[rank] = why
        self._left.add(rank)
        for key, met in list(self._meetings.items()):
            if isinstance(met, _Failed):
                met.to_come.discard(rank)
                if not met.to_come:
                    del self._meetings[key]
            elif rank in met.meeting.missing:
                self._fail(key, met, self._error())
        if self._ranks or self._unheard:
            self._agree_if_all_have()
        else:
            self._end()

    def _end(self) -> None:
        """No member is left: the next one to join makes a new group."""
        error = self._error()
        _answer_all([asked.answer for asked in self._asked.values()], (False, error))
        for newcomer in self._newcomers.values():
            self._release(newcomer.id)
        if self._broken is not None and not self._broken.done():
            self._broken.cancel()
        emptied = self._emptied
        self._forget()
        self._declared = None
        emptied.set()

    # ---------------------------------------------------------------------------- operations

    async def meet(
        self,
        member_id: str,
        epoch: int,
        key: Key,
        call: Call,
        pieces: Pieces,
        timeout: float,
    ) -> Answer:
        """What the member gets: pieces, once all that take part have come."""
        rank = self._rank_of(member_id)
        if epoch != self._epoch or rank is None or self._broken is None or self._broken.done():
            return False, self._error()
        key = self._in_step(rank, key, call)
        participants = range(self._size) if key[0] == "all" else key[1:3]
        met = self._meetings.get(key)
        if isinstance(met, _Failed):
            return False, self._heard(rank, key, met)
        if any(at in self._gone for at in participants):
            return False, self._error()
        if met is None:
            met = self._meetings[key] = _Met(Meeting(participants), {})
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        met.answers[rank] = answer
        if call.refused is not None:
            text = (
                f"rank {rank} of group {self._name!r} called {call.named(rank)}, which was "
                f"refused: {call.refused}; so {self._operation(key)} has failed for all, and all "
                f"may go on with the next one"
            )
            self._fail(key, met, ValueError(text))
            return answer.result()
        differs = met.meeting.come(rank, call, pieces)
        missing = met.meeting.missing
        if differs is not None:
            text = (
                f"{differs}: all ranks of group {self._name!r} must call the same operation in the "
                f"same order, with tensors of equal dtypes and shapes"
            )
            self._fail(key, met, ValueError(text))
        elif not missing:
            del self._meetings[key]
            for at, got in met.meeting.outcome(self._fold).items():
                _answer_all([met.answers[at]], (True, got))
        else:
            self._fail_if_one_agrees(key, met)

        def waits_for() -> str:
            return f"{call.named(rank)}: {self._not_called(call, met.meeting.missing)} yet"

        if answer.done() or await _within(timeout, answer, waits_for):
            return answer.result()
        self._miss(key, met, rank, call, timeout)
        return answer.result()

    def _in_step(self, rank: int, key: Key, call: Call) -> Key:
        """The key of the operation that a rank means, which may have left out some."""
        *channel, number = key
        place = (rank, *channel)
        while True:
            key = (*channel, number + self._left_out[place])
            met = self._meetings.get(key)
            missed = met.missed if isinstance(met, _Failed) else None
            if missed is None or call.may_be(missed.call):
                return key
            self._forget_for(rank, key)
            self._left_out[place] += 1

    def _heard(self, rank: int, key: Key, failed: _Failed) -> Exception:
        """A rank comes to a meeting that has failed: the error that it raises."""
        self._forget_for(rank, key)
        missed = failed.missed
        if missed is None:
            return failed.error
        *channel, number = key
        now = time.monotonic()
        self._late[rank, *channel] = number, now
        called = missed.call.named(rank)
        return CollectiveTimeoutError(
            f"rank {rank} called {called} too late: {self._operation(key)} failed for all "
            f"{now - missed.at:.1f} s ago, since {self._not_called(missed.call, missed.ranks)} "
            f"within {missed.timeout:g} s. The next call of rank {rank} is the next one; if it "
            f"left out a call of {called}, call shrink({self._name!r}) in all ranks"
        )

    def _forget_for(self, rank: int, key: Key) -> None:
        """A rank does not come to a failed meeting any more."""
        failed = self._meetings[key]
        assert isinstance(failed, _Failed)
        failed.to_come.discard(rank)
        if not failed.to_come:
            del self._meetings[key]

    def _miss(self, key: Key, met: _Met, rank: int, call: Call, timeout: float) -> None:
        """The others did not come to a meeting within the timeout of `rank`."""
        *channel, number = key
        now = time.monotonic()
        missing = met.meeting.missing
        told = self._not_called(call, missing)
        for other in missing:
            before, heard = self._late.get((other, *channel), (None, now))
            if before == number - 1 and now - heard >= timeout / 2:
                self._out_of_step = CollectiveGroupError(
                    f"rank {other} is out of step: it came too late to "
                    f"{self._operation((*channel, before))}, and for the next one {told} within "
                    f"{timeout:g} s. It left out a call, or is slow: call shrink({self._name!r}) "
                    f"in all ranks, which then go on in step"
                )
                self._break()
                return
        error = CollectiveTimeoutError(
            f"{told} within {timeout:g} s, as rank {rank} "
            f"{'did' if key[0] == 'all' else f'called {call.named(rank)}'}: "
            f"{self._operation(key)} has failed for all, and all may go on with the next one"
        )
        self._fail(key, met, error, _Missed(call, missing, timeout, now))

    def _not_called(self, call: Call, ranks: list[int]) -> str:
        called = call.named(ranks[0]) if ranks else call.kind
        return f"{_ranks(ranks)} of group {self._name!r} did not call {called}"

    def _operation(self, key: Key) -> str:
        if key[0] == "all":
            return f"operation {key[1] + 1}"
        _, source, to, number = key
        return f"message {number + 1} from rank {source} to rank {to}"

    def _fail_if_one_agrees(self, key: Key, met: _Met) -> None:
        """RDV-5"""
        for rank in met.meeting.missing:
            member = self._ranks.get(rank)
            asked = None if member is None else self._asked.get(member.id)
            if asked is not None:
                text = (
                    f"rank {rank} called {asked.kind}({self._name!r}), so {self._operation(key)} "
                    f"has failed for all: call {asked.kind}({self._name!r}) in all ranks"
                )
                self._fail(key, met, CollectiveGroupError(text))
                return

    def _fail(self, key: Key, met: _Met, error: Exception, missed: _Missed | None = None) -> None:
        """RDV-2: for all that have come, and for those that come later."""
        _answer_all(met.answers.values(), (False, error))
        to_come = set(met.meeting.participants) - met.answers.keys() - self._gone.keys()
        if to_come:
            self._meetings[key] = _Failed(error, to_come, missed)
        else:
            self._meetings.pop(key, None)

    def _fold(self, op: str, pieces: Pieces, at: int | None) -> Any:
        if isinstance(pieces[0], hoplo.ObjectRef):
            if at is None:
                return hoplo.allreduce(pieces, op)
            return hoplo.reduce(pieces, op, on=self._ranks[at].node_id)
        from hoplo._folding import Fold

        fold = Fold(op)
        for number, piece in enumerate(pieces):
            fold.add(number, piece)
        return fold.value()

    def _rank_of(self, member_id: str) -> int | None:
        return next((rank for rank, one in self._ranks.items() if one.id == member_id), None)

    # ---------------------------------------------------------------------------- agreements

    async def agree(
        self,
        kind: str,
        member: Member,
        life: list[Any] | None,
        view: View | None,
        rank: int | None,
        nodes: list[str],
        timeout: float,
    ) -> Answer:
        """`kind`: "shrink" or "rejoin". A View of the next epoch.

        `view` is of a member, and None for a newcomer, who wants the place `rank`, or any. `life`
        is given by who comes to this rendezvous for the first time. `nodes`: those that live.
        """
        if view is not None and self._broken is None:
            self._take_over(view, nodes)
        if view is not None and life is not None:
            self._hear(member, view)
        if life is not None:
            self._watch(member, life[0])
        refused = self._refused(kind, member, view, rank)
        if refused is not None:
            if life is not None:
                self._release(member.id)
            return False, refused
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        for other in self._asked.values():
            if other.kind != kind:
                error = ValueError(
                    f"{member.shown()} called {kind}({self._name!r}), and another rank "
                    f"{other.kind}({self._name!r}): all must call the same"
                )
                _answer_all([one.answer for one in self._asked.values()], (False, error))
                self._asked.clear()
                self._newcomers.clear()
                self._gave_up.clear()
                return False, error
        if view is None:
            self._newcomers[self._free_place(rank)] = member
        self._gave_up -= self._places_of(member)
        self._asked[member.id] = _Asked(kind, answer)
        self._agree_if_all_have()
        for key, met in list(self._meetings.items()):
            if isinstance(met, _Met):
                self._fail_if_one_agrees(key, met)

        def waits_for() -> str:
            return f"{kind} of group {self._name!r}: {self._wanted(kind)} yet"

        if answer.done() or await _within(timeout, answer, waits_for):
            return answer.result()
        if self._unheard:
            for at, unheard in self._unheard.items():
                self._gone[at] = f"{unheard.shown()} did not come within {timeout:g} s"
            self._unheard = {}
            self._agree_if_all_have()
            if answer.done():
                return answer.result()
        return False, self._withdraw(kind, member, view, timeout)

    def _refused(
        self, kind: str, member: Member, view: View | None, rank: int | None
    ) -> Exception | None:
        if view is not None:
            at = self._rank_of(member.id)
            if at is None:
                reason = self._gone.get(view.rank, "another member has its place")
                return CollectiveGroupError(
                    f"this process does not belong to group {self._name!r} any more: {reason}",
                    (view.rank,),
                )
            return None
        if self._broken is None:
            return RuntimeError(f"there is no group {self._name!r} that could be joined again")
        try:
            self._free_place(rank)
        except ValueError as error:
            return error
        return None

    def _free_place(self, rank: int | None) -> int:
        taken = self._ranks.keys() | self._newcomers.keys() | self._unheard.keys()
        free = [at for at in range(self._world_size) if at not in taken]
        if not free:
            raise ValueError(f"all {self._world_size} ranks of group {self._name!r} live")
        if rank is None:
            return free[0]
        if rank not in free:
            raise ValueError(
                f"rank {rank} of group {self._name!r} is not free: {_ranks(free)} of "
                f"{self._world_size} {_are(free)}"
            )
        return rank

    def _withdraw(
        self, kind: str, member: Member, view: View | None, timeout: float
    ) -> CollectiveTimeoutError:
        wanted = self._wanted(kind)
        self._asked.pop(member.id, None)
        self._gave_up |= self._places_of(member)
        if not self._asked:
            self._gave_up.clear()  # nobody is left to be told of it
        if view is None:
            self._newcomers = {at: one for at, one in self._newcomers.items() if one != member}
            self._release(member.id)
        return CollectiveTimeoutError(f"group {self._name!r}: {wanted} within {timeout:g} s")

    def _wanted(self, kind: str) -> str:
        """Who keeps an agreement from being made."""
        gave_up = set(self._gave_up)
        waited = {rank for rank, one in list(self._ranks.items()) if one.id not in self._asked}
        waited = (waited | self._unheard.keys()) - gave_up
        said = [f"{_ranks(waited)} did not call {kind}"] if waited else []
        if kind == "rejoin":
            places = self._ranks.keys() | self._newcomers.keys() | self._unheard.keys() | gave_up
            free = [rank for rank in range(self._world_size) if rank not in places]
            if free:
                said.append(f"nobody took the place of {_ranks(free)}")
        if gave_up and not said:
            return f"{_ranks(gave_up)} called {kind}, and gave up before all others had called it"
        return " and ".join(said)

    def _places_of(self, member: Member) -> set[int]:
        """Its rank, or that which it wants to take."""
        places = [*self._ranks.items(), *self._newcomers.items()]
        return {rank for rank, one in places if one.id == member.id}

    def _agree_if_all_have(self) -> None:
        """Begins the next epoch if nobody is missing any more."""
        if not self._asked or self._unheard:
            return
        if any(member.id not in self._asked for member in self._ranks.values()):
            return
        kind = next(iter(self._asked.values())).kind
        if kind == "shrink":
            living = [self._ranks[rank] for rank in sorted(self._ranks)]
            members = dict(enumerate(living))
        else:
            members = {**self._ranks, **self._newcomers}
            if len(members) < self._world_size:
                return
        answers = {rank: self._asked[member.id].answer for rank, member in members.items()}
        self._asked.clear()
        self._newcomers.clear()
        self._open(members, answers)

    def _take_over(self, view: View, nodes: list[str]) -> None:
        """From a rendezvous that died."""
        self._epoch, self._size, self._world_size = view.epoch, view.size, view.world_size
        self._broken = asyncio.get_running_loop().create_future()
        for rank, member in enumerate(view.members):
            if member.node_id in nodes:
                self._unheard[rank] = member
            else:
                self._gone[rank] = f"{member.shown()}: its node is dead"
        self._broken.set_result(self._error())

    def _hear(self, member: Member, view: View) -> None:
        """A member of the rendezvous before this one comes to it."""
        known = self._unheard.get(view.rank)
        if known is not None and known.id == member.id:
            del self._unheard[view.rank]
            self._ranks[view.rank] = member


def _answer_all(answers: Any, answer: Answer) -> None:
    for one in answers:
        if not one.done():
            one.set_result(answer)


async def _within(
    timeout: float, awaitable: Any, waits_for: Callable[[], str] | None = None
) -> bool:
    """Whether it was there in time. A future goes on to wait; a coroutine is cancelled.

    `waits_for` is read by `hoplo why`.
    """
    waiting = asyncio.ensure_future(awaitable)
    done, _ = await asyncio.wait({waiting}, timeout=timeout)
    if not done and waiting is not awaitable:
        waiting.cancel()
    return bool(done)


def _reason(error: HoploError) -> str:
    """Of a call whose caller died: what became of that."""
    text = str(error)
    # The object is the ref of the call, which no user knows: so what helps with it is left out.
    node = re.search(r"its home node (\w+) died(?: \((.*)\), no other|: (.*?)(?:\. It|$))", text)
    if node:
        return f"its node {node[1]} died ({node[2] or node[3]})"
    told = re.search(r"\((pid .*)\)$", text)
    return told[1] if told else text


def _ranks(ranks: Any) -> str:
    numbers = sorted(ranks)
    return f"rank{'' if len(numbers) == 1 else 's'} {', '.join(map(str, numbers))}"


def _are(ranks: Any) -> str:
    return "is" if len(ranks) == 1 else "are"
