"""Detached actors whose home died, and all who knew them with it: their rows start them again."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from machines import alive, until

CREATE = """
    import sys
    from far import Counter
    hoplo.init(address="auto", namespace="kept")
    for number, node in enumerate(sys.argv[1:]):
        on = hoplo.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=True)
        options = {"name": f"c{number}", "lifetime": "detached", "num_cpus": 0, "max_restarts": -1}
        counter = Counter.options(scheduling_strategy=on, **options).remote(100)
        hoplo.get(counter.add.remote(), timeout=20)
    say(1)
"""
"""Makes `c0` at the first node that it is told, `c1` at the second one."""

COUNT = """
    import sys
    from hoplo.exceptions import ActorUnavailableError
    hoplo.init(address="auto", namespace="kept")
    def count(name):
        counter = hoplo.get_actor(name)
        while True:
            try:
                return hoplo.get(counter.add.remote(), timeout=20)
            except ActorUnavailableError:
                pass
    say(*map(count, sys.argv[1:]))
"""

FIND = """
    import sys
    hoplo.init(address="auto", namespace="kept")
    try:
        hoplo.get_actor(sys.argv[1])
    except Exception as error:
        say(type(error).__name__)
"""


def run(far: Any, at: int, program: str, *args: str) -> Any:
    path = os.path.dirname(os.path.abspath(__file__))
    return far.machines[at].run(program, *args, PYTHONPATH=path)


def test_a_head_that_is_alone_starts_its_detached_actors_again(make_far: Any) -> None:
    far = make_far(1)
    assert run(far, 0, CREATE, far.ids[0]) == 1
    for _ in range(2):
        far.kill_daemon(0)
        far.head_again()
        assert run(far, 0, COUNT, "c0") == 101, "it begins anew"
    far.machines[0].kill()
    far.head_again()
    assert run(far, 0, COUNT, "c0") == 101
    # As a service manager ends it, or a reboot.
    os.kill(far.machines[0].pid, signal.SIGTERM)
    until(lambda: not far.machines[0].processes())
    far.head_again()
    assert run(far, 0, COUNT, "c0") == 101
    far.machines[0].hoplo("stop")
    far.head_again()
    assert run(far, 0, FIND, "c0") == "ValueError", "it ended with its node"


@pytest.mark.parametrize("other", [1, 2])
def test_home_and_keeper_and_head_die_at_once(make_far: Any, other: int) -> None:
    far = make_far(3)
    lives = 3 - other
    assert run(far, 0, CREATE, far.ids[0], far.ids[lives]) == 1
    far.killed |= {0, other}
    pid = far.machines[0].pid
    os.kill(pid, signal.SIGKILL)
    far.machines[other].kill()
    until(lambda: not alive(pid))
    far.head_again()
    until(lambda: far.machines[lives].states().count("ALIVE") == 2, what="a head is there again")
    assert run(far, lives, COUNT, "c0", "c1") == [101, 102]
    assert run(far, 0, COUNT, "c0", "c1") == [102, 103]


def test_home_and_keeper_die_at_once_and_the_head_lives(make_far: Any) -> None:
    far = make_far(4)
    assert run(far, 1, CREATE, far.ids[1], far.ids[3]) == 1
    far.kill_node(1)
    far.kill_node(2)
    until(lambda: far.machines[0].states().count("DEAD") == 2)
    assert run(far, 3, COUNT, "c0", "c1") == [101, 102]
    assert run(far, 0, COUNT, "c0", "c1") == [102, 103]


def test_all_nodes_lose_their_power(make_far: Any) -> None:
    far = make_far(3)
    assert run(far, 1, CREATE, far.ids[1], far.ids[2]) == 1
    for number in range(3):
        far.kill_node(number)
    far.head_again()
    far.killed.discard(0)
    assert run(far, 0, COUNT, "c0", "c1") == [101, 101]
