"""Packages: how folders and modules of a `runtime_env` reach workers on other nodes.

    submitter                              store            node of the worker
    scan, pack, hash --export, once--> the bytes as an  --> <session>/packages/HASH
    working_dir: "pkg:HASH:name"       object of the job     unpacked once, by the first worker

- A node alone uses paths in place. A node of a cluster packs them, and then every worker uses the
  package, those on the node of the program as well: all tasks of one environment see the same
  files, whatever becomes of the folder meanwhile.
- A package is named by the hash of its content, so the same content is one environment, one object
  and one folder on a node, whoever packed it. It is exported as a large function is: the control
  store has a stub, the stub holds an object, and both stay as long as somebody of the job may ask.
  So there is no message, no table and no way of its own for it.
- A function or class that is sent names packages, too: paths say nothing where it arrives.
- The worker unpacks, before it loads the first function: it can wait for an object like any task,
  which lends its CPU, and the daemon never waits. What goes wrong fails that call with
  RuntimeEnvSetupError, and the next call tries again.
- On a node, each package has two lock files. `HASH.lock` is shared by the workers that use the
  package, from before it is unpacked until they end; who removes it must have that lock alone.
  `HASH.turn` lets one worker at a time unpack. They are two, since nobody gets a lock alone that
  others keep all their lives. `flock` ends with the process, however that ends.
- Packing looks at the whole folder each time that an environment is resolved (once for a function
  with its options, not for each call), and reads the files only if one has changed.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _core, _texts

if TYPE_CHECKING:
    from ._options import TaskOptions
    from ._packing import Scan

PREFIX = "pkg:"
_HASH_DIGITS = 32
BYTES_MAX: int = _core.PACKAGE_BYTES_MAX
BYTES_WARNED: int = _core.PACKAGE_BYTES_WARNED
FILES_MAX: int = _core.PACKAGE_FILES_MAX
ON_NODE_BYTES_MAX: int = _core.PACKAGES_BYTES_MAX
# A file that changed so shortly before a look may change again without showing it: file systems
# count time in ticks.
_TICK_NS = 50_000_000
_ARCHIVES = (".whl", ".zip", ".egg")


class Package(NamedTuple):
    """`pkg:HASH:name`, which stands in an environment where a path was."""

    hash: str
    name: str
    """Of the folder or file that it was made of, for people."""

    def __str__(self) -> str:
        return f"{PREFIX}{self.hash}:{self.name}"

    @staticmethod
    def of(text: str) -> Package | None:
        """None: it is no package, but a path."""
        if not text.startswith(PREFIX):
            return None
        key, _, name = text.removeprefix(PREFIX).partition(":")
        if len(key) != _HASH_DIGITS or key.strip("0123456789abcdef"):
            return None
        return Package(key, name)


# ---------------------------------------------------------------------------------- packing


def packed(text: str, everything: bool) -> str:
    """An environment as JSON with packages in place of paths.

    Of a node alone, not of `everything`: only what workers cannot use in place is packed.
    """
    env: dict[str, Any] = json.loads(text)
    excludes = [_texts.received(one) for one in env.pop("excludes", ())]
    items = env.pop("modules", env.get("py_modules", ()))
    place = env.get("working_dir")
    if place is not None:
        env["working_dir"] = _packed_folder(place, excludes, everything)
    if everything and items:
        made = [_packed_module(item, excludes) for item in items]
        env["py_modules"] = list(dict.fromkeys(made))
    return json.dumps(env, sort_keys=True, separators=(",", ":"))


def _packed_folder(place: str, excludes: Sequence[str], everything: bool) -> str:
    path = _texts.received(place)
    if Package.of(path) is not None:
        return place
    what = "runtime_env['working_dir']"
    strip = path.startswith("file://")
    path = path.removeprefix("file://")
    is_folder = os.path.isdir(path)
    if not everything and not os.path.isfile(path):
        return place
    if is_folder:
        return _package(
            path, f"folder\0{path}", lambda: _folder(path, "", excludes, what), excludes
        )
    return _package(path, f"zip\0{strip}\0{path}", lambda: _archive(path, strip, what), ())


def _packed_module(item: str, excludes: Sequence[str]) -> str:
    path = _texts.received(item)
    if Package.of(path) is not None:
        return item
    what = "runtime_env['py_modules']"
    if os.path.isdir(path):
        under = os.path.basename(path) + "/"
        return _package(
            path, f"module\0{path}", lambda: _folder(path, under, excludes, what), excludes
        )
    if path.endswith(_ARCHIVES):
        return _package(path, f"archive\0{path}", lambda: _archive(path, False, what), ())
    return _package(path, f"file\0{path}", lambda: _file(path, what), ())


def _folder(path: str, under: str, excludes: Sequence[str], what: str) -> Scan:
    from ._packing import scan_folder

    return scan_folder(path, under, excludes, f"{what}: {path}", BYTES_MAX, FILES_MAX)


def _archive(path: str, strip: bool, what: str) -> Scan:
    from ._packing import scan_archive

    return scan_archive(path, strip, f"{what}: {path}", BYTES_MAX, FILES_MAX)


def _file(path: str, what: str) -> Scan:
    from ._packing import scan_file

    return scan_file(path, f"{what}: {path}", BYTES_MAX)


class _Known(NamedTuple):
    fingerprint: tuple[object, ...]
    hash: str


_known: dict[tuple[object, ...], _Known] = {}
_KNOWN_MAX = 1000
_packing = threading.Lock()
# A thread that a forked child lacks may have had it.
os.register_at_fork(after_in_child=lambda: globals().update(_packing=threading.Lock()))


def _package(path: str, key: str, scan: Any, excludes: Sequence[str]) -> str:
    """Packs and exports what `scan` finds, unless that was done in this session."""
    name = os.path.basename(path).encode(errors="replace").decode()
    session = _core._session_number()
    known_as = (session, key, *excludes)
    with _packing:
        began = time.time_ns()
        try:
            found: Scan = scan()
        except FileNotFoundError:
            from .exceptions import RuntimeEnvSetupError

            raise RuntimeEnvSetupError(f"runtime_env: {path} is not there any more") from None
        fingerprint = found.fingerprint()
        known = _known.get(known_as)
        if known is not None and known.fingerprint == fingerprint:
            return str(Package(known.hash, name))
        if found.size > BYTES_WARNED:
            from ._packing import shown

            print(
                f"hoplo: {found.what} takes {shown(found.size)}, which go to each node that runs "
                f"a task with it: leave out what workers do not need, with "
                f"runtime_env={{'excludes': [...]}}",
                file=sys.stderr,
            )
        made = _export(found)
        for stale in [it for it in _known if it[0] != session]:
            del _known[stale]
        if found.changed_ns() + _TICK_NS < began and len(_known) < _KNOWN_MAX:
            _known[known_as] = _Known(fingerprint, made)
        return str(Package(made, name))


def _export(scan: Scan) -> str:
    import mmap
    import tempfile

    from ._packing import write

    # A file: what is not read any more need not stay in memory.
    with tempfile.TemporaryFile(prefix="hoplo-package-") as file:
        write(scan, file)
        file.flush()
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            view = memoryview(content)
            try:
                return _core._export_package(view)
            finally:
                view.release()


def exported(content: memoryview) -> tuple[bytes, Any]:
    """The pickle to export for a package, and the ref that must live until that is done."""
    import pickle

    if len(content) <= _core.INLINE_BYTES_MAX:
        return pickle.dumps(bytes(content), protocol=5), None
    ref = _core.put(content)
    return pickle.dumps(ref, protocol=5), ref


def portable(options: TaskOptions) -> TaskOptions:
    """Options that mean the same in a process of another node."""
    assert options.runtime_env is not None
    text = packed(options.runtime_env, True)
    return options._replace(runtime_env=text, given=portable_given(options.given, text))


def portable_given(given: Mapping[str, Any], text: str) -> Mapping[str, Any]:
    """What the user gave, with the environment that was packed as `text`."""
    if not given.get("runtime_env"):
        return given
    from .runtime_env import read

    return {**given, "runtime_env": read(text)}


# ---------------------------------------------------------------------------------- unpacking


class Unusable(Exception):
    """A package cannot be had on this node. The text says why."""


def enter(session_folder: str, text: str) -> None:
    """Makes this worker one of the environment `text`, which names packages."""
    env: dict[str, Any] = json.loads(text)
    folder = env.get("working_dir")
    places = [] if folder is None else [folder]
    places = [_texts.received(place) for place in [*places, *env.get("py_modules", ())]]
    if not any(map(Package.of, places)):
        return  # only a variable looks like one
    paths = []
    for place in places:
        package = Package.of(place)
        paths.append(place if package is None else unpacked(session_folder, package))
    if folder is not None:
        os.chdir(paths[0])
    import importlib

    sys.path[:0] = paths
    importlib.invalidate_caches()


_in_use: dict[str, int] = {}
"""Locks that this process shares until it ends, by package."""


def unpacked(session_folder: str, package: Package) -> str:
    """Where the package lies on this node; it stays there as long as this process lives."""
    home = os.path.join(session_folder, "packages")
    folder = os.path.join(home, package.hash)
    if package.hash in _in_use:
        return folder
    what = f"runtime_env: the package of {package.name} ({package.hash}) cannot be unpacked"
    lock = -1
    try:
        os.makedirs(home, mode=0o700, exist_ok=True)
        lock = locked(f"{folder}.lock", fcntl.LOCK_SH)
        if not os.path.isdir(folder):
            # Before it is anybody's turn: who waits for an object here has told the daemon so.
            content = _fetched(package, what)
            turn = locked(f"{folder}.turn", fcntl.LOCK_EX)
            try:
                if not os.path.isdir(folder):
                    size = _unpack(content, folder, what)
                    os.write(lock, b"%d" % size)
                    make_room(home, ON_NODE_BYTES_MAX)
            finally:
                os.close(turn)
        os.utime(lock)
    except BaseException as error:
        if lock >= 0:
            os.close(lock)
        if isinstance(error, OSError):
            raise Unusable(f"{what} in {home}: {error.strerror}") from None
        raise
    _in_use[package.hash] = lock
    return folder


def locked(path: str, manner: int) -> int:
    """The descriptor of a lock file, once this process has it."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, manner)
    except BaseException:
        os.close(lock)
        raise
    return lock


