"""The daemon runs out of open files: who connects is told, and it neither spins nor dies."""

from __future__ import annotations

import os
import resource
import socket
import sys
from pathlib import Path

from conftest import eventually, run_driver
from processes import daemon_pid

import hoplo

NODE = None


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_daemon_without_descriptors_span(fresh_node):
    context = fresh_node(num_cpus=1)
    work = hoplo.remote(os.getpid)
    worker = hoplo.get(work.remote())
    daemon = daemon_pid()
    few = len(os.listdir(f"/proc/{daemon}/fd")) + 20
    _, most = resource.prlimit(daemon, resource.RLIMIT_NOFILE)
    resource.prlimit(daemon, resource.RLIMIT_NOFILE, (few, most))
    held = []
    try:
        for _ in range(60):
            held.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            held[-1].settimeout(10)
            held[-1].connect(str(Path(context["session_dir"], "sock")))
        # Who finds no room is told, at once.
        for one in held[-10:]:
            assert b"open files" in one.recv(4096)
        log = Path(context["session_dir"], "daemon.log")
        eventually(lambda: "connections are refused" in log.read_text())
        eventually(lambda: [state(daemon) for _ in range(200)].count("S") > 150, what="it sleeps")
        assert log.read_text().count("connections are refused") == 1
        assert hoplo.get(work.remote(), timeout=20) == worker
    finally:
        for one in held:
            one.close()


def test_the_daemon_raises_its_limit_and_workers_keep_theirs():
    done = run_driver(
        f"""
import resource, sys
sys.path[:0] = {sys.path!r}
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
import hoplo
from processes import daemon_pid
hoplo.init(num_cpus=1)
workers = hoplo.remote(lambda: resource.getrlimit(resource.RLIMIT_NOFILE))
print(hoplo.get(workers.remote())[0])
print(resource.prlimit(daemon_pid(), resource.RLIMIT_NOFILE)[0] == min(hard, 21932))
"""
    )
    assert done.stdout.split() == ["256", "True"]
