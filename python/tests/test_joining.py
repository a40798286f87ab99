"""Starting and joining nodes where something stands in the way.

A daemon that is stopped, one that begins at the same time, a program with signals of its own, a
folder that is gone."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time

import pytest
from conftest import HOPLO, command, eventually, run_driver

import hoplo
from hoplo.exceptions import ConnectionFailedError

NODE = None


# ------------------------------------------------------------------------------------ deadlines


def test_who_asked_a_daemon_that_is_stopped_hung_or_took_it_for_a_head_that_runs(head):
    head("--num-cpus", "1")
    with hoplo.init(address="auto"):
        daemon = hoplo.nodes()[0]["pid"]

    def begin(*arguments):
        return subprocess.Popen([HOPLO, *arguments], stderr=subprocess.PIPE, text=True)

    os.kill(daemon, signal.SIGSTOP)
    try:
        # All at once: each waits for as long as its limit says.
        with begin("status") as status, begin("start", "--head") as start:
            with pytest.raises(ConnectionFailedError, match=f"kill -CONT {daemon}"):
                hoplo.init(address="auto")
            assert f"kill -CONT {daemon}" in status.communicate(timeout=30)[1]
            assert status.returncode != 0
            told = start.communicate(timeout=30)[1]
            assert start.returncode == 1
            assert f"process {daemon} is the head of" in told
            assert "neither answers nor ends" in told
    finally:
        os.kill(daemon, signal.SIGCONT)
    with hoplo.init(address="auto"):
        assert hoplo.nodes()[0]["pid"] == daemon


def test_init_resisted_ctrl_c_at_a_socket_that_says_nothing(tmp_path, start_driver):
    path = str(tmp_path / "sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        listener.settimeout(30)
        driver = start_driver(
            "import sys, hoplo\n"
            "try:\n    hoplo.init(address=sys.argv[1])\n"
            "except KeyboardInterrupt:\n    print('interrupted', hoplo.is_initialized())\n",
            path,
        )
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(30)
            assert connection.recv(1 << 16), "it said hello"
            began = time.monotonic()
            driver.send_signal(signal.SIGINT)
            assert driver.stdout.readline() == "interrupted False\n"
            assert driver.wait(20) == 0
            assert time.monotonic() - began < 8, "before the deadline of init"


def test_init_took_whoever_listened_for_a_daemon(tmp_path):
    """What answers must be a Welcome, and is read only as far as one is long."""
    path = str(tmp_path / "sock")
    for said in (b"", b"\xff\xff\xff\x0f", b"\x03\x00\x00\x00abc"):
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen()
            pid = os.fork()
            if pid == 0:
                connection, _ = listener.accept()
                connection.sendall(said)
                connection.shutdown(socket.SHUT_WR)
                os._exit(0)
            with pytest.raises(ConnectionFailedError):
                hoplo.init(address=path)
            assert os.waitpid(pid, 0)[1] == 0
        os.unlink(path)
    assert not hoplo.is_initialized()


def test_a_program_with_too_many_paths_is_told():
    done = run_driver(
        "import sys, hoplo\n"
        "sys.path += [f'/nowhere/{number:0200}' for number in range(10_000)]\n"
        "hoplo.init(num_cpus=1)\n",
        check=False,
    )
    assert "sys.path" in done.stderr.splitlines()[-1]
    assert "ConnectionFailedError" in done.stderr


# ------------------------------------------------------------------------------------ heads


def test_heads_that_were_started_at_once_all_won(head):
    line = [HOPLO, "start", "--head", "--num-cpus", "1"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    starts = [subprocess.Popen(line, **pipes) for _ in range(6)]
    said = [(*start.communicate(timeout=60), start.returncode) for start in starts]
    won = [out for out, _, status in said if status == 0]
    assert len(won) == 1, said
    with hoplo.init(address="auto") as context:
        assert context["session_dir"] in won[0]
        daemon = hoplo.nodes()[0]["pid"]
    for _, told, status in said:
        if status != 0:
            assert status == 1
            assert f"a head runs already (pid {daemon}, {context['session_dir']})" in told
            assert "hoplo stop" in told


def test_a_head_that_was_killed_a_moment_ago_was_said_to_run(head):
    """The kernel unmaps its store first, and takes connections for it meanwhile."""
    for start in range(4):
        said = head("--num-cpus", "1", "--object-store-memory", "600M")
        assert ("goes on with the tables" in said) == (start > 0)
        hoplo.shutdown()  # with the one that was killed
        hoplo.init(address="auto")
        refs = [hoplo.put(bytes(8 << 20)) for _ in range(60)]
        os.kill(hoplo.nodes()[0]["pid"], signal.SIGKILL)
    del refs


# ------------------------------------------------------------------------------------ signals


def test_signals_that_a_program_blocks_were_blocked_in_its_workers():
    """`cancel` did nothing, since the worker never got the signal."""
    out = run_driver(
        """