def _fetched(package: Package, what: str) -> memoryview:
    try:
        return memoryview(_core._fetch_package(package.hash)).cast("B")
    except Exception as error:
        raise Unusable(f"{what}: its bytes cannot be had: {error}") from error


def _unpack(content: memoryview, folder: str, what: str) -> int:
    """Into a folder beside, which becomes `folder` when it is whole; what it takes."""
    import shutil

    from ._packing import FILE, FOLDER, read_index

    beside = f"{folder}.part"
    modes = []
    try:
        if os.path.lexists(beside):
            shutil.rmtree(beside)  # of a worker that died
        os.mkdir(beside, 0o700)
        at = 0
        for path, kind, mode, last in read_index(content):
            place = os.path.join(beside, path)
            os.makedirs(os.path.dirname(place), exist_ok=True)
            if kind == FOLDER:
                os.makedirs(place, exist_ok=True)
                modes.append((place, mode))
            elif kind == FILE:
                assert isinstance(last, int)
                _write(place, mode, content[at : at + last])
                at += last
            else:
                os.symlink(str(last), place)
        for place, mode in reversed(modes):
            # The session's folder must be removable, whatever the modes were.
            os.chmod(place, mode | 0o700)
        os.rename(beside, folder)
    except (OSError, ValueError) as error:
        shutil.rmtree(beside, ignore_errors=True)
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        remedy = ""
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            remedy = ": free disk space there, or let sessions live on another disk (HOPLO_TMPDIR)"
        raise Unusable(f"{what} at {folder}: {reason}{remedy}") from None
    return len(content)


