"""Makes a package: the files of a folder or an archive in one piece, equal for equal content.

    content of file 1 | content of file 2 | ... | index as JSON | length of the index, 8 bytes

The index lists `[path, kind, mode, size or target]`, sorted by path. Neither times nor owners nor
the place of the folder are in it, so equal files make equal bytes, on every machine. There is no
compression: the wire is faster than Python compresses. Whoever unpacks it copies contents straight
out of the object store; a tar or zip would have to be read through Python's file objects.

A link stays one as long as it points to something inside the folder. One that points elsewhere is
refused: it would point nowhere on another machine. Sockets, pipes and devices are left out.
"""

from __future__ import annotations

import json
import os
import stat
import struct
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO

from ._ignore import FILES, Rules, is_left_out

FILE, FOLDER, LINK = "f", "d", "l"
_LENGTH = struct.Struct("<Q")
_COPY_BYTES = 1 << 20
_TOLD_MAX = 5


class PackingError(ValueError):
    """A folder cannot be packed as it is. The text says why, and what to do."""


@dataclass
class Entry:
    """One thing of a package."""

    path: str
    kind: str
    mode: int
    size: int = 0
    target: str = ""
    source: str = ""
    """Where its content is read: a path, or a name in an archive."""
    stamp: tuple[int, ...] = ()
    """Changes when the file changes."""


@dataclass
class Scan:
    """What is to be packed."""

    what: str
    """For messages."""
    entries: list[Entry] = field(default_factory=list)
    size: int = 0
    archive: str | None = None
    """The archive that the sources are names in."""

    def fingerprint(self) -> tuple[object, ...]:
        """Equal, as far as the file system tells, for equal content."""
        return tuple((it.path, it.kind, it.mode, it.target, it.stamp) for it in self.entries)

    def changed_ns(self) -> int:
        """When the last of it changed, as the file system tells."""
        return max((it.stamp[-1] for it in self.entries if it.stamp), default=0)


def scan_folder(
    root: str, under: str, excludes: Sequence[str], what: str, bytes_max: int, files_max: int
) -> Scan:
    """The folder `root`, its files by paths below `under` ("" or "name/")."""
    scan = Scan(what)
    if under:
        scan.entries.append(Entry(under.rstrip("/"), FOLDER, _mode(os.stat(root).st_mode)))
    own = Rules(excludes)
    _walk(scan, os.path.realpath(root), "", under, [], own, files_max)
    return _checked(scan, under, bytes_max, files_max)


def scan_file(path: str, what: str, bytes_max: int) -> Scan:
    """One file, by its name."""
    found = os.stat(path)
    entry = Entry(os.path.basename(path), FILE, _mode(found.st_mode), found.st_size)
    entry.source, entry.stamp = path, _stamp(found)
    return _checked(Scan(what, [entry], found.st_size), "", bytes_max, 1)


def scan_archive(path: str, strip: bool, what: str, bytes_max: int, files_max: int) -> Scan:
    """What is in a zip file. `strip`: without the folder that all the rest is in, if it is."""
    scan = Scan(what, archive=path)
    stamp = _stamp(os.stat(path))
    seen: dict[str, Entry] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                name = member.filename.rstrip("/")
                parts = name.split("/")
                if not name or name.startswith("/") or ".." in parts or "\0" in name:
                    raise PackingError(
                        f"{what}: {path} names {member.filename!r}, which is no path inside it"
                    )
                mode = member.external_attr >> 16
                entry = Entry(name, FILE, _mode(mode) if mode else 0o644, member.file_size)
                entry.source, entry.stamp = member.filename, stamp
                if member.is_dir():
                    entry.kind, entry.mode, entry.size = FOLDER, 0o755, 0
                elif stat.S_ISLNK(mode):
                    entry.kind, entry.size = LINK, 0
                    entry.target = os.fsdecode(archive.read(member))
                    _inside(what, "", name, entry.target)
                seen[name] = entry
    except (zipfile.BadZipFile, OSError, NotImplementedError) as error:
        raise PackingError(f"{what}: {path} cannot be read as a zip file: {error}") from None
    tops = {name.partition("/")[0] for name in seen}
    if strip and len(tops) == 1 and any("/" in name for name in seen):
        top = tops.pop() + "/"
        seen = {name[len(top) :]: one for name, one in seen.items() if name.startswith(top)}
    for name, entry in seen.items():
        entry.path = name
        scan.entries.append(entry)
        scan.size += entry.size
    return _checked(scan, "", bytes_max, files_max)


