"""`inspect_serializability`, with the arguments of Ray's, and parts as Ray gives them."""

from __future__ import annotations

from typing import Any, TextIO

from hoplo._serialization import find_unpicklable, why_unpicklable

__all__ = ["FailureTuple", "inspect_serializability"]


class FailureTuple:
    """A part of a value that cannot be pickled.

    `obj` is the part, `name` what it is called where it is held, `parent` the value that holds it
    (the value itself, if that is the part), `path` how the whole leads to it, `reason` what pickle
    says.
    """

    def __init__(
        self, obj: Any, name: str, parent: Any, *, path: str | None = None, reason: str = ""
    ) -> None:
        self.obj = obj
        self.name = name
        self.parent = parent
        self.path = name if path is None else path
        self.reason = reason

    def __repr__(self) -> str:
        return f"FailTuple({self.name} [obj={self.obj}, parent={self.parent}])"


def inspect_serializability(
    base_obj: Any, name: str | None = None, depth: int = 3, print_file: TextIO | None = None
) -> tuple[bool, set[FailureTuple]]:
    """Whether `base_obj` can be sent to another process, and its innermost parts that cannot.

    What is more than `depth` steps inside is told as the part at that depth that holds it. All of
    it is printed as well, to `print_file` or standard output: of each part where it is, what holds
    it, and what pickle says.

    >>> import threading
    >>> lock = threading.Lock()
    >>> fine, failures = inspect_serializability({"steps": [lock]}, name="config")
    config (dict) cannot be pickled: in it
      config['steps'][0] (lock), which a list holds: cannot pickle '_thread.lock' object
    Make such a part inside the task or in the actor's constructor, or leave it out in __getstate__.
    >>> [failure] = failures
    >>> failure.obj is lock, failure.name, failure.parent
    (True, '[0]', [<unlocked _thread.lock object at 0x...>])
    """
    shown = name or getattr(base_obj, "__name__", None) or type(base_obj).__name__

    def tell(line: str) -> None:
        print(line, file=print_file)

    error = why_unpicklable(base_obj)
    kind = type(base_obj).__name__
    if error is None:
        tell(f"{shown} can be pickled")
        return True, set()
    failures = []
    for found in find_unpicklable(base_obj, shown, depth):
        is_whole = found.parent is None
        failures.append(
            FailureTuple(
                found.part,
                _bare(found.step),
                base_obj if is_whole else found.parent,
                path=found.path,
                reason=str(found.reason),
            )
        )
    if [failure for failure in failures if failure.obj is not base_obj]:
        tell(f"{shown} ({kind}) cannot be pickled: in it")
        for failure in failures:
            holder = type(failure.parent).__name__
            what = f"  {failure.path} ({type(failure.obj).__name__}), which a {holder} holds"
            tell(f"{what}: {failure.reason}")
    else:
        tell(f"{shown} ({kind}) cannot be pickled: {error}")
        failures = failures or [FailureTuple(base_obj, shown, base_obj, reason=str(error))]
    tell(
        "Make such a part inside the task or in the actor's constructor, or leave it out in "
        "__getstate__."
    )
    return False, set(failures)


_WORDS = (" (captured variable ", " (global variable ", " (default of ")


def _bare(step: str) -> str:
    """The name alone, where the step is one: `.lock`, ` (captured variable 'lock')`."""
    for words in _WORDS:
        if step.startswith(words):
            return step[len(words) : -1].strip("'")
    return step.removeprefix(".")
