"""Values to bytes and back, for whatever the Rust side's own fast codec does not handle.

Three routes, the first that is correct wins:

1. C pickle, protocol 5. Nothing of ours runs per object. Arrays leave their data out of band.
2. The same with a dispatch table, once torch is imported: CPU tensors leave theirs out of band too.
3. cloudpickle: for what pickle cannot name (lambdas, local classes) or would name wrongly. Whatever
   lives in `__main__` is such: pickle would write `__main__.Foo`, and a worker's `__main__` has no
   Foo. A name in a pickle is written out, so looking for the bytes `__main__` finds all of them; a
   text that happens to hold them merely takes the slower route. And memoryviews, which pickle
   refuses: here they leave their data out of band.

Reading needs no route: `pickle.loads(data, buffers=buffers)` reads all three.
"""

from __future__ import annotations

import copyreg
import functools
import io
import pickle
import sys
import types
from collections import ChainMap
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple

from . import _core
from .exceptions import SerializationError

BUFFER_BYTES_MIN = 4096
"""Smaller buffers are copied into the pickle: a separate one would cost more than the copy."""

_MAIN = b"__main__"


def dumps_by_name(value: object) -> tuple[bytes, list[pickle.PickleBuffer]] | None:
    """The pickle of `value` by route 1 or 2, and the buffers that it leaves out, in order.

    None if only route 3 is correct, or can say what is wrong. Who asks forgets the refs that were
    pickled before: a `__getstate__` that makes one makes another for route 3.
    """
    if _picklable_by_value_only():
        return None
    buffers: list[pickle.PickleBuffer] = []

    def keep_in_band(buffer: pickle.PickleBuffer) -> bool:
        if _is_small(buffer):
            return True
        buffers.append(buffer)
        return False

    try:
        if tensor := _tensor_type():
            data = _dumps_with_tensors(value, tensor, keep_in_band)
        else:
            data = pickle.dumps(value, 5, buffer_callback=keep_in_band)
    except Exception:
        return None  # cloudpickle may know better; if not, its error is the clearer one
    return None if _MAIN in data else (data, buffers)


def dumps_by_value(value: object) -> tuple[bytes, list[pickle.PickleBuffer]]:
    """The same by route 3.

    Raises what pickle or the user's own reducers raise; see `serialization_error`.
    """
    buffers: list[pickle.PickleBuffer] = []

    def keep_in_band(buffer: pickle.PickleBuffer) -> bool:
        if _is_small(buffer):
            return True
        buffers.append(buffer)
        return False

    return _dumps_with_cloudpickle(value, keep_in_band), buffers


def dumps_in_band(value: object) -> bytes:
    """The pickle of `value` in one piece."""
    try:
        data = pickle.dumps(value, 5)
        if _MAIN not in data and not _picklable_by_value_only():
            return data
    except Exception:
        pass
    return _dumps_with_cloudpickle(value, None)


def dumps_definition(target: object) -> bytes:
    """The pickle of a function or class to export, always by cloudpickle.

    What a decorator has replaced in its module goes by value; everything else importable by name.
    """
    return _dumps_with_cloudpickle(target, None)


DEFINITION_BYTES_TOLD = 10_000_000
"""A function or class whose pickle is larger is worth a word: mostly it captures data."""
DEFINITION_BYTES_MAX = 95_000_000
"""One whose pickle is larger is refused."""
_NAME_SHOWN = 200
"""Characters of a name that is part of an error: what makes it too large may be the name."""


def check_definition_size(target: object, name: str, size: int) -> None:
    """ValueError if the function or class `name`, whose pickle has `size` bytes, is too large.

    One that is merely large is told on stderr. It is asked once for each: who has exported a
    function does not pickle it again in that session.
    """
    if size <= min(DEFINITION_BYTES_TOLD, DEFINITION_BYTES_MAX):
        return
    kind = "class" if isinstance(target, type) else "function"
    name = name if len(name) <= _NAME_SHOWN else f"{name[:_NAME_SHOWN]}..."
    remedy = (
        "it holds the values of variables that it uses from outside. Put large ones with "
        "hoplo.put() and pass their refs as arguments"
    )
    if size > DEFINITION_BYTES_MAX:
        raise ValueError(
            f"the {kind} {name} is too large to be sent to workers: pickled, it has {size:,} "
            f"bytes, and may have {DEFINITION_BYTES_MAX:,}. With its code {remedy}"
        )
    print(
        f"hoplo: the {kind} {name} is large: pickled, it has {size:,} bytes, which each worker "
        f"that runs it reads. With its code {remedy}",
        file=sys.stderr,
        flush=True,
    )


