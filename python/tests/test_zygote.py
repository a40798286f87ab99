"""The zygote dies, and what it was asked for is done all the same, once."""

from __future__ import annotations

import os
import resource
import signal
import textwrap
from pathlib import Path

import pytest
from conftest import eventually
from processes import Notes, alive, listed, zygote_pid

import hoplo
from hoplo.exceptions import ActorUnavailableError, WorkerCrashedError, WorkerStartError

NODE = None
MIB = 1 << 20


@pytest.fixture
def saboteur(tmp_path, monkeypatch):
    """Runs `code` at the start of every Python that the node starts."""

    def start(code: str) -> Path:
        (tmp_path / "sitecustomize.py").write_text(textwrap.dedent(code))
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        monkeypatch.setenv("SABOTAGE", str(tmp_path / "done"))
        return tmp_path / "done"

    return start


@hoplo.remote
def pid(_=None):
    return os.getpid()


def test_a_zygote_killed_while_it_forked_gave_two_workers_one_socket(
    fresh_node, saboteur, tmp_path
):
    done = saboteur(
        """
        import os, signal
        fork = os.fork
        def fork_and_die():
            pid = fork()
            if pid > 0 and not os.path.exists(os.environ["SABOTAGE"]):
                with open(os.environ["SABOTAGE"], "w") as file:
                    file.write(str(pid))
                os.kill(os.getpid(), signal.SIGKILL)
            return pid
        os.fork = fork_and_die
        """
    )
    notes = Notes(tmp_path / "runs")
    context = fresh_node(num_cpus=2)

    @hoplo.remote
    def work(number):
        notes.add(number)
        return os.getpid()

    hoplo.get([work.remote(number) for number in range(20)], timeout=30)
    assert sorted(map(int, notes.lines())) == list(range(20))
    # It said hello before its zygote's death was seen, or it is gone.
    orphan = int(done.read_text())
    eventually(lambda: not alive(orphan) or orphan in [row["pid"] for row in listed("workers")])
    log = Path(context["session_dir"], "daemon.log").read_text()
    assert "wrong socket" not in log


def test_forks_that_a_dead_zygote_had_not_begun_are_no_failures(fresh_node, saboteur):
    """Whatever else kills it: the request that it dies of fails, and no other does."""
    saboteur(
        """
        import os, signal, sys
        # Only the zygote has this on its command line.
        if "hoplo._zygote" in " ".join(sys.orig_argv):
            import json
            loads = json.loads
            def loads_or_die(text, **options):
                read = loads(text, **options)
                if isinstance(read, dict) and "POISON" in str(read.get("runtime_env")):
                    os.kill(os.getpid(), signal.SIGKILL)
                return read
            json.loads = loads_or_die
        """
    )
    fresh_node(num_cpus=4)
    poison = pid.options(runtime_env={"env_vars": {"POISON": "1"}}, max_retries=0).remote()
    others = [
        pid.options(runtime_env={"env_vars": {"NUMBER": str(number)}}).remote()
        for number in range(10)
    ]
    assert len(set(hoplo.get(others, timeout=60))) == 10
    with pytest.raises(WorkerStartError, match="workers cannot be forked"):
        hoplo.get(poison, timeout=60)


def test_workers_go_on_and_new_ones_start_when_the_zygote_is_killed(fresh_node):
    fresh_node(num_cpus=2)
    before = hoplo.get(pid.remote())
    for _ in range(2):
        zygote = zygote_pid()
        os.kill(zygote, signal.SIGKILL)
        eventually(lambda dead=zygote: not alive(dead))
        assert hoplo.get(pid.remote()) == before
        eventually(lambda dead=zygote: zygote_pid() != dead)
    fresh = pid.options(runtime_env={"env_vars": {"A": "1"}})
    assert hoplo.get(fresh.remote(), timeout=30) != before


def test_a_worker_that_is_being_forked_was_listed_with_pid_0(fresh_node):
    fresh_node(num_cpus=1)
    zygote = zygote_pid()
    os.kill(zygote, signal.SIGSTOP)
    try:
        ref = pid.options(runtime_env={"env_vars": {"A": "1"}}).remote()
        rows = eventually(lambda: [row for row in listed("workers") if row["state"] == "starting"])
        assert [row["pid"] for row in rows] == [None]
    finally:
        os.kill(zygote, signal.SIGCONT)
    assert hoplo.get(ref, timeout=30) in [row["pid"] for row in listed("workers")]


def test_how_a_worker_ended_was_not_known_when_its_zygote_was_dead(fresh_node):
    fresh_node(num_cpus=1)
    worker = hoplo.get(pid.remote())
    zygote = zygote_pid()
    os.kill(zygote, signal.SIGKILL)
    eventually(lambda: not alive(zygote))

    @hoplo.remote(max_retries=0)
    def leave():
        if os.getpid() == worker:
            os._exit(7)

    with pytest.raises(hoplo.exceptions.WorkerCrashedError, match="exited with code 7"):
        hoplo.get(leave.remote())


def test_a_task_whose_workers_can_never_map_the_store_was_given_new_ones_for_ever(fresh_node):
    """They say hello first: such a start has not failed."""
    fresh_node(num_cpus=1)
    hoplo.get(pid.remote())  # the zygote has imported what it imports
    zygote = zygote_pid()
    status = Path(f"/proc/{zygote}/status").read_text()
    (mapped,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmSize"))
    limit = int(mapped) * 1024 + 128 * MIB  # less than the segment takes
    resource.prlimit(zygote, resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    fresh = {"env_vars": {"A": "1"}}
    with pytest.raises(WorkerCrashedError, match="10 workers in a row died"):
        hoplo.get(pid.options(runtime_env=fresh, max_retries=1).remote(), timeout=60)

    @hoplo.remote(runtime_env=fresh, max_restarts=-1)
    class Restarting:
        def call(self):
            return 1

    with pytest.raises(ActorUnavailableError, match="again and again"):
        hoplo.get(Restarting.remote().call.remote(), timeout=60)
    resource.prlimit(zygote, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert hoplo.get(pid.options(runtime_env=fresh).remote(), timeout=60)