def write(scan: Scan, out: IO[bytes]) -> None:
    """Writes the package. A file that changes meanwhile is packed as it was read."""
    archive = None if scan.archive is None else zipfile.ZipFile(scan.archive)
    index = []
    for entry in scan.entries:
        last: int | str = entry.target
        if entry.kind == FILE:
            try:
                with archive.open(entry.source) if archive else _open(entry.source) as source:
                    last = _copy(source, out)
            except (OSError, zipfile.BadZipFile, RuntimeError) as error:
                raise PackingError(
                    f"{scan.what}: {entry.source} cannot be read ({_reason(error)}): make it "
                    f"readable, or leave it out with excludes=[{entry.path!r}]"
                ) from None
        index.append([entry.path, entry.kind, entry.mode, last])
    text = json.dumps(index, separators=(",", ":")).encode()
    out.write(text)
    out.write(_LENGTH.pack(len(text)))
    if archive:
        archive.close()


def read_index(content: memoryview) -> list[tuple[str, str, int, int | str]]:
    """The index of a package, whose parts are looked at before they are believed."""
    if len(content) < _LENGTH.size:
        raise ValueError("it is too short")
    (length,) = _LENGTH.unpack(content[-_LENGTH.size :])
    begin = len(content) - _LENGTH.size - length
    if begin < 0:
        raise ValueError("its index is longer than it is")
    index = json.loads(bytes(content[begin : -_LENGTH.size]))
    total = sum(last for _, kind, _, last in index if kind == FILE)
    if total != begin:
        raise ValueError(f"its files take {begin} bytes, and {total} by its index")
    for path, _, _, _ in index:
        if path.startswith("/") or ".." in path.split("/"):
            raise ValueError(f"it names {path!r}")
    return [(path, kind, mode, last) for path, kind, mode, last in index]


# ---------------------------------------------------------------------------------- the walk


def _walk(
    scan: Scan,
    root: str,
    folder: str,
    under: str,
    outer: list[tuple[str, Rules]],
    own: Rules,
    files_max: int,
) -> None:
    """`folder`: "" or "a/b/", below `root`. `outer`: the rules of ignore files further up."""
    at = os.path.join(root, folder)
    try:
        with os.scandir(at) as found:
            names = sorted(found, key=lambda one: one.name)
    except OSError as error:
        raise _unreadable(scan.what, at, folder.rstrip("/"), error) from None
    rules = list(outer)
    there = {one.name for one in names}
    for name in FILES:
        if name in there:
            rules.append((folder, _rules_of(scan.what, os.path.join(at, name), folder + name)))
    for one in names:
        path = folder + one.name
        try:
            seen = one.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue  # it went meanwhile
        is_folder = stat.S_ISDIR(seen.st_mode)
        # What the environment says goes over what lies in files.
        if is_left_out(path, is_folder, [*rules, ("", own)]):
            continue
        entry = Entry(under + path, FILE, _mode(seen.st_mode), stamp=_stamp(seen))
        if is_folder:
            entry.kind, entry.stamp = FOLDER, ()
        elif stat.S_ISLNK(seen.st_mode):
            entry.kind, entry.mode = LINK, 0o777
            entry.target = _inside(scan.what, root, path, os.readlink(one.path))
        elif stat.S_ISREG(seen.st_mode):
            entry.size, entry.source = seen.st_size, one.path
        else:
            continue
        scan.entries.append(entry)
        scan.size += entry.size
        if len(scan.entries) > files_max:
            return
        if is_folder:
            _walk(scan, root, path + "/", under, rules, own, files_max)