class _StoredDefinition:
    """A function or class whose pickle is an object."""

    def __init__(self, ref: _core.ObjectRef[bytes]) -> None:
        self._ref = ref

    def __reduce__(self) -> tuple[Any, ...]:
        return _load_stored, (self._ref,)


def dumps_stored_definition(ref: _core.ObjectRef[bytes]) -> bytes:
    """What is exported in place of a large pickle, which `ref` stands for."""
    return pickle.dumps(_StoredDefinition(ref), protocol=5)


def _load_stored(ref: _core.ObjectRef[bytes]) -> object:
    data = _core.get(ref)
    try:
        return loads(data)
    except RecursionError:
        return loads_carefully(data)


def loads(data: bytes, buffers: list[Any] | None = None) -> Any:
    """The value of `data`, its arrays reading `buffers` in place."""
    return pickle.loads(data, buffers=buffers or ())


def loads_carefully(data: bytes, buffers: list[Any] | None = None) -> Any:
    """The value of `data`, where reading it the fast way ended in a RecursionError.

    pickle asks each new object for `__setstate__`, before it has its state. A class whose
    `__getattr__` looks into that state (`return self._state[name]`) then asks itself for ever.
    Here the class is asked.
    """
    return _CarefulUnpickler(io.BytesIO(data), buffers=buffers or ()).load()


_PythonUnpickler: Any = pickle._Unpickler
"""pickle's own, written in Python."""


class _CarefulUnpickler(_PythonUnpickler):  # type: ignore[misc]
    dispatch: ClassVar[dict[int, Callable[..., None]]] = dict(_PythonUnpickler.dispatch)

    def load_build(self) -> None:
        state = self.stack.pop()
        made = self.stack[-1]
        setstate = getattr(type(made), "__setstate__", None)
        if setstate is not None:
            setstate(made, state)
            return
        slots = None
        if isinstance(state, tuple) and len(state) == 2:
            state, slots = state
        if state:
            made.__dict__.update(state)
        for name, value in (slots or {}).items():
            setattr(made, name, value)

    dispatch[pickle.BUILD[0]] = load_build


def serialization_error(value: object, name: str, error: BaseException) -> SerializationError:
    """The error to raise when pickling `value` raised `error`; `name` is what the user calls it.

    Such names are `args[1]`, `kwargs['x']`, `the result of f`, `the value`, `f`.
    """
    path, leaf, reason = name, value, error
    found = next(find_unpicklable(value, name), None)
    if found is not None:
        path, leaf, reason = found.path, found.part, found.reason
    remedy = (
        "Create it inside the task or in the actor's constructor, or leave it out in __getstate__."
    )
    for kinds, other_remedy in _REMEDIES:
        if isinstance(leaf, kinds):
            remedy = other_remedy
    made = SerializationError(
        f"cannot pickle {name}: {path} is of type {_type_name(leaf)}, which cannot be sent to "
        f"another process ({type(reason).__name__}: {reason}). {remedy}"
    )
    made.__cause__ = error
    return made


_REMEDIES = (
    (
        (types.GeneratorType, map, filter, zip),
        "It gives values one by one, in this process only: make a list of it, or call the function "
        "that makes it inside the task.",
    ),
    (
        (types.CoroutineType, types.AsyncGeneratorType),
        "It runs in this process only: await it first, or call the function that makes it inside "
        "the task.",
    ),
)

# ------------------------------------------------------------------------------------ routes


def _is_small(buffer: pickle.PickleBuffer) -> bool:
    with buffer.raw() as raw:
        return raw.nbytes < BUFFER_BYTES_MIN


def _picklable_by_value_only() -> bool:
    """Whether the user told cloudpickle to send some modules by value: then only it knows.

    While another thread imports it, it is there and has no functions yet; nobody told it anything.
    """
    registered = getattr(sys.modules.get("cloudpickle"), "list_registry_pickle_by_value", None)
    return registered is not None and bool(registered())


def _dumps_with_cloudpickle(value: object, buffer_callback: Callable[..., bool] | None) -> bytes:
    pickler_type = _cloud_pickler(_tensor_type())
    with io.BytesIO() as file:
        pickler_type(file, protocol=5, buffer_callback=buffer_callback).dump(value)
        return file.getvalue()


