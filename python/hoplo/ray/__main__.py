"""`python -m hoplo.ray program.py ...`: runs a program for which `import ray` is hoplo.

    python -m hoplo.ray program.py ARGS     a file
    python -m hoplo.ray -m module ARGS      a module, such as pytest
    python -m hoplo.ray -c "code" ARGS      what stands there

Its workers import `ray` from here as well, since they import from where the program does.
"""

from __future__ import annotations

import io
import os
import sys
import types

USAGE = "usage: python -m hoplo.ray [program.py | -m module | -c code] [arguments]"


def main(arguments: list[str]) -> int:
    """Runs the program; the exit status where it could not be."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE if arguments else f"hoplo.ray: nothing to run; {USAGE}", file=sys.stderr)
        return 0 if arguments else 2
    alias = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_as_ray")
    kind, rest = arguments[0], arguments[1:]
    if kind in ("-m", "-c") and not rest:
        print(f"hoplo.ray: nothing stands after {kind}; {USAGE}", file=sys.stderr)
        return 2
    # Behind the program's own folder, in front of what is installed.
    if kind == "-m":
        sys.path.insert(1, alias)
        sys.argv = rest
        import runpy

        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        return 0
    if kind == "-c":
        sys.path[0:1] = ["", alias]
        sys.argv = ["-c", *rest[1:]]
        _run(rest[0], "<string>", None)
        return 0
    try:
        with io.open_code(os.path.abspath(kind)) as file:
            code = file.read()
    except OSError as error:
        print(f"hoplo.ray: cannot read {kind}: {error.strerror}", file=sys.stderr)
        return 2
    sys.path[0:1] = [os.path.dirname(os.path.abspath(kind)), alias]
    sys.argv = arguments
    _run(code, kind, kind)
    return 0


def _run(code: str | bytes, name: str, file: str | None) -> None:
    """Runs code as the main module."""
    module = types.ModuleType("__main__")
    if file is not None:
        module.__file__ = file
    sys.modules["__main__"] = module
    exec(compile(code, name, "exec"), module.__dict__)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
