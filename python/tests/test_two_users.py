"""Another user of the machine, who makes things where ours are looked for.

That user is played by a forked child that gave its rights away: only root can do that.
"""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import HOPLO, command, run_driver

import hoplo
from hoplo.exceptions import ConnectionFailedError

NODE = None
STRANGER = 65534
INIT = "import hoplo; hoplo.init({}); print(hoplo.nodes()[0]['Alive'])"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")


def as_stranger(act: Callable[[], None]) -> int:
    """Runs `act` in a child of that user; the child's pid. It ends when `act` returns."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.setgroups([])
            os.setresgid(STRANGER, STRANGER, STRANGER)
            os.setresuid(STRANGER, STRANGER, STRANGER)
            os.umask(0)
            act()
            status = 0
        finally:
            os._exit(status)
    return pid


def stranger_made(act: Callable[[], None]) -> None:
    """The same, and it worked."""
    _, status = os.waitpid(as_stranger(act), 0)
    assert status == 0


@pytest.fixture
def room() -> Iterator[Path]:
    """A folder like /tmp."""
    path = Path(tempfile.mkdtemp(prefix="hoplo-two-", dir="/tmp"))
    path.chmod(0o1777)
    yield path
    shutil.rmtree(path)


class Listener:
    """A socket that the stranger listens at, and what came there."""

    def __init__(self, path: Path) -> None:
        self.heard, tell = os.pipe()
        ready, go = os.pipe()

        def listen() -> None:
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(str(path))
            listener.listen(8)
            os.write(go, b"!")
            while True:
                connection, _ = listener.accept()
                os.write(tell, b"<" + connection.recv(1 << 16) + b">")

        self.pid = as_stranger(listen)
        os.close(tell)
        os.close(go)
        assert os.read(ready, 1) == b"!"
        os.close(ready)

    def end(self) -> bytes:
        """Ends it; what it heard, with brackets around each connection."""
        os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)
        with os.fdopen(self.heard, "rb") as heard:
            return heard.read()


def refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """One clear line that says whose it is and what to do."""
    assert done.returncode != 0, done.stdout
    line = done.stderr.strip().splitlines()[-1]
    for word in (*words, "HOPLO_TMPDIR"):
        assert word in line, done.stderr


# ------------------------------------------------------------------------------------ joining


def test_auto_followed_the_link_of_another_user(room):
    """It talked to the daemon that the link named, and unpickled what that said."""
    base = room / f"hoplo-{os.geteuid()}"
    session = base / "session-1700000000000000-1"

    def squat() -> None:
        session.mkdir(parents=True)
        (session / "lock").touch()
        os.symlink(session, base / "current")

    stranger_made(squat)
    listener = Listener(session / "sock")
    environment = {**os.environ, "HOPLO_TMPDIR": str(room)}
    done = run_driver(INIT.format("'auto'"), check=False, env=environment)
    refused(done, "ConnectionFailedError", f"belongs to user {STRANGER}")
    refused(command("status", check=False, env=environment), f"belongs to user {STRANGER}")
    assert listener.end() == b"", "nobody connected"


def test_a_socket_of_another_user_was_spoken_to(room):
    listener = Listener(room / "sock")
    (room / "sock").chmod(0o777)
    with pytest.raises(ConnectionFailedError, match=f"belongs to user {STRANGER}"):
        hoplo.init(address=str(room / "sock"))
    assert set(listener.end()) <= set(b"<>"), "nothing was sent"


def test_a_link_in_our_own_folder_led_to_another_users_daemon(room):
    """`current` is ours, what it names is not."""
    theirs = room / "session-1700000000000000-1"

    def make() -> None:
        theirs.mkdir()

    stranger_made(make)
    listener = Listener(theirs / "sock")
    base = room / f"hoplo-{os.geteuid()}"
    base.mkdir(mode=0o700)
    (base / "current").symlink_to(theirs)
    environment = {**os.environ, "HOPLO_TMPDIR": str(base)}
    done = run_driver(INIT.format("'auto'"), check=False, env=environment)
    assert done.returncode != 0
    assert "hoplo start --head" in done.stderr
    assert listener.end() == b""


# ------------------------------------------------------------------------------------ cleaning up


@pytest.mark.parametrize("start", ["init", "start"])
def test_clean_up_removed_our_own_files_through_another_users_links(room, tmp_path, start):
    mine = tmp_path / "mine"
    (mine / "spill").mkdir(parents=True)
    for name in ("lock", "sock", "spill/thesis", "notes"):
        (mine / name).write_text("x")
    tmp_path.chmod(0o711)
    base = room / f"hoplo-{os.geteuid()}"

    def squat() -> None:
        base.mkdir()
        os.symlink(mine, base / "session-1700000000000000-1")
        dead = base / "session-1700000000000000-2"
        dead.mkdir()
        os.symlink(mine / "spill", dead / "spill")

    stranger_made(squat)
    environment = {**os.environ, "HOPLO_TMPDIR": str(room)}
    if start == "init":
        done = run_driver(INIT.format("num_cpus=1"), check=False, env=environment)
    else:
        done = command("start", "--head", check=False, env=environment)
    refused(done, f"belongs to user {STRANGER}")
    files = sorted(str(path.relative_to(mine)) for path in mine.rglob("*"))
    assert files == ["lock", "notes", "sock", "spill", "spill/thesis"]


def test_a_link_on_the_way_could_lead_to_any_folder_of_ours(room, tmp_path):
    def link() -> None:
        os.symlink(tmp_path, room / "way")

    stranger_made(link)
    done = run_driver(
        INIT.format("num_cpus=1"),
        check=False,
        env={**os.environ, "HOPLO_TMPDIR": str(room / "way" / "base")},
    )
    refused(done, f"is a link of user {STRANGER}")
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------------------------ elsewhere


def test_a_stranger_could_take_the_only_place_for_sessions():
    """In a /tmp of its own: the next place is taken, and with none left one line says so."""
    program = f"""