@functools.cache
def _cloud_pickler(tensor: type | None) -> Any:
    import cloudpickle

    theirs = cloudpickle.Pickler
    # A class attribute: cloudpickle's own hides the one that instances of pickle's have.
    table = theirs.dispatch_table
    ours: dict[type, Callable[[Any], Any]] = {
        memoryview: _reduce_view,
        types.CodeType: functools.partial(_reduce_code, table[types.CodeType]),
    }
    if tensor is not None:
        ours[tensor] = _reduce_tensor

    def reduce_function(self: Any, function: types.FunctionType) -> Any:
        reduced = theirs._dynamic_function_reduce(self, function)
        _add_submodules(function, reduced)
        return reduced

    members = {
        "dispatch_table": ChainMap(ours, *table.maps),
        "_dynamic_function_reduce": reduce_function,
    }
    return type("_Pickler", (theirs,), members)


def _reduce_code(reduce: Callable[[types.CodeType], Any], code: types.CodeType) -> Any:
    """With the name of its file, as cloudpickle did up to 3.1.2. Later ones leave it out, and
    tracebacks of workers would show neither file nor line."""
    make, arguments = reduce(code)
    arguments = [
        code.co_filename if argument == "<dynamic-code>" else argument for argument in arguments
    ]
    return make, tuple(arguments)


def _add_submodules(function: types.FunctionType, reduced: Any) -> None:
    """Has the reader import submodules that only functions inside of `function` name.

    `package.module.f()` reads an attribute that the package has once somebody has imported the
    module. cloudpickle sends along the submodules that the function itself names so. Functions,
    lambdas and comprehensions inside of it have code, and names, of their own.
    """
    if not any(isinstance(constant, types.CodeType) for constant in function.__code__.co_consts):
        return
    match reduced:
        case (_, _, (_, {"_cloudpickle_submodules": known, "__globals__": names}), *_):
            used = [*names.values(), *_cell_values(function)]
        case _:
            return  # of a cloudpickle that does it in another way
    packages = [it for it in used if isinstance(it, types.ModuleType) and hasattr(it, "__path__")]
    if not packages:
        return
    named = set(_global_names(function.__code__))
    for package in packages:
        prefix = f"{package.__name__}."
        for name, module in sys.modules.copy().items():
            inner = name.startswith(prefix) and named.issuperset(name[len(prefix) :].split("."))
            if inner and module is not None and module not in known:
                known.append(module)


def _cell_values(function: types.FunctionType) -> Iterator[object]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:
            continue  # not assigned yet


def _dumps_with_tensors(value: object, tensor: type, buffer_callback: Callable[..., bool]) -> bytes:
    with io.BytesIO() as file:
        pickler = pickle.Pickler(file, protocol=5, buffer_callback=buffer_callback)
        pickler.dispatch_table = {**copyreg.dispatch_table, tensor: _reduce_tensor}
        pickler.dump(value)
        return file.getvalue()


def _reduce_view(view: memoryview) -> Any:
    """Its bytes, out of band. pickle refuses a memoryview; cloudpickle makes `bytes` of it."""
    buffer = view if view.c_contiguous else view.tobytes()
    return _view, (pickle.PickleBuffer(buffer), view.format, view.shape)


def _view(buffer: Any, format: str, shape: tuple[int, ...]) -> Any:
    view: Any = memoryview(buffer).toreadonly().cast("B")
    try:
        return view.cast(format, shape)
    except (ValueError, TypeError):
        return view  # a format that only its exporter can read: a struct's


def _tensor_type() -> type | None:
    """Of torch, once it is imported."""
    return getattr(sys.modules.get("torch"), "Tensor", None)


def _reduce_tensor(tensor: Any) -> Any:
    """A plain CPU tensor as its bytes, out of band; any other the way torch does it."""
    import torch

    plain = (
        tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and not tensor.requires_grad
        and not tensor.is_quantized
        and not tensor.is_conj()
        and not tensor.is_neg()
        and tensor.numel() * tensor.element_size() >= BUFFER_BYTES_MIN
    )
    if not plain:
        return tensor.__reduce_ex__(5)
    flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
    return _tensor, (pickle.PickleBuffer(flat), tensor.dtype, tuple(tensor.shape))


def _tensor(buffer: Any, dtype: Any, shape: tuple[int, ...]) -> Any:
    import warnings

    import torch

    with warnings.catch_warnings():
        # torch has no read-only tensors and says so, once. Writing to an object faults.
        warnings.simplefilter("ignore")
        return torch.frombuffer(buffer, dtype=dtype).reshape(shape)


