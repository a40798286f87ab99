"""One operation of a group: who has come to it, whether all mean the same, and who gets what.

Pure: no clock, no call, no actor. What a rank brings are *pieces*: arrays that are small, or refs
of large ones, and never both in one meeting, since all tensors have equal shapes.

                  brings          gets
    barrier       nothing         nothing
    allreduce     1 piece         all folded into 1
    reduce        1 piece         the root: all folded into 1
    broadcast     the root: 1     all but the root: it
    allgather     1 piece         those of all ranks
    gather        1 piece         the root: those of all ranks
    scatter       the root: n     the one with its own number
    reducescatter n pieces        those with its own number, folded into 1
    all_to_all    n pieces        those with its own number, of all ranks
    send/recv     the root: 1     the other one: it

# Invariants
- MEET-1: pieces of a rank are taken once, and only if its call fits to the first one.
- MEET-2: a meeting is whole when each participant has come; before, nobody gets anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

Pieces = list[Any]


class Call(NamedTuple):
    """What a rank says that it does. Equal for all ranks of a meeting, or it is an error."""

    kind: str
    op: str | None = None
    """The name of a ReduceOp."""
    root: int | None = None
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    refused: str | None = None
    """The error that the rank raised itself, for what it was given. The rest is not known then."""

    def named(self, rank: int) -> str:
        """The function that a rank calls for it."""
        if self.kind != "send/recv":
            return self.kind
        return "send" if rank == self.root else "recv"

    def may_be(self, other: Call) -> bool:
        """Whether two ranks may mean the same operation."""
        if self.refused is not None or other.refused is not None:
            return self.kind == other.kind
        return self == other

    def shown(self) -> str:
        root = "dst_rank" if self.kind in ("reduce", "gather") else "src_rank"
        said = [] if self.op is None else [f"op={self.op}"]
        if self.root is not None and self.kind != "send/recv":
            said.append(f"{root}={self.root}")
        text = f"{self.kind}({', '.join(said)})"
        if self.dtype is not None:
            text += f" with tensors of {self.dtype} of shape {self.shape}"
        return text


class Meeting:
    """The ranks `participants` come to it."""

    def __init__(self, participants: Iterable[int]) -> None:
        self.participants = frozenset(participants)
        self._calls: dict[int, Call] = {}
        self._pieces: dict[int, Pieces] = {}

    def come(self, rank: int, call: Call, pieces: Pieces) -> str | None:
        """Takes what a rank brings. Where its call is not that of the others: a text with both."""
        assert rank in self.participants, "MEET-1: who comes takes part"
        assert rank not in self._calls, "MEET-1: once"
        for other, said in self._calls.items():
            if said != call:
                return f"rank {rank} called {call.shown()}, and rank {other} {said.shown()}"
            break
        self._calls[rank] = call
        self._pieces[rank] = pieces
        return None

    @property
    def missing(self) -> list[int]:
        """Ranks that have not come."""
        return sorted(self.participants - self._calls.keys())

    def outcome(self, fold: Callable[[str, Pieces, int | None], Any]) -> dict[int, Pieces]:
        """What each rank gets. `fold(op, pieces, at)` makes one piece, where rank `at` is."""
        assert not self.missing, "MEET-2"
        call = next(iter(self._calls.values()))
        ranks = sorted(self.participants)
        got: dict[int, Pieces] = {rank: [] for rank in ranks}
        first = [self._pieces[rank][0] for rank in ranks if self._pieces[rank]]
        match call.kind:
            case "allreduce":
                folded = [self._folded(fold, call, first, None)]
                got = {rank: list(folded) for rank in ranks}
            case "reduce":
                assert call.root is not None
                got[call.root] = [self._folded(fold, call, first, call.root)]
            case "broadcast" | "send/recv":
                got = {rank: [] if rank == call.root else first for rank in ranks}
            case "allgather":
                got = {rank: list(first) for rank in ranks}
            case "gather":
                assert call.root is not None
                got[call.root] = first
            case "scatter":
                assert call.root is not None
                got = {rank: [self._pieces[call.root][rank]] for rank in ranks}
            case "reducescatter":
                for rank in ranks:
                    column = [self._pieces[other][rank] for other in ranks]
                    got[rank] = [self._folded(fold, call, column, rank)]
            case "all_to_all":
                for rank in ranks:
                    got[rank] = [self._pieces[other][rank] for other in ranks]
            case kind:
                assert kind == "barrier", kind
        return got

    def _folded(
        self, fold: Callable[[str, Pieces, int | None], Any], call: Call, pieces: Pieces, at: Any
    ) -> Any:
        assert call.op is not None
        return pieces[0] if len(pieces) == 1 else fold(call.op, pieces, at)
