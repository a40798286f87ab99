"""A head that is gone: what goes on without it, and what says that it waits for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from conftest import alive, eventually
from test_nodes_that_join import joined, machines, started  # noqa: F401

NODE = None

PROGRAM = """
import os, sys
import hoplo
from hoplo.exceptions import GetTimeoutError

hoplo.init(address="auto")


@hoplo.remote
def where():
    return hoplo.get_runtime_context().get_node_id()


def said(ref):
    try:
        return hoplo.get(ref, timeout=2)
    except GetTimeoutError as error:
        return str(error).replace("\\n", "|")


spread = where.options(scheduling_strategy="SPREAD")
far = where.options(label_selector={"zone": "b"})
hoplo.get([where.remote(), far.remote()])
print("ready", flush=True)
for line in sys.stdin:
    if line == "spread\\n":
        print(len(set(hoplo.get([spread.remote() for _ in range(20)], timeout=30))), flush=True)
    if line == "far\\n":
        ref = far.remote()
        print(ref.hex(), said(ref), flush=True)
    if line == "late\\n":
        print(hoplo.get(ref, timeout=30) != hoplo.get_runtime_context().get_node_id(), flush=True)
"""


def test_what_spreads_waited_for_a_dead_head_and_nothing_named_it(machines):  # noqa: F811
    first, second, third = machines(), machines(), machines()
    address, token = started(first)
    joined(second, address, token)
    joined(third, address, token, "--labels", '{"zone": "b"}')
    eventually(lambda: len(second.nodes()) == len(third.nodes()) == 3)
    driver = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env=second.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def asks(line):
        driver.stdin.write(f"{line}\n")
        driver.stdin.flush()
        return driver.stdout.readline().strip()

    assert driver.stdout.readline() == "ready\n"
    pid = first.status()["pid"]
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not alive(pid))
    silent = f"the head ({address}) "
    eventually(lambda: silent in second.hoplo("status").stdout)
    listed = second.hoplo("list", "nodes").stdout
    assert "it has not answered for " in listed
    assert asks("spread") == "1", "all of it runs at the driver's node"
    ref, why = asks("far").split(" ", 1)
    assert f"is queued: {silent}" in why
    assert "it waits for it" in why
    assert silent in second.hoplo("why", ref).stdout
    assert silent in second.hoplo("list", "tasks").stdout

    port = address.rsplit(":", 1)[1]
    first.hoplo("start", "--head", "--port", port, "--num-cpus", "1")
    assert asks("late") == "True"
    eventually(lambda: asks("spread") != "1", timeout=20)
    assert silent not in second.hoplo("status").stdout
    driver.stdin.close()
    assert driver.wait(20) == 0
    driver.stdout.close()
