"""shutdown, and programs that just end."""

import os
import time

from conftest import alive, eventually, processes, run_driver

import hoplo

NODE = None


def test_shutdown_ends_everything(fresh_node, gate):
    context = fresh_node(num_cpus=2)

    @hoplo.remote
    def hold():
        gate.wait()

    refs = [hold.remote() for _ in range(2)]
    eventually(lambda: gate.arrived() == 2)
    began = time.monotonic()
    hoplo.shutdown()
    assert time.monotonic() - began < 2
    eventually(lambda: not any(alive(pid) for pid in gate.pids_arrived()), timeout=2)
    assert not os.path.exists(os.path.join(context["session_dir"], "sock"))
    hoplo.shutdown()
    del refs


def test_a_program_that_just_ends_leaves_nothing():
    out = run_driver(
        """
import hoplo
@hoplo.remote
def f(x):
    return x
refs = [f.remote(i) for i in range(50)]
print(hoplo.get(refs[-1]))
raise SystemExit(5)
""",
        check=False,
    )
    assert (out.returncode, out.stdout) == (5, "49\n")
    eventually(lambda: processes() == {}, timeout=3)


def test_a_program_that_ends_while_tasks_run(gate):
    out = run_driver(
        f"""
import hoplo, sys
sys.path.insert(0, {os.path.dirname(__file__)!r})
from gate import Gate
gate = Gate.__new__(Gate)
gate.folder, gate._opened = {gate.folder!r}, None
refs = [hoplo.remote(lambda: gate.wait()).remote()]
while not gate.arrived():
    hoplo.wait(refs, timeout=0.01)
"""
    )
    assert out.stderr == ""
    eventually(lambda: processes() == {}, timeout=3)


def test_a_shutdown_after_the_daemon_ended_in_order_does_not_hang():
    # It silences the bells of those it buries; a thread that slept on one was never woken again.
    out = run_driver(
        f"""
import os, signal, sys
sys.path.insert(0, {os.path.dirname(__file__)!r})
from conftest import alive, eventually
import hoplo
for _ in range(40):
    hoplo.init(num_cpus=1)
    pid = hoplo.nodes()[0]["pid"]
    os.kill(pid, signal.SIGTERM)
    eventually(lambda: not alive(pid))
    hoplo.shutdown()
print("ended 40 times")
"""
    )
    assert out.stdout == "ended 40 times\n"
