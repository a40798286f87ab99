"""The guide says what is true: its programs run and print what they are shown to print.

The ```python blocks of a page are one program, run in order in a process of its own. The program
has the page's line numbers, so that a traceback points into the page. Between the fences:

    ```python            runs
    ```python no-run     is only compiled: what cannot run in a test, such as another machine's part
    ```text              right behind a ```python block: what that block prints; `...` is anything

Other pages' promises are checked as well: links lead somewhere, every error has its section, and
every option and public name is mentioned.
"""

from __future__ import annotations

import doctest
import itertools
import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from conftest import TREE, assert_nothing_left, run_driver

import hoplo
from hoplo import _api, _options, exceptions

NODE = None

GUIDE = TREE / "docs" / "guide"
PAGES = sorted([*GUIDE.glob("*.md"), *(TREE / "docs" / "internals").glob("*.md")])
if (TREE / "README.md").exists():
    PAGES.append(TREE / "README.md")
PAGE_SECONDS_MAX = 100

MARK = "\x1e"
WORKER_LINE = re.compile(r"\(.* pid=\d+(, ip=[\d.]+)?\)")


@dataclass
class Block:
    """A fenced piece of a page."""

    kind: str
    """What stands behind the fence, such as `python no-run`."""
    line: int
    """Of its first line of code, from 1."""
    lines: list[str] = field(default_factory=list)
    follows: bool = False
    """Whether only empty lines are between the block before and this one."""

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


def blocks_of(page: Path) -> list[Block]:
    blocks: list[Block] = []
    inside: Block | None = None
    follows = False
    for number, line in enumerate(page.read_text().splitlines(), start=1):
        if line.startswith("```"):
            if inside is None:
                inside = Block(line[3:].strip(), number + 1, follows=follows)
            else:
                blocks.append(inside)
                inside, follows = None, True
        elif inside is not None:
            inside.lines.append(line)
        else:
            assert not line.lstrip().startswith("```"), f"{page.name}:{number}: an indented fence"
            follows = follows and not line.strip()
    assert inside is None, f"{page.name}: the fence at line {inside and inside.line} stays open"
    return blocks


def program_of(blocks: list[Block]) -> str:
    """Every block at its own lines; on the line of its fence, a mark that says it begins."""
    lines: list[str] = []
    for block in blocks:
        lines += [""] * (block.line - 2 - len(lines))
        lines.append(f"print({MARK + str(block.line)!r}, flush=True)")
        lines += block.lines
    return "\n".join(lines) + "\n"


def outputs_of(printed: str) -> dict[int, str]:
    """What each block printed, by its line; what workers printed comes any time: it is left out."""
    outputs = {}
    for part in printed.split(MARK)[1:]:
        line, _, text = part.partition("\n")
        own = [one for one in text.splitlines() if not WORKER_LINE.match(one)]
        outputs[int(line)] = "".join(f"{one.rstrip()}\n" for one in own)
    return outputs


def name_of(page: Path) -> str:
    return str(page.relative_to(TREE))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_pages_programs_run_and_print_what_it_says(page: Path, tmp_path: Path) -> None:
    blocks = blocks_of(page)
    known = {"python", "python no-run", "text", "bash", "console", "sh", "toml", "json", ""}
    for block in blocks:
        assert block.kind in known, f"{page.name}:{block.line}: what is {block.kind!r}?"
        if block.kind.startswith("python"):
            compile("\n" * (block.line - 1) + block.text, str(page), "exec")
    programs = [block for block in blocks if block.kind == "python"]
    if not programs:
        return
    done = run_driver(
        program_of(programs), check=False, timeout=PAGE_SECONDS_MAX, cwd=str(tmp_path)
    )
    assert done.returncode == 0, f"{name_of(page)}, by its lines:\n{done.stdout}\n{done.stderr}"
    assert_nothing_left()

    outputs = outputs_of(done.stdout)
    checker = doctest.OutputChecker()
    wrong = []
    for before, block in itertools.pairwise(blocks):
        if before.kind == "python" and block.kind == "text" and block.follows:
            got = outputs.get(before.line, "")
            want = "".join(f"{line.rstrip()}\n" for line in block.lines)
            if not checker.check_output(want, got, doctest.ELLIPSIS):
                wrong.append(f"{name_of(page)}:{block.line} says\n{want}\nand it prints\n{got}")
    assert not wrong, "\n\n".join(wrong) + f"\n\nstderr:\n{done.stderr}"


# ------------------------------------------------------------------------------- links


def anchors_of(page: Path) -> set[str]:
    """What headings can be linked as: lower case, words joined by dashes."""
    found = set()
    fenced = False
    for line in page.read_text().splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced and line.startswith("#"):
            title = re.sub(r"[^\w\- ]", "", line.lstrip("#").strip().lower())
            found.add(title.replace(" ", "-"))
    return found


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    dead = []
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        other = (page.parent / file).resolve() if file else page
        if not other.exists() or (anchor and anchor not in anchors_of(other)):
            dead.append(target)
    assert not dead, f"{name_of(page)} links to {', '.join(dead)}"


# ------------------------------------------------------------------------------- nothing missing


def named_in(*pages: str) -> set[str]:
    """Every name that stands in code font or in a block."""
    names: set[str] = set()
    for page in pages:
        text = (GUIDE / page).read_text()
        for code in re.findall(r"```.*?```|`[^`\n]+`", text, flags=re.DOTALL):
            names.update(re.findall(r"[A-Za-z_]\w*", code))
    return names


def public(names: object) -> set[str]:
    return {name for name in names if not name.startswith("_")}  # type: ignore[attr-defined]


def test_every_error_has_its_section() -> None:
    sections = set(re.findall(r"^#+ `?(\w+)`?$", (GUIDE / "errors.md").read_text(), re.MULTILINE))
    assert set(exceptions.__all__) <= sections


def test_every_option_is_documented() -> None:
    assert public(_api._INIT_OPTIONS) <= named_in("start.md")
    assert public(_options._TASK) <= named_in("tasks.md")
    assert public(_options._ACTOR) <= named_in("actors.md")
    assert public(_options._METHOD) <= named_in("actors.md")


def test_every_public_name_is_mentioned() -> None:
    guide = named_in(*(page.name for page in GUIDE.glob("*.md")))
    assert public(hoplo.__all__) <= guide
    assert public(hoplo.util.__all__) <= guide
