"""Builds one wheel that holds the extension module `hoplo._core` and the program `hoplo`.

Everything that can be said without code is in pyproject.toml.
"""

import tomllib
from pathlib import Path

from setuptools import setup
from setuptools_rust import Binding, RustBin, RustExtension

ROOT = Path(__file__).parent


def version() -> str:
    """The one place that holds the version is the Cargo workspace."""
    manifest = tomllib.loads((ROOT / "Cargo.toml").read_text())
    return str(manifest["workspace"]["package"]["version"])


def readme() -> str:
    path = ROOT / "README.md"
    return path.read_text() if path.exists() else ""


setup(
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
