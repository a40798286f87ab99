"""How many threads libraries start in a worker: as many as its task or actor has whole CPUs.

OpenMP, OpenBLAS (numpy) and MKL (torch) start a thread for each core of the machine, unless
`OMP_NUM_THREADS` says how many. A machine full of workers would then have cores times cores of
them. They read the variable when they are loaded, so a worker sets it before it loads what it runs:

    zygote   imports numpy for its forks          `sparing`: 1
    worker   begins                               `begin`: 1
             is given what has other CPUs         `use`: that many, before the function is loaded

Where the node's environment or that of the task has the variable, it stays as it is. OpenBLAS that
is loaded already is told: numpy often is, by the zygote.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

VARIABLE = "OMP_NUM_THREADS"
_OF_OPENBLAS = ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", VARIABLE)
"""What OpenBLAS reads; the first that is there counts."""

_is_ours = False
"""The variable is of this process, and of nobody's environment."""
_loaded_with: str | None = None
"""What OpenBLAS read in the zygote, if it was loaded there."""


@contextlib.contextmanager
def sparing() -> Iterator[None]:
    """What is imported meanwhile starts one thread, unless the node's environment says more."""
    global _loaded_with
    is_given = VARIABLE in os.environ
    os.environ.setdefault(VARIABLE, "1")
    try:
        yield
        if "numpy" in sys.modules and _loaded_with is None:
            _loaded_with = _wanted()
    finally:
        if not is_given:
            del os.environ[VARIABLE]


def begin() -> None:
    """In a worker that begins, whose environment is its own by now."""
    global _is_ours
    _is_ours = VARIABLE not in os.environ
    if _is_ours:
        os.environ[VARIABLE] = "1"
    if _wanted() != _loaded_with:
        _tell_openblas()


def use(cpus: int) -> None:
    """What runs here from now on has so many CPUs."""
    if _is_ours:
        os.environ[VARIABLE] = str(cpus)
        _tell_openblas()


def _wanted() -> str:
    """Of OpenBLAS, as text."""
    return next((os.environ[name] for name in _OF_OPENBLAS if os.environ.get(name)), "")


def _tell_openblas() -> None:
    """Has OpenBLAS use as many threads as it would if it was loaded now."""
    if "numpy" not in sys.modules:
        return
    wanted = _wanted()
    if not wanted.isdecimal() or int(wanted) < 1:
        return
    import ctypes

    for path in _openblas():
        try:
            library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD)
        except OSError:
            continue  # its file is there no more
        for prefix in ("", "scipy_"):
            for suffix in ("", "64_"):
                tell = getattr(library, f"{prefix}openblas_set_num_threads{suffix}", None)
                if tell is not None:
                    tell(int(wanted))


def _openblas() -> set[str]:
    """The files of it that are loaded: numpy and scipy have one each."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
            paths = (line.split(maxsplit=5)[5:] for line in maps if "openblas" in line)
            return {path.rstrip("\n") for (path,) in paths if "openblas" in os.path.basename(path)}
    except OSError:
        return set()