def _rules_of(what: str, path: str, shown: str) -> Rules:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return Rules(file)
    except OSError as error:
        raise _unreadable(what, path, shown, error) from None


def _inside(what: str, root: str, path: str, target: str) -> str:
    """Where a link points, from where it lies."""
    base = os.path.dirname(path)
    if target.startswith("/"):
        # By name or by what is behind it: both may be inside.
        for place in (target, os.path.realpath(target)):
            if root and (place + "/").startswith(root.rstrip("/") + "/"):
                return os.path.relpath(place, os.path.join(root, base))
    else:
        parts = os.path.normpath(os.path.join(base, target)).split("/")
        if parts[0] != "..":
            return target
    raise PackingError(
        f"{what}: {path} is a link to {target}, outside of the folder, where no other machine has "
        f"it: put a copy in its place, or leave it out with excludes=[{path!r}]"
    )


def _checked(scan: Scan, under: str, bytes_max: int, files_max: int) -> Scan:
    scan.entries.sort(key=lambda it: it.path)
    if scan.size <= bytes_max and len(scan.entries) <= files_max:
        return scan
    if scan.size > bytes_max:
        most = f"takes {shown(scan.size)}, and may take {shown(bytes_max)}"
        told = [
            f"{path} ({shown(size)})" for path, size in largest(scan, under, lambda it: it.size)
        ]
    else:
        most = f"has more than {files_max} files, which is the most"
        told = [f"{path} ({count} files)" for path, count in largest(scan, under, lambda _: 1)]
    example = told[0].rpartition(" (")[0]
    raise PackingError(
        f"{scan.what} {most}. Most of it: {', '.join(told)}. Leave out what workers do not need, "
        f"with runtime_env={{'excludes': [{'/' + example!r}, ...]}} or a line in .gitignore; hand "
        f"over large data by hoplo.put(), or let workers read it where it lies"
    )


def largest(scan: Scan, under: str, weigh: Callable[[Entry], int]) -> Iterator[tuple[str, int]]:
    """The heaviest folders and files, each as deep as one thing makes up nearly all of it."""
    weights: dict[str, int] = {}
    children: dict[str, set[str]] = {}
    for entry in scan.entries:
        path, weight = entry.path.removeprefix(under), weigh(entry)
        while path:
            weights[path] = weights.get(path, 0) + weight
            parent = path.rpartition("/")[0]
            children.setdefault(parent, set()).add(path)
            path = parent
    tops = sorted(children.get("", ()), key=lambda path: (-weights[path], path))
    for path in tops[:_TOLD_MAX]:
        weight = weights[path]
        if weight == 0:
            return
        while inner := children.get(path):
            heaviest = max(inner, key=lambda one: (weights[one], one))
            if weights[heaviest] < 0.9 * weight or not children.get(heaviest):
                break
            path = heaviest
        yield path + ("/" if path in children else ""), weight


# ---------------------------------------------------------------------------------- small things


def _open(path: str) -> IO[bytes]:
    return open(path, "rb", buffering=0)


def _copy(source: IO[bytes], out: IO[bytes]) -> int:
    total = 0
    while data := source.read(_COPY_BYTES):
        out.write(data)
        total += len(data)
    return total


def _mode(mode: int) -> int:
    """Who may do what, but nothing that gives rights."""
    return stat.S_IMODE(mode) & 0o777


def _stamp(found: os.stat_result) -> tuple[int, ...]:
    return (found.st_size, found.st_ino, found.st_mtime_ns, found.st_ctime_ns)


def _unreadable(what: str, path: str, shown: str, error: OSError) -> PackingError:
    return PackingError(
        f"{what}: {path} cannot be read ({_reason(error)}): make it readable, or leave it out with "
        f"excludes=[{shown!r}]"
    )


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def shown(size: int) -> str:
    """For people."""
    if size < 1000:
        return f"{size} bytes"
    for unit, bytes_each in (("KB", 1e3), ("MB", 1e6)):
        if size < 1000 * bytes_each:
            return f"{size / bytes_each:.1f} {unit}"
    return f"{size / 1e9:.1f} GB"
