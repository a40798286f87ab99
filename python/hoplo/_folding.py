"""What the tasks of collectives do with values: take them apart, fold them, put them together.

A member of a reduce is an array of numpy, or a dict, list or tuple of members. Taken apart it is a
*form*, which says everything but what the arrays hold, and the list of its arrays. A form knows no
byte order: members may differ in it, and results have that of this machine.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

NAMED_OPS = ("sum", "min", "max", "prod", "mean")

_OPS_OF_TIMES = {"M": ("min", "max"), "m": ("sum", "min", "max", "mean")}
"""Of datetime64 and timedelta64, by the kind of their dtype."""


class Leaf(NamedTuple):
    """Where an array was."""

    dtype: Any
    """In native byte order, whatever the array has."""
    shape: tuple[int, ...]
    is_scalar: bool
    """It was a scalar of numpy's, such as float32(3)."""


class Branch(NamedTuple):
    """A dict, list or tuple."""

    kind: type
    keys: tuple[Any, ...]
    """Of a dict; of a list or tuple the positions."""
    items: tuple[Any, ...]
    """A form for each key."""


class Fold:
    """The members that have come so far, folded into one."""

    def __init__(self, op: Any) -> None:
        self.op = op
        self.function = _function(op)
        self.count = 0
        self._form: Leaf | Branch | None = None
        self._arrays: list[Array] = []
        self._first = 0
        """The number of the member whose form is compared with."""

    def look_at(self, number: int, value: Any) -> list[Array]:
        """The arrays of member `number`. ValueError or TypeError if it does not fit to the others
        that were looked at or added."""
        arrays: list[Array] = []
        form = take_apart(value, arrays, number, like=self._form)
        if self._form is None:
            _check_dtypes(self.op, number, form, "")
            self._form, self._first = form, number
        else:
            _compare(self._first, self._form, number, form, "")
        return arrays

    def add(self, number: int, value: Any) -> None:
        """Folds in member `number`. Errors are those of `look_at`."""
        arrays = self.look_at(number, value)
        with self._silently():
            self._add(number, value, arrays)
        self.count += 1

    def _add(self, number: int, value: Any, arrays: list[Array]) -> None:
        if self.count == 0:
            # The result is like the first one that is added, whichever was looked at before.
            arrays = []
            self._form, self._first = take_apart(value, arrays, number), number
            sums_in = _sums_in if self.op == "mean" else _native
            self._arrays = [array.astype(sums_in(array.dtype), copy=False) for array in arrays]
        else:
            for at, array in enumerate(arrays):
                self._arrays[at] = self._folded(self._arrays[at], array)

    def value(self) -> Any:
        """What the members give together."""
        assert self._form is not None, "there is a member"
        arrays = self._arrays
        if self.op == "mean":
            totals = zip(arrays, _leaves(self._form), strict=True)
            with self._silently():
                arrays = [_divided(total, self.count, leaf.dtype) for total, leaf in totals]
        return put_together(self._form, iter(arrays))

    def _silently(self) -> contextlib.AbstractContextManager[Any]:
        """An op with a name gives no warnings of numpy, of NaN for instance: those of large members
        that nodes fold have none either. An op of the user's own warns as it does anywhere."""
        import numpy as np

        return np.errstate(all="ignore") if isinstance(self.op, str) else contextlib.nullcontext()

    def _folded(self, total: Array, more: Array) -> Array:
        import numpy as np

        if self.count > 1 and isinstance(self.function, np.ufunc):
            # The total is an array of ours: the first step made it.
            return self.function(total, more, out=total)  # type: ignore[no-any-return]
        made = np.asarray(self.function(total, more))
        if _native(made.dtype) != _native(total.dtype) or made.shape != total.shape:
            raise ValueError(
                f"op must give what it is given: of {_shown(total)} it made {_shown(made)}"
            )
        return made


