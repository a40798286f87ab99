"""What comments and the pages for engineers name in code font is there: no name of yesterday."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import TREE

NODE = None

PAGES = [TREE / "ARCHITECTURE.md", TREE / "CONTRIBUTING.md"]
PAGES += sorted((TREE / "docs" / "internals").glob("*.md"))
SOURCES = [
    path
    for pattern in ("crates/**/*.rs", "crates/**/*.toml", "python/**/*.py", "python/**/*.pyi")
    for path in TREE.glob(pattern)
]
SOURCES += [*TREE.glob("bench/*.py"), *TREE.glob("tests/**/*.py"), *TREE.glob("examples/*.py")]
SOURCES += [TREE / "Makefile", TREE / "setup.py", TREE / "pyproject.toml"]

ELSEWHERE = {
    "CLOCK_MONOTONIC",
    "FUTEX_WAIT_BITSET",
    "FUTEX_WAKE_BITSET",
    "MADV_POPULATE_WRITE",
    "SCHED_IDLE",
    "StorageFull",
    "epoll_wait",
    "guest_halt_poll_ns",
}
ELSEWHERE |= {"test_it"}
"""Names of the kernel's, of Rust's and of examples."""
BUILT = {"hoplo_control_certificate_seconds", "counted_put_small", "every_seed"}
BUILT |= {"CPU_group_", "CPU_group_1_", "bundle_group_", "bundle_group_1_"}
"""Names that programs put together, and beginnings of names."""

COMMENT = re.compile(r"^\s*//[/!]?(.*)")
WORD = re.compile(r"[A-Za-z_]\w*")


def is_a_name_of_code(word: str) -> bool:
    return "_" in word.strip("_") or re.search("[a-z][A-Z]", word) is not None


@pytest.fixture(scope="module")
def known() -> set[str]:
    words = set(ELSEWHERE | BUILT)
    for path in SOURCES:
        words.add(path.stem)
        is_rust = path.suffix == ".rs"
        for line in path.read_text().splitlines():
            if not (is_rust and COMMENT.match(line)):
                words.update(WORD.findall(line))
    return words


def documented(path: Path) -> list[str]:
    """The lines for readers: all of a page, the comments of a program."""
    lines = path.read_text().splitlines()
    if path.suffix == ".md":
        return lines
    return [match.group(1) for line in lines if (match := COMMENT.match(line))]


@pytest.mark.skipif(not (TREE / "crates").exists(), reason="installed without its sources")
def test_no_comment_names_what_is_not_there(known: set[str]) -> None:
    gone = []
    for path in [*PAGES, *(path for path in SOURCES if path.suffix == ".rs")]:
        for code in re.findall("`([^`]+)`", "\n".join(documented(path))):
            if re.fullmatch(r"(crates|docs|python|bench|tests)/[\w./-]+\.\w+", code):
                missing = [] if (TREE / code).exists() else [code]
            else:
                words = filter(is_a_name_of_code, WORD.findall(code))
                missing = [word for word in words if word not in known]
            gone += [f"{path.relative_to(TREE)}: {word}" for word in missing]
    assert gone == [], "nothing has these names now; a name of another program goes into ELSEWHERE"