import os, signal, threading
numbers = {signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGUSR1, signal.SIGHUP}
signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
for number in numbers - {signal.SIGUSR1}:
    signal.signal(number, signal.SIG_IGN)
import hoplo
hoplo.init(num_cpus=1)
daemon = hoplo.nodes()[0]["pid"]

def signals(pid):
    with open(f"/proc/{pid}/status") as file:
        fields = dict(line.split(":", 1) for line in file)
    ignored = int(fields["SigIgn"], 16)
    return int(fields["SigBlk"], 16), [n.name for n in sorted(numbers) if ignored >> n - 1 & 1]

@hoplo.remote
def itself():
    return os.getpid(), os.getppid()

@hoplo.remote
def wait():
    threading.Event().wait()

worker, zygote = hoplo.get(itself.remote())
print(signals(daemon), signals(zygote), signals(worker), sep="|")
ref = wait.remote()
while "running" not in str(hoplo._core.query("tasks")):
    hoplo.wait([ref], timeout=0.01)
hoplo.cancel(ref)
try:
    hoplo.get(ref, timeout=30)
except hoplo.exceptions.TaskCancelledError:
    print("cancelled")
hoplo.shutdown()
print(signal.pthread_sigmask(signal.SIG_BLOCK, ()) == numbers)
"""
    ).stdout.splitlines()
    # The zygote leaves Ctrl-C to others.
    assert out == ["(0, [])|(0, ['SIGINT'])|(0, [])", "cancelled", "True"]


# ------------------------------------------------------------------------------------ paths


def test_a_path_that_is_no_utf8_stopped_init(tmp_path):
    folder = os.fsencode(tmp_path) + b"/odd-\xff"
    os.mkdir(folder)
    with open(folder + b"/odd_module.py", "w") as file:
        file.write("VALUE = 42\n")
    out = run_driver(
        """
import os, sys
folder = os.fsencode(sys.argv[1]) + b"/odd-\\xff"
sys.path.append(os.fsdecode(folder))
os.chdir(folder)
import hoplo

@hoplo.remote
def look():
    import odd_module
    return odd_module.VALUE, os.getcwdb() == folder, os.fsdecode(folder) in sys.path

with hoplo.init(num_cpus=1):
    print(*hoplo.get(look.remote()))
""",
        str(tmp_path),
    ).stdout
    assert out == "42 True True\n"


def test_a_deleted_working_directory_stopped_init(tmp_path):
    gone = tmp_path / "gone"
    out = run_driver(
        """
import os, sys
os.mkdir(sys.argv[1])
os.chdir(sys.argv[1])
sys.path.insert(0, "")
os.rmdir(sys.argv[1])
import hoplo

@hoplo.remote
def square(x):
    return x * x

with hoplo.init(num_cpus=1):
    print(hoplo.get(square.remote(3)))