def check_op(op: Any) -> None:
    """TypeError or ValueError if it is no `op` of a reduce."""
    if isinstance(op, str):
        if op not in NAMED_OPS:
            names = ", ".join(map(repr, NAMED_OPS))
            raise ValueError(
                f"op must be {names}, a ufunc of numpy such as numpy.add, or a function of two "
                f"arrays, not {op!r}"
            )
        return
    if not callable(op) or isinstance(op, type):
        raise TypeError(
            f"op must be a name such as 'sum', a ufunc of numpy, or a function of two arrays, "
            f"not {type(op).__name__}"
        )
    nin, nout = getattr(op, "nin", 2), getattr(op, "nout", 1)
    if (nin, nout) != (2, 1):
        raise ValueError(
            f"op must make one array of two, and {op.__name__} makes {nout} of {nin}: take one "
            f"such as numpy.add"
        )


def take_apart(
    value: Any,
    arrays: list[Array],
    number: int,
    path: str = "",
    like: Leaf | Branch | None = None,
) -> Leaf | Branch:
    """The form of member `number`. Its arrays are added to `arrays`, in the order of `like`."""
    import numpy as np

    if type(value) is np.ndarray or isinstance(value, np.generic):
        array = np.asarray(value)
        if not _is_number(array.dtype):
            raise TypeError(
                f"member {number}{_at(path)} is an array of {array.dtype}, not of numbers or times"
            )
        arrays.append(array)
        return Leaf(_native(array.dtype), array.shape, isinstance(value, np.generic))
    if isinstance(value, dict):
        keys: tuple[Any, ...] = tuple(value)
        if isinstance(like, Branch) and len(like.keys) == len(keys) and set(like.keys) == set(keys):
            keys = like.keys
        children = tuple(value[key] for key in keys)
    elif isinstance(value, list | tuple):
        keys = tuple(range(len(value)))
        children = tuple(value)
    else:
        raise TypeError(
            f"member {number}{_at(path)} is of type {type(value).__name__}: a reduce takes arrays "
            f"of numpy, and dicts, lists and tuples of them{_remedy(value)}"
        )
    models = like.items if isinstance(like, Branch) and like.keys == keys else (None,) * len(keys)
    items = tuple(
        take_apart(child, arrays, number, f"{path}[{key!r}]", model)
        for key, child, model in zip(keys, children, models, strict=True)
    )
    return Branch(type(value), keys, items)


def put_together(form: Leaf | Branch, arrays: Any) -> Any:
    """The value of that form which has these arrays."""
    if isinstance(form, Leaf):
        array = next(arrays)
        return array[()] if form.is_scalar else array
    items = [put_together(item, arrays) for item in form.items]
    if issubclass(form.kind, dict):
        return dict(zip(form.keys, items, strict=True))
    if issubclass(form.kind, list):
        return items
    if hasattr(form.kind, "_fields"):
        return form.kind(*items)
    return tuple(items)


def _function(op: Any) -> Callable[..., Any]:
    import numpy as np

    named: dict[Any, Callable[..., Any]] = {
        "sum": np.add,
        "mean": np.add,
        "min": np.minimum,
        "max": np.maximum,
        "prod": np.multiply,
    }
    return named[op] if isinstance(op, str) else op


def _sums_in(dtype: Any) -> Any:
    """The dtype in which numpy adds these for a mean: so that the sum is not too large for it."""
    import numpy as np

    if dtype.kind == "m":
        return _native(dtype)
    return np.dtype(float) if _is_whole(dtype) else np.promote_types(dtype, np.float32)


def _divided(total: Array, count: int, dtype: Any) -> Array:
    """The mean of so many members of `dtype`. Only that of whole numbers has another one."""
    import numpy as np

    made = np.asarray(np.true_divide(total, count))
    return made.astype(total.dtype if _is_whole(dtype) else dtype, copy=False)


def _is_whole(dtype: Any) -> bool:
    import numpy as np

    # Those of other packages, such as int4 of ml_dtypes, have no half either.
    return dtype.kind in "biu" or (dtype.kind == "V" and not np.asarray(0.5).astype(dtype))


def _leaves(form: Leaf | Branch) -> Iterator[Leaf]:
    """In the order of its arrays."""
    if isinstance(form, Leaf):
        yield form
    else:
        for item in form.items:
            yield from _leaves(item)