# ---------------------------------------------------------------------- what cannot be pickled

_PARTS_LOOKED_AT_MAX = 10_000


class Unpicklable(NamedTuple):
    """A part of a value that cannot be pickled, though all that it holds can."""

    path: str
    step: str
    """The end of the path: from the value that holds it."""
    part: object
    reason: BaseException
    """What pickle raises."""
    parent: object
    """What holds it; None for the value itself."""


def find_unpicklable(value: object, name: str, depth: int | None = None) -> Iterator[Unpicklable]:
    """The innermost parts of `value` that cannot be pickled, or those at most `depth` steps in."""
    seen: set[int] = set()
    keep: list[object] = []  # so that no id in `seen` is used twice

    def look(part: object, path: str, step: str, parent: object, left: int | None) -> Iterator[Any]:
        if id(part) in seen or len(seen) > _PARTS_LOOKED_AT_MAX:
            return
        seen.add(id(part))
        keep.append(part)
        reason = why_unpicklable(part)
        if reason is None:
            return
        guilty_parts = False
        if left != 0:
            for further, inner in parts(part):
                deeper = None if left is None else left - 1
                for found in look(inner, path + further, further, part, deeper):
                    guilty_parts = True
                    yield found
        if not guilty_parts:
            yield Unpicklable(path, step, part, reason, parent)

    try:
        yield from look(value, name, name, None, depth)
    except RecursionError:
        return


def why_unpicklable(value: object) -> BaseException | None:
    """What pickling `value` raises, or None."""
    try:
        _core._try_pickling(value)
    except Exception as error:
        return error
    return None


def parts(value: object) -> Iterator[tuple[str, object]]:
    """The values that the pickle of `value` would hold, each with the step that leads to it."""
    if isinstance(value, dict):
        for key, inner in list(value.items()):
            yield f"[{_short(key)}]", inner
            yield f" (key {_short(key)})", key
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield f"[{index}]", inner
        yield from _attributes(value)
    elif isinstance(value, set | frozenset):
        for inner in list(value):
            yield f" (member {_short(inner)})", inner
    elif isinstance(value, types.FunctionType):
        yield from _captured(value)
    elif isinstance(value, types.MethodType):
        yield ".__self__", value.__self__
        yield ".__func__", value.__func__
    elif isinstance(value, type):
        for key, inner in list(vars(value).items()):
            if isinstance(inner, staticmethod | classmethod):
                yield f".{key}", inner.__func__
            elif key not in ("__dict__", "__weakref__"):
                yield f".{key}", inner
    elif isinstance(value, BaseException):
        yield ".args", value.args
        yield from _attributes(value)
    elif not isinstance(
        value, str | bytes | int | float | types.ModuleType | types.BuiltinMethodType
    ):
        wrapped = getattr(value, "__wrapped__", None)
        if wrapped is not None:
            yield ".__wrapped__", wrapped
        yield from _attributes(value)


def _captured(function: types.FunctionType) -> Iterator[tuple[str, object]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield f" (captured variable {name!r})", cell.cell_contents
        except ValueError:
            continue  # not assigned yet
    for name in _global_names(function.__code__):
        if name in function.__globals__:
            yield f" (global variable {name!r})", function.__globals__[name]
    for name, inner in (function.__kwdefaults__ or {}).items():
        yield f" (default of {name!r})", inner
    for index, inner in enumerate(function.__defaults__ or ()):
        yield f" (default {index})", inner


def _global_names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _global_names(constant)


def _attributes(value: object) -> Iterator[tuple[str, object]]:
    """Of `__getstate__` where the class has its own, else of the object itself."""
    if type(value).__getstate__ is not object.__getstate__:
        try:
            state = value.__getstate__()
        except Exception:
            return
        states = state if isinstance(state, tuple) else (state,)
        for part in states:
            if isinstance(part, dict):
                for key, inner in list(part.items()):
                    yield f".{key}", inner
        return
    for key, inner in list(getattr(value, "__dict__", {}).items()):
        yield f".{key}", inner
    for cls in type(value).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for key in (slots,) if isinstance(slots, str) else slots:
            if hasattr(value, key):
                yield f".{key}", getattr(value, key)


def _short(value: object) -> str:
    try:
        text = repr(value)
    except Exception:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 40 else f"{text[:37]}..."


def _type_name(value: object) -> str:
    cls = type(value)
    return (
        cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
    )