""",
        str(gone),
    ).stdout
    assert out == "9\n"


# ------------------------------------------------------------------------------------ limits


def test_a_limit_on_addresses_is_named():
    done = run_driver(
        "import resource, hoplo\n"
        "resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))\n"
        "hoplo.init(num_cpus=1, object_store_memory=2 << 30)\n",
        check=False,
    )
    line = done.stderr.strip().splitlines()[-1]
    assert "ConnectionFailedError" in line
    assert "RLIMIT_AS" in line
    assert "object_store_memory" in line


# ------------------------------------------------------------------------------------ output


def nobody_reads(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command with an output that nobody reads any more, as behind `| head -1`."""
    ours, theirs = os.pipe()
    os.close(ours)
    try:
        line = [HOPLO, *arguments]
        return subprocess.run(
            line, stdout=theirs, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    finally:
        os.close(theirs)


def test_a_command_whose_output_nobody_reads_panicked(head):
    done = nobody_reads("start", "--head", "--num-cpus", "1")
    assert (done.returncode, done.stderr) == (0, "")
    with hoplo.init(address="auto"):
        assert hoplo.nodes()[0]["Alive"]
    for arguments in (["list", "workers"], ["status"], ["version"], ["--help"], ["stop"]):
        done = nobody_reads(*arguments)
        assert (done.returncode, done.stderr) == (0, ""), arguments


def test_logs_of_what_is_not_there(head):
    head("--num-cpus", "1")
    done = command("logs", "worker-1.out", check=False)
    assert done.returncode == 1
    assert 'there is no log "worker-1.out"' in done.stderr
    done = command("logs", "999999999", check=False)
    assert "hoplo list workers" in done.stderr
    done = command("logs", "nonsense", check=False)
    assert "neither a worker's pid nor an actor's id nor the name of a log file" in done.stderr

    @hoplo.remote
    def speak():
        print("a word")
        return os.getpid()

    with hoplo.init(address="auto"):
        worker = hoplo.get(speak.remote())
    name = f"worker-{worker}.out"
    eventually(lambda: command("logs", name, check=False).stdout == "a word\n")


def test_a_segfault_told_more_of_us_than_of_the_program(fresh_node):
    fresh_node(num_cpus=1)

    @hoplo.remote(max_retries=0)
    def crash():
        import ctypes

        ctypes.string_at(0)

    with pytest.raises(hoplo.exceptions.WorkerCrashedError) as caught:
        hoplo.get(crash.remote())
    lines = str(caught.value).splitlines()
    (at,) = (number for number, line in enumerate(lines) if line.endswith(" in crash"))
    # Behind them extension modules are listed, if there are any.
    callers = [line for line in lines[at + 1 :] if line.strip().startswith("File ")]
    assert len(callers) <= 3, "what called the worker, and where its program began"


# ------------------------------------------------------------------ what stands in its place


def test_a_fifo_in_place_of_a_sessions_file_blocked_every_command(tmp_path):
    """X3: whoever opens one waits until somebody opens its other end, unless he asks not to."""
    base = tmp_path / "base"
    base.mkdir(mode=0o700)
    places = [["lock"], ["sock"], ["lock", "sock", "daemon.log"], ["logs"], ["spill"], ["control"]]
    for number, names in enumerate(places):
        session = base / f"session-170000000000000{number}-{number + 1}"
        session.mkdir(mode=0o700)
        for name in names:
            os.mkfifo(session / name)
    (base / "current").symlink_to(base / "session-1700000000000000-1")
    there = {"env": {**os.environ, "HOPLO_TMPDIR": str(base)}, "timeout": 30}
    joins = "import hoplo\nhoplo.init(address='auto')\n"
    assert "ConnectionFailedError" in run_driver(joins, check=False, **there).stderr
    assert command("status", check=False, **there).returncode != 0
    runs = "import hoplo\nhoplo.init(num_cpus=1)\nprint(hoplo.get(hoplo.put(5)))\n"
    assert run_driver(runs, **there).stdout == "5\n"
    command("start", "--head", "--num-cpus", "1", **there)
    assert "session" in command("status", **there).stdout
    command("stop", **there)
    os.mkfifo(base / "head")
    done = command("start", "--head", "--num-cpus", "1", check=False, **there)
    assert done.returncode != 0
    assert f"{base / 'head'}: it is no plain file" in done.stderr
