"""A daemon that is stopped, as by a debugger: programs wait, and can be interrupted."""

import signal

import pytest
from conftest import eventually
from processes import rests

NODE = None

PROGRAM = """
import os, signal, sys
import hoplo

hoplo.init(num_cpus=2)
daemon = hoplo.nodes()[0]["pid"]

@hoplo.remote
def f(x):
    return x

def other(size):
    # A function of its own, which the daemon is told of.
    return hoplo.remote(lambda data=os.urandom(size): len(data))

assert hoplo.get([f.remote(i) for i in range(10)]) == list(range(10))
refs = []

def act():
{act}

os.kill(daemon, signal.SIGSTOP)
try:
    # What it has at hand goes on.
    assert hoplo.get(hoplo.put(1)) == 1
    print("stopped", flush=True)
    act()
    print("done", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    assert hoplo.get(hoplo.put(2)) == 2
os.kill(daemon, signal.SIGCONT)
if refs:
    print(sum(hoplo.get(refs, timeout=60)), len(refs), flush=True)
assert hoplo.get([f.remote(i) for i in range(10)], timeout=60) == list(range(10))
hoplo.shutdown()
print("went on", flush=True)
"""

ACTS = {
    "results": "refs.extend(other(10_000).remote() for _ in range(100)); hoplo.get(refs)",
    # More than may wait for the daemon.
    "submit": "while True: refs.append(other(1 << 20).remote())",
    "put": "hoplo.put(bytes(100 << 20))",
    "actor": "hoplo.get_actor('nobody')",
    "nodes": "hoplo.nodes()",
    "name": "hoplo.remote(type('A', (), {})).options(name='a').remote()",
}


@pytest.mark.parametrize("act", ACTS)
def test_a_stopped_daemon_froze_the_program_beyond_ctrl_c(start_driver, act):
    code = PROGRAM.replace("{act}", "    " + ACTS[act])
    driver = start_driver(code)
    assert driver.stdout.readline() == "stopped\n"
    eventually(rests(lambda: [driver.pid]), timeout=30)
    driver.send_signal(signal.SIGINT)
    out, err = driver.communicate(timeout=60)
    lines = out.splitlines()
    assert (lines[0], lines[-1]) == ("interrupted", "went on"), err
    if act == "results":
        assert lines[1] == "1000000 100"


def test_what_is_said_to_a_stopped_daemon_is_heard_when_it_goes_on(start_driver):
    act = "    refs.extend(other(10_000).remote() for _ in range(100))"
    driver = start_driver(PROGRAM.replace("{act}", act))
    out, err = driver.communicate(timeout=60)
    assert out.splitlines() == ["stopped", "done", "1000000 100", "went on"], err
