"""What the tests share: nodes, drivers in processes of their own, and the check that nothing stays.

A module's tests share one warm node. A module says otherwise by a global of its own:

    NODE = {"num_cpus": 2}     what `init` of the shared node is given
    NODE = None                no shared node: tests call the `fresh_node` fixture

Every process that a test run starts inherits HOPLO_TEST_RUN, which no other run has: so processes
that outlive their node are found in /proc, whoever their parent is by then.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import elsewhere
import pytest
from gate import Gate

import hoplo

TREE = Path(__file__).resolve().parents[2]
HOPLO = os.path.join(sysconfig.get_path("scripts"), "hoplo")
DEFAULT_NODE = {"num_cpus": 4}


def pytest_configure(config: pytest.Config) -> None:
    folder = tempfile.mkdtemp(prefix="hoplo-test-")
    os.environ["HOPLO_TMPDIR"] = os.environ["HOPLO_TEST_RUN"] = folder
    # A head's token lies in the user's home.
    os.environ["HOME"] = tempfile.mkdtemp(prefix="hoplo-test-home-")
    for name in ("HOPLO_ADDRESS", "HOPLO_TOKEN"):
        os.environ.pop(name, None)
    config.addinivalue_line("markers", "slow: takes more than a few seconds")
    config.addinivalue_line("markers", "near: means one node; see elsewhere.py")


def pytest_unconfigure(config: pytest.Config) -> None:
    shutil.rmtree(os.environ.pop("HOPLO_TMPDIR"), ignore_errors=True)
    shutil.rmtree(os.environ["HOME"], ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if elsewhere.wanted():
        items[:] = [item for item in items if elsewhere.concerns(item)]


# ------------------------------------------------------------------------------------ waiting


def eventually(condition: Callable[[], Any], timeout: float = 10, what: str = "") -> Any:
    """What `condition` gives once that is true; fails with its last answer after `timeout` s.

    An exception that `condition` raises counts as "not yet".
    """
    deadline = time.monotonic() + timeout
    pause = 0.001
    while True:
        try:
            answer = condition()
        except Exception as error:
            answer = error
        else:
            if answer:
                return answer
        if time.monotonic() > deadline:
            wanted = what or getattr(condition, "__name__", "the condition")
            pytest.fail(f"{wanted}: not within {timeout} s; last: {answer!r}", pytrace=True)
        time.sleep(pause)
        pause = min(2 * pause, 0.05)


def printed_by(name: str, pid: int) -> str:
    """What the driver shows in front of a line of that worker."""
    return f"({name} pid={pid}{', ip=127.0.0.1' if elsewhere.wanted() else ''})"


def ready(refs: Any, timeout: float = 20) -> bool:
    """Whether all refs are ready within `timeout` seconds."""
    refs = refs if isinstance(refs, list) else [refs]
    return not hoplo.wait(refs, num_returns=len(refs), timeout=timeout)[1]


# ------------------------------------------------------------------------------------ processes


def processes() -> dict[int, str]:
    """The processes, and their command lines, that this test run started and that still run."""
    mark = f"HOPLO_TEST_RUN={os.environ['HOPLO_TEST_RUN']}".encode()
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:
                if mark not in file.read().split(b"\0"):
                    continue
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                found[int(entry)] = file.read().replace(b"\0", b" ").decode().strip()
        except OSError:
            continue  # it has ended, or is not ours
    return found


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def zombies() -> list[int]:
    """Children of this process that ended and were not waited for."""
    found = []
    for entry in os.listdir("/proc"):
        try:
            with open(f"/proc/{entry}/stat") as file:
                state, parent = file.read().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if state == "Z" and int(parent) == os.getpid():
            found.append(int(entry))
    return found


def descriptors(pid: int | str = "self") -> list[str]:
    """What the open descriptors of a process point to."""
    found = []
    for entry in os.listdir(f"/proc/{pid}/fd"):
        try:
            found.append(os.readlink(f"/proc/{pid}/fd/{entry}"))
        except OSError:
            continue  # the one that lists the folder
    return found


def remains() -> list[str]:
    """Files, but for logs and environments, that nodes of this run have left in their folders."""
    top = os.environ["HOPLO_TMPDIR"]
    files = [os.path.join(at, name) for at, _, names in os.walk(top) for name in names]
    left = [os.path.relpath(f, top) for f in files if not f.endswith((".log", ".out", ".err"))]
    return [file for file in left if not file.startswith("environments/")]


def assert_nothing_left(timeout: float = 5, but: set[int] | frozenset[int] = frozenset()) -> None:
    """Fails when a process or file of a node is left, and ends what is."""
    try:
        eventually(lambda: not (processes().keys() - but), timeout, "processes are gone")
        eventually(lambda: not zombies(), timeout, "children are waited for")
        if not but:
            eventually(lambda: not remains(), timeout, "files are gone")
    except BaseException:
        left = {pid: line for pid, line in processes().items() if pid not in but}
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        print(f"left: {left}, zombies {zombies()}, files {remains()}", file=sys.stderr)
        shutil.rmtree(os.environ["HOPLO_TMPDIR"], ignore_errors=True)
        os.makedirs(os.environ["HOPLO_TMPDIR"], exist_ok=True)
        raise


# ------------------------------------------------------------------------------------ nodes


@pytest.fixture(scope="module", autouse=True)
def node(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The node that the tests of a module share: the context that `init` gave."""
    options = getattr(request.module, "NODE", DEFAULT_NODE)
    if options is None:
        yield None
        return
    if elsewhere.wanted():
        with elsewhere.nodes(options) as context:
            yield context
    else:
        context = hoplo.init(**options)
        yield context
        hoplo.shutdown()
        gc.collect()
        assert_nothing_left()


