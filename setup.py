"""Builds one wheel that holds the extension module `hoplo._core` and the program `hoplo`.

Everything that can be said without code is in pyproject.toml.
"""

import os
import re
import tomllib
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools_rust import Binding, RustBin, RustExtension

ROOT = Path(__file__).parent


def version() -> str:
    """The one place that holds the version is the Cargo workspace."""
    manifest = tomllib.loads((ROOT / "Cargo.toml").read_text())
    return str(manifest["workspace"]["package"]["version"])


def readme() -> str:
    path = ROOT / "README.md"
    return path.read_text() if path.exists() else ""


class Wheel(bdist_wheel):
    """Its name says which Python and which glibc the binaries in it need.

    pip refuses it where these are missing. The Python is that which runs this, or another one for
    which the extension is built, as PyO3 is told.
    """

    def get_tag(self) -> tuple[str, str, str]:
        python, abi, platform = super().get_tag()
        if version := os.environ.get("PYO3_CROSS_PYTHON_VERSION"):
            python = abi = "cp" + version.replace(".", "")
        system, _, machine = platform.partition("_")
        needed = glibc_needed_by(Path(self.bdist_dir))
        if system == "linux" and needed:
            platform = f"manylinux_2_{needed}_{machine}"
        return python, abi, platform


def glibc_needed_by(folder: Path) -> int:
    """The N of the glibc 2.N that the binaries in a folder were linked to; 0 if to none."""
    binaries = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    binaries = [data for data in binaries if data.startswith(b"\x7fELF")]
    # Each version that the dynamic linker looks for is a text of its own.
    return max((int(n) for data in binaries for n in _VERSION.findall(data)), default=0)


_VERSION = re.compile(rb"\0GLIBC_2\.(\d+)(?=[.\0])")

setup(
    cmdclass={"bdist_wheel": Wheel},
    version=version(),
    long_description=readme(),
    long_description_content_type="text/markdown",
    rust_extensions=[
        RustExtension(
            "hoplo._core",
            path="crates/py/Cargo.toml",
            binding=Binding.PyO3,
            args=["--locked"],
            debug=False,
        ),
        RustBin(
            "hoplo",
            path="crates/cli/Cargo.toml",
            args=["--locked"],
            debug=False,
        ),
    ],
)