import os, shutil, stat, subprocess, sys
import hoplo

def squat(path):
    os.mkdir(path)
    os.chown(path, {STRANGER}, {STRANGER})

def base():
    with hoplo.init(num_cpus=1) as context:
        folder = os.path.dirname(context["session_dir"])
        assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
        return folder

own = f"hoplo-{{os.geteuid()}}"
assert base() == f"/tmp/{{own}}"
shutil.rmtree(f"/tmp/{{own}}")
squat(f"/tmp/{{own}}")
assert base() == f"/var/tmp/{{own}}"
head = subprocess.run([{HOPLO!r}, "start", "--head"], capture_output=True, text=True)
assert f"/var/tmp/{{own}}" in head.stdout, head
with hoplo.init(address="auto") as context:  # who looks looks where who starts starts
    assert context["session_dir"].startswith("/var/tmp/")
subprocess.run([{HOPLO!r}, "stop"], check=True, capture_output=True)
shutil.rmtree(f"/var/tmp/{{own}}")
squat(f"/var/tmp/{{own}}")
os.environ["XDG_RUNTIME_DIR"] = "/tmp/runtime"
os.mkdir("/tmp/runtime", 0o700)
assert base() == "/tmp/runtime/hoplo"
del os.environ["XDG_RUNTIME_DIR"]
try:
    base()
except hoplo.exceptions.ConnectionFailedError as error:
    print(error)
"""
    mount = "mount -t tmpfs none /tmp && mount -t tmpfs none /var/tmp && chmod 1777 /tmp /var/tmp"
    if any(Path(path).is_relative_to("/tmp") for path in (sys.executable, HOPLO)):
        pytest.skip("this Python lies in /tmp, which the test takes away")
    line = ["unshare", "--mount", "sh", "-c"]
    may = subprocess.run([*line, mount], capture_output=True, check=False)
    if may.returncode != 0:
        pytest.skip("this machine lets nobody have a /tmp of its own")
    environment = {name: value for name, value in os.environ.items() if name != "HOPLO_TMPDIR"}
    environment.pop("TMPDIR", None)
    environment.pop("XDG_RUNTIME_DIR", None)
    done = subprocess.run(
        [*line, f"{mount} && exec {sys.executable} -", "sh"],
        input=program,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "must be a folder that belongs to you" in done.stdout
    assert f"belongs to user {STRANGER}" in done.stdout
    assert len(done.stdout.splitlines()) == 1


def test_what_init_makes_is_for_us_alone(room):
    environment = {**os.environ, "HOPLO_TMPDIR": str(room)}
    done = run_driver("import hoplo; print(hoplo.init(num_cpus=1)['session_dir'])", env=environment)
    session = Path(done.stdout.strip())
    assert session.parent.parent == room
    assert stat.S_IMODE(session.parent.stat().st_mode) == 0o700
