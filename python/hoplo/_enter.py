"""The script that begins a worker in a Python of a runtime environment, as the zygote does by fork.

    <program of the environment> .../_enter.py WORLD WORKER                 becomes a worker
    <program of the environment> .../_enter.py --check FD LENT VERSION      says whether it could

WORLD is a descriptor with JSON: what the worker finds around itself (`_worker_process.execute`
writes it). WORKER is its socket. The check writes "yes" to FD, or what is wrong.

hoplo is always the node's own, whatever that Python has installed: a worker must speak as its
daemon does. So is cloudpickle, which lies in LENT: what one version pickles, another one may not
read. So a Python needs nothing of ours; it must be of the same minor version, since hoplo is
compiled, and what one Python pickles another one may not read. This file runs in any Python that
somebody names: until it has looked at the version it uses nothing that older ones lack.
"""

from __future__ import annotations

import json
import os
import sys
from importlib.machinery import PathFinder

TYPE_CHECKING = False  # `typing` takes a while
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType


def lent() -> str:
    """The folder from which the node lends cloudpickle."""
    import cloudpickle

    return str(os.path.dirname(os.path.dirname(os.path.abspath(cloudpickle.__file__))))


class _FromNode:
    """Finds one top-level name in one folder, and nothing else there."""

    def __init__(self, name: str, folder: str) -> None:
        self._name = name
        self._folder = folder

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The same questions as every finder of `sys.meta_path` is asked."""
        if path is not None or name != self._name:
            return None
        return PathFinder.find_spec(name, [self._folder])


def _borrow(folder: str) -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    # A script's folder comes first in the path, and this one is hoplo itself.
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    for name, place in (("hoplo", os.path.dirname(here)), ("cloudpickle", folder)):
        sys.meta_path.insert(0, _FromNode(name, place))


def _wrong(folder: str, version: str) -> str:
    """Why no worker can run here; empty if one can."""
    import platform

    kind, own = platform.python_implementation(), ".".join(platform.python_version_tuple()[:2])
    if (kind, own) != ("CPython", version):
        return (
            f"runs {kind} {own}, and workers of this node need CPython {version}: name a program "
            f"of that version"
        )
    _borrow(folder)
    try:
        import cloudpickle  # noqa: F401

        import hoplo._worker_process  # noqa: F401
    except Exception as error:
        return f"cannot import hoplo ({type(error).__name__}: {error}): what it has breaks that"
    return ""


def _path(request: dict[str, list[str]]) -> list[str]:
    """What the task names and what lies beside the program; then what this Python has; then, if the
    environment inherits them, the packages of the program."""
    driver = request["sys_path"]
    standard = [at for at, entry in enumerate(driver) if _is_standard(entry)]
    before = driver[: standard[0]] if standard else []
    path = [*request["added"], *before, *sys.path]
    if request["inherits"]:
        path += [it for it in driver[len(before) :] if it not in path and not _is_standard(it)]
    return path


def _is_standard(entry: str) -> bool:
    """Whether it is of a standard library, such as .../python311.zip or .../python3.11."""
    name = os.path.basename(entry)
    if name == "lib-dynload":
        return True
    return name.startswith("python3") and name[6:].replace(".zip", "").replace(".", "").isdigit()


def main() -> None:
    if sys.argv[1] == "--check":
        told, folder, version = sys.argv[2:]
        os.write(int(told), (_wrong(folder, version) or "yes").encode())
        return
    with os.fdopen(int(sys.argv[1])) as file:
        request = json.load(file)
    _borrow(request["lent"])
    sys.path[:] = _path(request)
    from hoplo import _worker_process

    _worker_process.live(request, int(sys.argv[2]))


if __name__ == "__main__":
    main()
