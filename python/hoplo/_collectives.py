"""`reduce`, `allreduce`, `gather`, `scatter`, `all_to_all`: what many objects give together.

Each is a task, so it is cancelled, run again, listed and timed as any task is. It uses no CPU: what
it waits for may need them all.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

from . import _core, _options, _parts, _strategy
from ._folding import Fold, check_op
from .exceptions import HoploError

if TYPE_CHECKING:
    Ref = _core.ObjectRef[Any]

_COMING_MAX = 4
"""Members that come to the node of a reduce at the same time."""

_COME_TOGETHER_WITHIN = 0.05
"""Seconds. Members of an `allreduce` that are all there so soon after the first one go round a
ring; others are folded as they come."""

_COMES_WITHIN = 5.0
"""Seconds that nodes keep what was folded so far for a member that does not come, or is not made
again: it lies in memory, and cannot go to disk."""

_TRIES_MAX = 4
"""Nodes may die, and objects move, while members are folded on their way."""


@overload
def reduce(
    refs: Sequence[Ref],
    op: Any = "sum",
    *,
    n: int | None = None,
    deterministic: bool = False,
    on: Any = None,
    with_members: Literal[False] = False,
) -> Ref: ...
@overload
def reduce(
    refs: Sequence[Ref],
    op: Any = "sum",
    *,
    n: int | None = None,
    deterministic: bool = False,
    on: Any = None,
    with_members: Literal[True],
) -> tuple[Ref, Ref]: ...
def reduce(
    refs: Sequence[Ref],
    op: Any = "sum",
    *,
    n: int | None = None,
    deterministic: bool = False,
    on: Any = None,
    with_members: bool = False,
) -> Any:
    """A ref of what the objects of `refs` give together, element by element: their sum, say.

    The objects, the *members*, may still have to be made. Each is an array of numpy, or a dict,
    list or tuple of members; all have the same structure, dtypes and shapes, and so has the result.
    A ref that is given twice counts twice.

    `op` is "sum", "min", "max", "prod" or "mean", a ufunc of numpy, or a function of two arrays
    that gives one of the same dtype and shape. It must not matter how members are grouped and
    ordered. Nothing changes a dtype, so a sum may overflow as with numpy; but "mean" of whole
    numbers and bools is float64. Sums for a mean are made in float64 for these, in float32 for
    float16 and bfloat16, and else in the members' dtype: where such a sum overflows, so does the
    mean, as that of numpy.

    With `n` the first `n` members that are there are taken, and those that fail are passed over
    while enough others are left. With `with_members=True` two refs are returned: the second one is
    of the list of positions in `refs` that were taken, in ascending order.

    Members are folded as they come, so sums of floats may differ in their last bits from time to
    time. With `deterministic=True` they are folded in the order of `refs`.

    The result is made at the caller's node, or at the node `on`: its id as in `hoplo.nodes()`, or a
    strategy of `hoplo.util.scheduling_strategies`. With an id it cannot be made again once that
    node is dead; `NodeAffinitySchedulingStrategy(id, soft=True)` lets it be made elsewhere then.

    Raises TypeError for what is no list of refs, and ValueError for an unknown `op`, or for `n`
    that is not from 1 to the number of refs. `get` of the result raises ValueError for members that
    differ, with both, TypeError for one that is no array, and what a member raised.

    >>> import numpy as np
    >>> refs = [hoplo.put(np.full(3, i)) for i in (1, 2, 3)]
    >>> hoplo.get(hoplo.reduce(refs))
    array([6, 6, 6])
    >>> total, members = hoplo.reduce(refs, "max", n=2, with_members=True)
    >>> len(hoplo.get(members))
    2
    """
    total, members = _reduced("reduce", refs, op, n, deterministic, on, for_all=False)
    return (total, members) if with_members else total


def _reduced(
    name: str, refs: Any, op: Any, n: Any, deterministic: Any, on: Any, *, for_all: bool
) -> tuple[Ref, Ref]:
    given = _refs(name, refs)
    check_op(op)
    if n is not None:
        n = _options.whole("n", n, " or None")
        if not 1 <= n <= len(given):
            raise ValueError(f"n must be from 1 to the number of refs, {len(given)}, not {n}")
    deterministic = _options.boolean("deterministic", deterministic)
    chooses = n is not None and n < len(given)
    function, returns = (_reduce_chosen, 1) if chooses else (_reduce, 2)
    task = _task(f"hoplo.{name}", function, returns, _where(on))
    near = given[:1] if for_all else []
    if near:
        task = task.options(_near_first=True)  # what goes round begins at a node with a member
    # In a list: the task begins at once, and waits for each of them itself.
    if not chooses:
        total, members = task.remote(near, op, given, deterministic)
        return total, members
    # A task of its own: a result that is lost and made again is of the same members.
    members = _task(f"hoplo.{name}", _choose, 1, None).remote(given, n)
    total = task.remote(near, op, given, members, deterministic)
    _CHOICES[total] = members
    return total, members


_CHOICES: weakref.WeakKeyDictionary[Ref, Ref] = weakref.WeakKeyDictionary()
"""By the result of some of the members: the ref of which ones."""


def chosen_by(ref: Any) -> Ref | None:
    """What only the task that makes `ref` waits for, and is cancelled with it."""
    return _CHOICES.get(ref) if isinstance(ref, _core.ObjectRef) else None


@overload
def allreduce(
    refs: Sequence[Ref],
    op: Any = "sum",
    *,
    n: int | None = None,
    deterministic: bool = False,
    with_members: Literal[False] = False,
) -> Ref: ...
@overload
def allreduce(
    refs: Sequence[Ref],
    op: Any = "sum",
    *,
    n: int | None = None,
    deterministic: bool = False,
    with_members: Literal[True],
) -> tuple[Ref, Ref]: ...
def allreduce(
    refs: Sequence[Ref],
    op: Any = "sum",
    *,
    n: int | None = None,
    deterministic: bool = False,
    with_members: bool = False,
) -> Any:
    """`reduce` whose result many read: all nodes that have members, and whoever else gets it.

    Large members go round the nodes that have them, and each of these ends with the result. So it
    takes little longer than to bring it to one of them, and who gets it there within a second need
    not wait for it. Other nodes fetch it, and pass it on to each other. If members come one after
    the other, at nodes of their own, each is added as it comes.

    Arguments and errors are those of `reduce`, but for `on`.

    >>> import numpy as np
    >>> hoplo.get(hoplo.allreduce([hoplo.put(np.ones(2)), hoplo.put(np.ones(2))]))
    array([2., 2.])
    """
    total, members = _reduced("allreduce", refs, op, n, deterministic, None, for_all=True)
    return (total, members) if with_members else total


def gather(refs: Sequence[Ref], *, on: Any = None) -> Ref:
    """A ref of the list of all values, in the order of `refs`.

    The list is made at the caller's node, or at the node `on`, as with `reduce`. Values may be of
    any kind. Arrays of those that are known to be at other nodes come to their place in the list;
    what else comes is copied there. `get` raises what a member raised.

    >>> hoplo.get(hoplo.gather([hoplo.put("a"), hoplo.put("b")]))
    ['a', 'b']
    """
    given = _refs("gather", refs)
    collect = _task("hoplo.gather", _parts.collect, 1, _where(on))
    comes = _core.is_stored if on is not None else _core.is_elsewhere
    coming = [ref for ref in dict.fromkeys(given) if comes(ref)]
    if not coming:
        return _one(collect.remote([], [], *given))
    look = _task("hoplo.gather", _parts.look, 1, None).options(_near_first=True)
    looked = {ref: look.remote([ref]) for ref in coming}
    return _one(collect.remote([], given, *(looked.get(ref, ref) for ref in given)))


def scatter(ref: Ref, n: int) -> list[Ref]:
    """Refs of `n` parts of the value of `ref`, for `n` readers: each fetches only its own part.

    The parts of a list or tuple are its items, of which there must be `n`. An array is cut along
    its first axis into `n` parts; the first ones are longer by one where it does not go up.

    `get` of a part raises ValueError if there are not enough items, TypeError for another value,
    and what the task of `ref` raised.

    >>> [hoplo.get(part) for part in hoplo.scatter(hoplo.put(["a", "b"]), 2)]
    ['a', 'b']
    """
    [given] = _refs("scatter", [ref])
    n = _options.integer(1, maximum=_options.NUM_RETURNS_MAX)("n", n)
    parts = _task("hoplo.scatter", _scatter, n, None).remote(given, n, repr(given))
    return [parts] if n == 1 else list(parts)


def all_to_all(refs: Sequence[Ref]) -> list[Ref]:
    """Refs of lists: the i-th one is of the i-th items of all members, in the order of `refs`.

    Each member is a list or tuple with an item for each of `refs`, so it is as if `n` processes
    sent each other one item each: the i-th list is made on the node where the i-th member lies, if
    that is known and there is room, and each node fetches only what it gets. If all members are
    small and there already, one task makes all lists.

    `get` raises ValueError if a member has more or fewer items, TypeError if one is no list or
    tuple, and what a member raised.

    >>> refs = [hoplo.put(["a0", "a1"]), hoplo.put(["b0", "b1"])]
    >>> hoplo.get(hoplo.all_to_all(refs))
    [['a0', 'b0'], ['a1', 'b1']]
    """
    given = _refs("all_to_all", refs)
    n = len(given)
    if n > _options.NUM_RETURNS_MAX:
        raise ValueError(
            f"all_to_all takes {_options.NUM_RETURNS_MAX} refs at most, and was given {n}"
        )
    members = [f"member {at}, {ref!r}," for at, ref in enumerate(given)]
    if _all_small(given):
        turned = _task("hoplo.all_to_all", _turn, n, None).remote(members, *given)
        return [turned] if n == 1 else list(turned)
    deal = _task("hoplo.all_to_all", _parts.deal, n, None).options(_near_first=True)
    dealt = [deal.remote(ref, n, member, [ref]) for member, ref in zip(members, given, strict=True)]
    parts = [[one] for one in dealt] if n == 1 else dealt
    collect = _task("hoplo.all_to_all", _parts.collect, 1, None).options(_near_first=True)
    columns = zip(given, zip(*parts, strict=True), strict=True)
    return [_one(collect.remote([ref], given, *column)) for ref, column in columns]


# ------------------------------------------------------------------------------- arguments


def _refs(name: str, refs: Any) -> list[Ref]:
    if isinstance(refs, _core.ObjectRef):
        raise TypeError(f"{name} takes a list of refs; write hoplo.{name}([ref])")
    if not isinstance(refs, list | tuple):
        raise TypeError(f"{name} takes a list of refs, not {_options.shown(refs)}")
    if not refs:
        raise ValueError(f"{name} needs a ref at least: the list is empty")
    for ref in refs:
        if not isinstance(ref, _core.ObjectRef):
            from ._api import not_a_ref

            raise not_a_ref(ref, name)
    return list(refs)


def _where(on: Any) -> Any:
    """A scheduling strategy."""
    if on is None:
        return None
    try:
        if not isinstance(on, str):
            _strategy.strategy("on", on)
            return on
        node = _strategy.node_id("on", on)
    except (TypeError, ValueError) as error:
        raise type(error)(
            f"on must be the id of a node, six hexadecimal digits as hoplo.nodes() shows them, or "
            f"a strategy of hoplo.util.scheduling_strategies, not {_options.shown(on)}"
        ) from None
    from .util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node, soft=False)


def _task(name: str, function: Callable[..., Any], returns: int, where: Any) -> Any:
    options: dict[str, Any] = {"name": name, "num_returns": returns}
    if where is not None:
        options["scheduling_strategy"] = where
    return _remote(function).options(**options)


@functools.cache
def _remote(function: Callable[..., Any]) -> _core.RemoteFunction:
    from .remote_function import make

    return make(function, {"num_cpus": 0})


def _one(ref: Any) -> Ref:
    return ref  # type: ignore[no-any-return]


# ------------------------------------------------------------------------------- tasks


def _choose(refs: list[Ref], n: int) -> list[int]:
    """Positions of the first `n` that are there; of those that failed only if too few are left."""
    numbers = _numbers(refs)
    waiting, left, taken = list(numbers), len(refs), list[int]()
    while len(taken) < n:
        there = _there(waiting, n - len(taken), None)
        waiting = [ref for ref in waiting if ref not in there]
        for ref in there:
            try:
                if not _core.is_stored(ref):
                    _core.get(ref)
            except Exception:
                left -= len(numbers[ref])
                if left < n:
                    raise
            else:
                taken += numbers[ref]
    return sorted(taken[:n])


def _reduce_chosen(
    near: list[Ref], op: Any, refs: list[Ref], members: list[int], in_order: bool
) -> Any:
    return _reduced_by(near, op, [refs[number] for number in members], in_order)


def _reduce(near: list[Ref], op: Any, refs: list[Ref], in_order: bool) -> tuple[Any, list[int]]:
    return _reduced_by(near, op, refs, in_order), list(range(len(refs)))


def _reduced_by(near: list[Ref], op: Any, refs: list[Ref], in_order: bool) -> Any:
    if not in_order and isinstance(op, str):
        made = _on_their_way(op, refs, for_all=bool(near))
        if made is not None:
            return made
    fold = Fold(op)
    members = _in_order(refs, fold.look_at) if in_order else _as_they_come(refs)
    for number, value in members:
        fold.add(number, value)
        del value  # it lies in the store, and nothing keeps it there from now on
    return fold.value()


def _on_their_way(op: str, refs: list[Ref], for_all: bool) -> Any:
    """What nodes made of large members while these came here. None: they did not, whatever the
    reason.

    What is wrong with a member is found out by who folds then.
    """
    if for_all:
        try:
            folded = _as_members_come(op, refs)
        except HoploError:
            return None
        if folded is not None:
            return folded
    if not _are_stored(refs):
        return None

    def come_again(lost: list[int], within: float | None = _COMES_WITHIN) -> bool:
        coming = list(dict.fromkeys(refs[at] for at in lost))
        if coming and _core.wait(coming, len(coming), within, True)[1]:
            return False
        for ref in coming:
            _core.get(ref)  # it is made again, and here, or that failed
        return True

    for attempt in range(_TRIES_MAX):
        try:
            # What cannot go round may go along a chain.
            made = _core.fold_members(op, refs, for_all and attempt == 0, come_again)
            if isinstance(made, _core.Folded):
                return made
            _, again, lost = made
            if not again:
                return None
            come_again(lost, None)
        except HoploError:
            return None
    return None


def _as_members_come(op: str, refs: list[Ref]) -> Any:
    """As `_on_their_way`, of members that come one after the other.

    None, too, if they are all there at once, or one does not come for a while.
    """
    n = len(refs)
    if n < 2 or len(set(refs)) < n:
        return None
    _core.wait(refs, 1, None, False)
    coming, waiting = _core.wait(refs, n, _COME_TOGETHER_WITHIN, False)
    if not waiting:
        return None

    def batches() -> Iterator[tuple[list[Ref], bool]]:
        nonlocal coming, waiting
        while coming and all(map(_core.is_stored, coming)):
            yield coming, bool(waiting)
            coming, waiting = _core.wait(waiting, 1, _COMES_WITHIN, False)

    return _core.fold_as_they_come(op, n, batches())


def _are_stored(refs: list[Ref]) -> bool:
    """When all are there: whether each is in some store. False as soon as one is small or has
    failed."""
    waiting = list(dict.fromkeys(refs))
    while waiting:
        there = _there(waiting, len(waiting), None)
        if not all(map(_core.is_stored, there)):
            return False
        waiting = [ref for ref in waiting if ref not in there]
    return True


def _all_small(refs: list[Ref]) -> bool:
    """All are there, and none in a store: to bring them together costs less than a task."""
    each = list(dict.fromkeys(refs))
    there, missing = _core.wait(each, len(each), 0.0, False)
    return not missing and not any(map(_core.is_stored, there))


def _scatter(value: Any, n: int, whose: str) -> Any:
    import numpy as np

    if not isinstance(value, np.ndarray):
        return _parts.deal(value, n, whose)
    if value.ndim == 0:
        raise ValueError(
            f"{whose} is an array of shape (), which has no first axis to be cut along: put an "
            "array with one, such as array.reshape(1)"
        )
    if len(value) < n:
        raise ValueError(
            f"{whose} is an array of shape {value.shape}, which cannot be cut into {n} parts"
        )
    return value if n == 1 else np.array_split(value, n)


def _turn(members: list[str], *values: Any) -> Any:
    """Of rows, the columns."""
    n = len(values)
    rows = [_parts.deal(value, n, whose) for whose, value in zip(members, values, strict=True)]
    return rows if n == 1 else [list(column) for column in zip(*rows, strict=True)]


# ------------------------------------------------------------------------------- members


def _in_order(refs: list[Ref], look_at: Callable[[int, Any], object]) -> Iterator[tuple[int, Any]]:
    """Number and value of each member.

    While one does not come `look_at` is called with those that do: what is wrong with them is
    raised at once.
    """
    unseen = {ref: number for number, ref in reversed(list(enumerate(refs)))}
    for number, ref in enumerate(refs):
        unseen.pop(ref, None)
        next_ones = list(dict.fromkeys(refs[number : number + _COMING_MAX]))
        _core.wait(next_ones, 1, 0.0, True)  # all of them begin to come
        while not _core.wait([ref], 1, 0.0, False)[0]:
            [one], _ = _core.wait([ref, *unseen], 1, None, False)
            if one != ref:
                look_at(unseen.pop(one), _core.get(one))
        yield number, _core.get(ref)


def _as_they_come(refs: list[Ref]) -> Iterator[tuple[int, Any]]:
    """Number and value of each member. A few at a time are fetched: memory is bounded."""
    numbers = _numbers(refs)
    waiting = list(numbers)
    coming: list[Ref] = []
    while waiting or coming:
        room = _COMING_MAX - len(coming)
        if waiting and room > 0:
            there = _there(waiting, room, None if not coming else 0.0)
            coming += there
            waiting = [ref for ref in waiting if ref not in there]
        [ref], coming = _core.wait(coming, 1, None, True)
        value = _core.get(ref)
        for number in numbers[ref]:
            yield number, value
        del value


def _numbers(refs: list[Ref]) -> dict[Ref, list[int]]:
    """Where each ref is. One that is given twice counts twice."""
    numbers: dict[Ref, list[int]] = {}
    for number, ref in enumerate(refs):
        numbers.setdefault(ref, []).append(number)
    return numbers


def _there(refs: list[Ref], most: int, timeout: float | None) -> list[Ref]:
    """Those that some node has, or that have failed. Waits for one, and fetches none."""
    there, others = _core.wait(refs, 1, timeout, False)
    if there and others and most > 1:
        there += _core.wait(others, min(most - 1, len(others)), 0.0, False)[0]
    return there