def _check_dtypes(op: Any, number: int, form: Leaf | Branch, path: str) -> None:
    """TypeError if there are arrays in it of which numpy does not make what `op` names."""
    if isinstance(form, Branch):
        for key, item in zip(form.keys, form.items, strict=True):
            _check_dtypes(op, number, item, f"{path}[{key!r}]")
        return
    if not isinstance(op, str) or op in (ops := ops_of(form.dtype)):
        return
    which = f"member {number}{_at(path)} is an array of {form.dtype}"
    names = ", ".join(map(repr, ops))
    if form.dtype.kind in _OPS_OF_TIMES:
        raise TypeError(f"{which}: of these op may be {names}, not {op!r}")
    raise TypeError(
        f"{which}, and {op} of {form.dtype} is not possible: op may be {names}, or put the arrays "
        f"in a dtype of numpy"
    )


def ops_of(dtype: Any) -> tuple[str, ...]:
    """Those of NAMED_OPS that such arrays can be folded by. None if they are no numbers or
    times."""
    if not _is_number(dtype):
        return ()
    if dtype.kind == "V":
        return _ops_of_foreign(dtype)
    return _OPS_OF_TIMES.get(dtype.kind, NAMED_OPS)


@functools.cache
def _ops_of_foreign(dtype: Any) -> tuple[str, ...]:
    """Of a dtype of another package: it is tried out."""
    import numpy as np

    def keeps_its_dtype(op: str) -> bool:
        try:
            one = np.zeros(1, _sums_in(dtype) if op == "mean" else dtype)
            return bool(np.asarray(_function(op)(one, one)).dtype == one.dtype)
        except Exception:
            return False

    return tuple(filter(keeps_its_dtype, NAMED_OPS))


def _native(dtype: Any) -> Any:
    """In the byte order of this machine: numpy gives what it computes in that."""
    return dtype.newbyteorder("=")


def _is_number(dtype: Any) -> bool:
    import numpy as np

    # Those of other packages, such as bfloat16 of ml_dtypes, say that they are void.
    is_foreign = dtype.kind == "V" and dtype.names is None and dtype.type is not np.void
    return dtype.kind in "biufcmM" or is_foreign


def _compare(first: int, one: Leaf | Branch, second: int, other: Leaf | Branch, path: str) -> None:
    """ValueError, which tells both, if the forms differ."""
    if second < first:
        first, one, second, other = second, other, first, one
    if isinstance(one, Leaf) and isinstance(other, Leaf):
        if (one.dtype, one.shape) != (other.dtype, other.shape):
            raise ValueError(
                f"member {second} is {_described(other)}{_at(path)}, and member {first} is "
                f"{_described(one)}: all members of a reduce need equal dtypes and shapes"
            )
        return
    if not isinstance(one, Leaf) and not isinstance(other, Leaf):
        alike = _kind(one) == _kind(other) and one.keys == other.keys
        if alike:
            for key, item, its in zip(one.keys, one.items, other.items, strict=True):
                _compare(first, item, second, its, f"{path}[{key!r}]")
            return
    raise ValueError(
        f"member {second} is {_described(other)}{_at(path)}, and member {first} is "
        f"{_described(one)}: all members of a reduce need the same structure"
    )


def _kind(branch: Branch) -> type:
    return next(kind for kind in (dict, list, tuple) if issubclass(branch.kind, kind))


def _keys(branch: Branch) -> str:
    text = ", ".join(map(repr, branch.keys))
    return text if len(text) <= 80 else f"{text[:77]}..."


def _described(form: Leaf | Branch) -> str:
    if isinstance(form, Leaf):
        return f"an array of {form.dtype} of shape {form.shape}"
    if issubclass(form.kind, dict):
        return f"a dict with the keys {_keys(form)}"
    return f"a {_kind(form).__name__} of {len(form.keys)}"


def _shown(array: Array) -> str:
    return _described(Leaf(array.dtype, array.shape, False))


def _at(path: str) -> str:
    return f" at {path}" if path else ""


def _remedy(value: Any) -> str:
    import numpy as np

    if isinstance(value, bool | int | float | complex):
        return "; for a number write numpy.float64(x)"
    if hasattr(value, "numpy"):
        return "; for a tensor write tensor.numpy()"
    if isinstance(value, np.ma.MaskedArray):
        # numpy.asarray would give what lies under the mask.
        return "; write x.filled(value), with what is to stand where it is masked"
    if hasattr(value, "__array__"):
        return "; write numpy.asarray(x)"
    return ""