def _write(place: str, mode: int, content: memoryview) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    file = os.open(place, flags, 0o600)
    try:
        while content:
            content = content[os.write(file, content) :]
        os.fchmod(file, mode | 0o400)
    finally:
        os.close(file)


def make_room(home: str, bytes_max: int) -> None:
    """Removes what lies in `home` and nobody uses, the one used longest ago first, until it fits.

    Each folder has a lock file beside it: who uses the folder shares it, it holds the folder's
    bytes, and it was changed when the folder was used last.
    """
    found = []
    for name in os.listdir(home):
        key, dot, ending = name.partition(".")
        if dot and ending == "lock" and os.path.isdir(os.path.join(home, key)):
            path = os.path.join(home, name)
            try:
                with open(path) as file:
                    found.append((os.stat(path).st_mtime_ns, key, int(file.read() or 0)))
            except (OSError, ValueError):
                continue  # its unpacker is about to write it
    total = sum(size for _, _, size in found)
    for _, key, size in sorted(found):
        if total <= bytes_max:
            return
        if _removed(home, key):
            total -= size


def _removed(home: str, key: str) -> bool:
    import shutil

    folder = os.path.join(home, key)
    try:
        lock = os.open(f"{folder}.lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(f"{folder}.gone", ignore_errors=True)  # of one that died meanwhile
        os.truncate(lock, 0)
        # Not in place: half of it would be taken for the whole, if this process died.
        os.rename(folder, f"{folder}.gone")
        shutil.rmtree(f"{folder}.gone", ignore_errors=True)
    except OSError:
        return False  # somebody uses it
    finally:
        os.close(lock)
    return True
