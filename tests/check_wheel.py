"""Checks wheels as a user has them: `python tests/check_wheel.py dist/hoplo-*.whl`.

The platform in the name of each must be one that auditwheel finds to be true, and the extension in
it must be named for that machine. One for this Python and this machine is installed into a fresh
environment, where hoplo is imported, runs a task, and says its version.
"""

from __future__ import annotations

import platform
import re
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

PROGRAM = """
import hoplo

@hoplo.remote
def square(x):
    return x * x

with hoplo.init(num_cpus=1):
    assert hoplo.get([square.remote(x) for x in range(4)]) == [0, 1, 4, 9]
print(hoplo.__version__)
"""
SECONDS_MAX = 300


def main(wheels: list[str]) -> int:
    """0 if all is as it should be; else an error says what is not."""
    if not wheels:
        sys.exit("give at least one wheel")
    for wheel in map(Path, wheels):
        check_name(wheel)
        check_extension(wheel)
        print(f"{wheel.name}: its name is true", flush=True)
        here = f"-cp{sys.version_info[0]}{sys.version_info[1]}-"
        if here in wheel.name and wheel.stem.endswith(f"_{platform.machine()}"):
            print(f"{wheel.name}: installed, it runs a task of hoplo {run(wheel)}", flush=True)
    return 0


def check_name(wheel: Path) -> None:
    """Exits if the wheel's name promises another glibc than its binaries need."""
    named = wheel.stem.split("-")[-1]
    said = output(sys.executable, "-m", "auditwheel", "show", str(wheel))
    # It names the lowest platform that the binaries are for, in quotes: "manylinux_2_34_x86_64".
    found = re.findall(r'"((?:many)?linux_[a-z0-9_]+)"', said)
    if not named.startswith("manylinux_") or named not in found:
        sys.exit(f"{wheel.name}: not for {named}: auditwheel says\n{said}")


def check_extension(wheel: Path) -> None:
    """Exits if the extension has a name by which the wheel's Python does not look for it."""
    machine = re.sub(r"^manylinux_\d+_\d+_", "", wheel.stem.split("-")[-1])
    python = wheel.stem.split("-")[-3].removeprefix("cp")
    name = f"hoplo/_core.cpython-{python}-{machine}-linux-gnu.so"
    with zipfile.ZipFile(wheel) as files:
        if name not in files.namelist():
            sys.exit(f"{wheel.name}: lacks {name}")


def run(wheel: Path) -> str:
    """Its version, of the program and of the package, once a task has run."""
    with tempfile.TemporaryDirectory(prefix="hoplo-wheel-") as folder:
        home = Path(folder, "venv")
        venv.create(home, with_pip=True)
        python = str(home / "bin" / "python")
        output(python, "-m", "pip", "--quiet", "install", str(wheel.absolute()))
        version = output(python, "-I", "-c", PROGRAM).strip()
        said = output(str(home / "bin" / "hoplo"), "--version").strip()
    if said != f"hoplo {version}" or not version:
        sys.exit(f"{wheel.name}: `hoplo --version` says {said!r}, the package {version!r}")
    return version


def output(*line: str) -> str:
    """What a command prints; an error says what it printed when it failed."""
    done = subprocess.run(
        line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS_MAX
    )
    if done.returncode != 0:
        sys.exit(f"{' '.join(line)} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
