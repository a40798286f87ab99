"""Counts words: map tasks split their counts by word, reduce tasks merge one part each.

    python examples/map_reduce.py [FILE...]

Without files it counts the words of Python's own standard library.
"""

import sys
import sysconfig
from collections import Counter
from pathlib import Path

import hoplo
from hoplo.util import as_completed

PARTS = 4
FILES_PER_TASK = 8


@hoplo.remote(num_returns=PARTS)
def count_words(paths: list[str]) -> list[Counter[str]]:
    """The words of some files, in PARTS counters: a word is always in the same one."""
    parts: list[Counter[str]] = [Counter() for _ in range(PARTS)]
    for path in paths:
        for word in Path(path).read_text(errors="replace").split():
            # Not hash(): it differs from process to process.
            parts[sum(word.encode()) % PARTS][word] += 1
    return parts


@hoplo.remote
def merge(*counts: Counter[str]) -> Counter[str]:
    """One part's counts of all files together."""
    merged: Counter[str] = Counter()
    for count in counts:
        merged.update(count)
    return merged


def main(paths: list[str]) -> Counter[str]:
    chunks = [paths[i : i + FILES_PER_TASK] for i in range(0, len(paths), FILES_PER_TASK)]
    mapped = [count_words.remote(chunk) for chunk in chunks]
    reduced = [merge.remote(*(parts[i] for parts in mapped)) for i in range(PARTS)]

    words: Counter[str] = Counter()
    for part in as_completed(reduced, progress="parts"):
        words.update(part)
    return words


if __name__ == "__main__":
    library = Path(sysconfig.get_path("stdlib"))
    files = sys.argv[1:] or [str(path) for path in sorted(library.glob("*.py"))]
    with hoplo.init():
        counted = main(files)
    print(f"{counted.total()} words, {len(counted)} different, in {len(files)} files")
    for word, times in counted.most_common(8):
        print(f"{times:8}  {word}")