@pytest.fixture
def fresh_node(node: Any) -> Iterator[Callable[..., Any]]:
    """`init` for one test of a module with `NODE = None`; ends with nothing left behind."""
    assert node is None, "a module whose tests start nodes says NODE = None"
    yield hoplo.init
    hoplo.shutdown()
    gc.collect()
    assert_nothing_left()


@pytest.fixture
def head(node: Any) -> Iterator[Callable[..., str]]:
    """`hoplo start --head` with the given arguments; stopped at the end, nothing left behind."""
    assert node is None, "a module whose tests start nodes says NODE = None"

    def start(*arguments: str) -> str:
        return command("start", "--head", *arguments).stdout

    yield start
    hoplo.shutdown()
    command("stop", check=False)
    assert_nothing_left()


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    """A gate that tasks can be made to wait at; open at the end of the test at the latest."""
    folder = tmp_path / "gate"
    folder.mkdir()
    gate = Gate(str(folder))
    yield gate
    gate.open()
    gate.close()


# ------------------------------------------------------------------------------------ programs


def command(
    *arguments: str, check: bool = True, timeout: float = 30, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Runs the `hoplo` command."""
    return _run([HOPLO, *arguments], check, timeout, options)


def run_driver(
    code: str, *arguments: str, check: bool = True, timeout: float = 50, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Runs a program in a Python of its own, from a file; what it printed."""
    with tempfile.TemporaryDirectory(prefix="hoplo-driver-") as folder:
        path = Path(folder) / "driver.py"
        path.write_text(code)
        return _run([sys.executable, str(path), *arguments], check, timeout, options)


def _run(
    line: list[str], check: bool, timeout: float, options: dict[str, Any]
) -> subprocess.CompletedProcess[str]:
    options = {"stdin": subprocess.DEVNULL, **options}
    # Not run(): it would wait for whatever inherited the pipes, after a timeout too.
    process = subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        pytest.fail(f"{line} took more than {timeout} s")
    done = subprocess.CompletedProcess(line, process.returncode, out, err)
    if check and done.returncode != 0:
        pytest.fail(f"{line} ended with {done.returncode}:\n{out}\n{err}")
    return done


@pytest.fixture
def start_driver() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a program in a Python of its own, with pipes; killed at the end if it runs still."""
    started: list[subprocess.Popen[str]] = []
    with tempfile.TemporaryDirectory(prefix="hoplo-driver-") as folder:

        def start(code: str, *arguments: str, **options: Any) -> subprocess.Popen[str]:
            path = Path(folder) / f"driver{len(started)}.py"
            path.write_text(code)
            pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
            line = [sys.executable, "-u", str(path), *arguments]
            started.append(subprocess.Popen(line, text=True, **{**pipes, **options}))
            return started[-1]

        yield start
        for process in started:
            process.kill()
            process.communicate()
