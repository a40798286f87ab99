"""Which files a package leaves out: patterns as in `.gitignore`.

The last pattern that fits decides, and one that begins with `!` takes in again. What lies in a
folder that is left out is left out, whatever fits it: nobody looks into that folder. A pattern with
a slash at its beginning or inside is meant from the folder of its file; another one fits a name at
any depth. One that ends with a slash fits folders only. `*` and `?` do not fit a slash, `**`
between slashes fits any number of folders.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

FILES = (".gitignore", ".rayignore")
"""The files that are read, in every folder. A later one goes first."""

ALWAYS = frozenset({".git", "__pycache__"})
"""Names that are never packed."""


class Rules:
    """The patterns of one file, or of one list, in the order in which they were written."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._patterns = [pattern for line in lines if (pattern := _Pattern.of(line)) is not None]

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def verdict(self, path: str, is_folder: bool) -> bool | None:
        """Whether `path`, below the folder of the rules, is left out; None: they do not say."""
        for pattern in reversed(self._patterns):
            if (is_folder or not pattern.folders_only) and pattern.fits(path):
                return not pattern.takes_in
        return None


def is_left_out(path: str, is_folder: bool, rules: Sequence[tuple[str, Rules]]) -> bool:
    """By rules and the folders that they are of ("" or "a/b/"); the last ones that speak decide."""
    if path.rpartition("/")[2] in ALWAYS:
        return True
    for folder, ones in reversed(rules):
        if path.startswith(folder):
            verdict = ones.verdict(path[len(folder) :], is_folder)
            if verdict is not None:
                return verdict
    return False


class _Pattern:
    def __init__(self, text: str, takes_in: bool) -> None:
        self.takes_in = takes_in
        self.folders_only = text.endswith("/")
        text = text.rstrip("/")
        self.fits = re.compile(_expression(text), re.DOTALL).fullmatch

    @staticmethod
    def of(line: str) -> _Pattern | None:
        text = line.rstrip("\n\r")
        while text.endswith(" ") and not text.endswith("\\ "):
            text = text[:-1]
        if not text or text.startswith("#"):
            return None
        takes_in = text.startswith("!")
        text = text[1:] if takes_in else text
        return _Pattern(text, takes_in) if text.strip("/") else None


def _expression(text: str) -> str:
    anchored = "/" in text
    parts = text.removeprefix("/").split("/")
    made = [] if anchored else ["(?:.*/)?"]
    for at, part in enumerate(parts):
        is_last = at == len(parts) - 1
        if part == "**":
            made.append(".*" if is_last else "(?:.*/)?")
        else:
            made.append(_name_expression(part) + ("" if is_last else "/"))
    return "".join(made)


def _name_expression(part: str) -> str:
    made, at = [], 0
    while at < len(part):
        char = part[at]
        at += 1
        if char == "*":
            made.append("[^/]*")
        elif char == "?":
            made.append("[^/]")
        elif char == "\\" and at < len(part):
            made.append(re.escape(part[at]))
            at += 1
        elif char == "[" and (end := part.find("]", at + 1 + (part[at : at + 1] in "!^"))) > 0:
            negated = part[at] in "!^"
            inside = part[at + negated : end].replace("\\", "\\\\").replace("[", "\\[")
            inside = inside.replace("^", "\\^").replace("]", "\\]")
            inside = re.sub(r"([&|~-])(?=\1)", r"\\\1", inside)
            made.append(f"(?!/)[{'^' if negated else ''}{inside}]")
            at = end + 1
        else:
            made.append(re.escape(char))
    return "".join(made)
