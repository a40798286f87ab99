"""Names of actors in a cluster: one actor each, found from every node."""

import subprocess
import sys

from test_nodes_that_join import joined, machines, started  # noqa: F401

NODE = None

COUNTER = """
import sys, hoplo
hoplo.init(address="auto", namespace="shared")

@hoplo.remote(num_cpus=0)
class Counter:
    def __init__(self, who):
        self.who = who
    def made_by(self):
        return self.who
"""


def program(machine, text, *, check=False):
    done = subprocess.run(
        [sys.executable, "-c", COUNTER + text],
        env=machine.environment(),
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert not check or done.returncode == 0, done.stderr
    return done


def pair(machines):  # noqa: F811
    first, second = machines(), machines()
    joined(second, *started(first))
    return first, second


MAKES = "Counter.options(name='c', lifetime='detached').remote('{who}')\n"
ASKS = "print(hoplo.get(hoplo.get_actor('c').made_by.remote()))\n"


def test_a_name_that_another_node_gave_is_taken(machines):  # noqa: F811
    first, second = pair(machines)
    program(second, MAKES.format(who="second"), check=True)
    refused = program(first, MAKES.format(who="first"))
    assert refused.returncode != 0
    assert "an actor named 'c' exists" in refused.stderr.replace('"', "'")


def test_a_detached_actor_is_found_by_its_name_from_the_other_node(machines):  # noqa: F811
    first, second = pair(machines)
    program(second, MAKES.format(who="second"), check=True)
    assert program(first, ASKS, check=True).stdout.split() == ["second"]
    assert program(second, ASKS, check=True).stdout.split() == ["second"]


def test_get_if_exists_gives_the_actor_of_the_other_node(machines):  # noqa: F811
    first, second = pair(machines)
    program(first, MAKES.format(who="first"), check=True)
    text = (
        "a = Counter.options(name='c', get_if_exists=True).remote('second')\n"
        "print(hoplo.get(a.made_by.remote()))\n"
    )
    assert program(second, text, check=True).stdout.split() == ["first"]


def test_a_name_is_free_after_a_kill_from_the_other_node(machines):  # noqa: F811
    first, second = pair(machines)
    program(first, MAKES.format(who="first"), check=True)
    program(second, "hoplo.kill(hoplo.get_actor('c'))\n", check=True)
    program(second, MAKES.format(who="second"), check=True)
    assert program(first, ASKS, check=True).stdout.split() == ["second"]


def test_a_name_is_free_when_its_node_is_gone(machines):  # noqa: F811
    first, second = pair(machines)
    # One that did not begin yet would begin on the other node.
    program(second, MAKES.format(who="second") + ASKS, check=True)
    second.hoplo("stop")
    program(first, MAKES.format(who="first") + ASKS, check=True)


def test_a_name_that_nobody_has_is_an_error_on_every_node(machines):  # noqa: F811
    for machine in pair(machines):
        done = program(machine, ASKS)
        assert done.returncode != 0
        assert "ValueError" in done.stderr
