"""`hoplo drain`: a node leaves its cluster in order."""

import subprocess
import sys
import time

from conftest import eventually
from test_nodes_that_join import joined, machines, started  # noqa: F401

NODE = None


def node_of(machine, cpus):
    """The id of the node with so many CPUs, as the head sees it."""
    rows = {row["Resources"]["CPU"]: row for row in machine.status()["nodes"] if row["Alive"]}
    return rows[cpus]["NodeID"]


def reason(machine, node):
    return next(row["Reason"] for row in machine.status()["nodes"] if row["NodeID"] == node)


def begin(machine, text):
    return subprocess.Popen(
        [sys.executable, "-c", "import hoplo, time; hoplo.init(address='auto')\n" + text],
        env=machine.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


# ------------------------------------------------------------------------------ it is refused


def test_an_unknown_node_and_the_head_are_refused(machines):  # noqa: F811
    first, second = machines(), machines()
    joined(second, *started(first))
    done = first.hoplo("drain", "nowhere", check=False)
    assert done.returncode == 1
    assert 'no node that lives is "nowhere": give one of ' in done.stderr
    done = first.hoplo("drain", node_of(first, 1.0), check=False)
    assert "it is the head" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_node_that_is_alone_has_nothing_to_drain_to(machines):  # noqa: F811
    first = machines()
    started(first)
    done = first.hoplo("drain", "any", check=False)
    assert done.returncode == 1
    assert "the head is the only one" in done.stderr


def test_nodes_are_drained_by_the_head(machines):  # noqa: F811
    first, second = machines(), machines()
    joined(second, *started(first))
    assert eventually(lambda: len(second.nodes()) == 2)
    done = second.hoplo("drain", node_of(first, 2.0), check=False)
    assert done.returncode == 1
    assert "on its machine" in done.stderr


# ------------------------------------------------------------------------------------ it works


def test_a_node_with_nothing_on_it_leaves_and_its_row_says_why(machines):  # noqa: F811
    first, second = machines(), machines()
    joined(second, *started(first))
    node = node_of(first, 2.0)
    out = first.hoplo("drain", node).stdout
    assert "it was drained" in out
    assert reason(first, node) == "it was drained"
    assert second.hoplo("status", check=False).returncode != 0
    done = first.hoplo("drain", node, check=False)
    assert "is dead already: it was drained" in done.stderr


def test_a_task_there_finishes_first(machines):  # noqa: F811
    first, second = machines(), machines()
    joined(second, *started(first))
    text = (
        "@hoplo.remote(num_cpus=2)\n"
        "def slow():\n"
        "    time.sleep(3)\n"
        "    return 'finished'\n"
        "ref = slow.remote()\n"
        "time.sleep(1)\n"
        "print('runs', flush=True)\n"
        "print(hoplo.get(ref), flush=True)\n"
    )
    with begin(first, text) as driver:
        assert driver.stdout.readline() == "runs\n"
        out = first.hoplo("drain", node_of(first, 2.0)).stdout
        assert "it was drained" in out
        assert driver.stdout.readline() == "finished\n"
        driver.stdin.close()


def test_an_actor_that_may_restart_moves_and_keeps_its_restarts(machines):  # noqa: F811
    first, second, third = machines(), machines(), machines()
    address, token = started(first)
    joined(second, address, token, "--resources", '{"disk": 1}')
    text = (
        "@hoplo.remote(num_cpus=0, resources={'disk': 1}, max_restarts=1, max_task_retries=-1)\n"
        "class Where:\n"
        "    def node(self):\n"
        "        return hoplo.get_runtime_context().get_node_id()\n"
        "a = Where.remote()\n"
        "print(hoplo.get(a.node.remote()), flush=True)\n"
        "input()\n"
        "print(hoplo.get(a.node.remote()), flush=True)\n"
    )
    with begin(first, text) as driver:
        was = driver.stdout.readline().strip()
        third.hoplo(
            "start",
            "--address",
            address,
            "--token-file",
            str(token),
            "--num-cpus",
            "3",
            "--resources",
            '{"disk": 1}',
        )
        assert "it was drained" in first.hoplo("drain", was).stdout
        driver.stdin.write("\n")
        driver.stdin.flush()
        assert driver.stdout.readline().strip() == node_of(first, 3.0)
        driver.stdin.close()


def test_at_its_deadline_a_node_leaves_whatever_it_has(machines):  # noqa: F811
    first, second = machines(), machines()
    joined(second, *started(first))
    text = (
        "@hoplo.remote(num_cpus=2)\n"
        "class Stays:\n"
        "    def ready(self):\n"
        "        return True\n"
        "a = Stays.remote()\n"
        "hoplo.get(a.ready.remote())\n"
        "print('ready', flush=True)\n"
        "input()\n"
        "try:\n"
        "    hoplo.get(a.ready.remote())\n"
        "except hoplo.exceptions.ActorDiedError as error:\n"
        "    print('its node was drained' in str(error), flush=True)\n"
    )
    with begin(first, text) as driver:
        assert driver.stdout.readline() == "ready\n"
        began = time.monotonic()
        out = first.hoplo("drain", node_of(first, 2.0), "--deadline", "2").stdout
        assert time.monotonic() - began >= 2
        assert "its time was over" in out
        driver.stdin.write("\n")
        driver.stdin.flush()
        assert driver.stdout.readline() == "True\n"
        driver.stdin.close()


# ------------------------------------------------------------------------------ nothing is lost


def test_a_result_whose_only_copy_is_there_survives(machines):  # noqa: F811
    first, second = machines(), machines()
    joined(second, *started(first))
    text = (
        "import numpy\n"
        "@hoplo.remote(num_cpus=2, max_retries=0)\n"
        "def large(seed):\n"
        "    return numpy.full(500_000, seed)\n"
        "made = [large.remote(seed) for seed in range(4)]\n"
        "hoplo.wait(made, num_returns=4, fetch_local=False)\n"
        "held = hoplo.put([made[3]])\n"
        "del made[3]\n"
        "print('made', flush=True)\n"
        "input()\n"
        "for seed, ref in enumerate(made + hoplo.get(held)):\n"
        "    assert (hoplo.get(ref) == seed).all() and len(hoplo.get(ref)) == 500_000\n"
        "print('all there', flush=True)\n"
    )
    with begin(first, text) as driver:
        assert driver.stdout.readline() == "made\n"
        out = first.hoplo("drain", node_of(first, 2.0)).stdout
        assert "it was drained" in out
        assert "its time was over" not in out
        driver.stdin.write("\n")
        driver.stdin.flush()
        assert driver.stdout.readline() == "all there\n"
        driver.stdin.close()


def test_bundles_are_ready_elsewhere_while_the_node_drains(machines, tmp_path):  # noqa: F811
    first, second, third = machines(), machines(), machines()
    address, token = started(first)
    joined(second, address, token, "--resources", '{"disk": 1}')
    text = (
        "import os\n"
        "from hoplo.util.placement_group import placement_group, placement_group_table\n"
        "from hoplo.util.scheduling_strategies import PlacementGroupSchedulingStrategy\n"
        "group = placement_group([{'CPU': 1}, {'CPU': 1, 'disk': 1}], strategy='STRICT_SPREAD')\n"
        "hoplo.get(group.ready())\n"
        "@hoplo.remote(num_cpus=1, max_retries=0)\n"
        "def where(gate):\n"
        "    while gate and not os.path.exists(gate):\n"
        "        time.sleep(0.01)\n"
        "    return hoplo.get_runtime_context().get_node_id()\n"
        "there = PlacementGroupSchedulingStrategy(group, 1)\n"
        "def on(gate=None):\n"
        "    return where.options(scheduling_strategy=there).remote(gate)\n"
        "print(hoplo.get(on()), flush=True)\n"
        f"runs = on({str(tmp_path / 'gate')!r})\n"
        "time.sleep(0.5)\n"
        "print('runs', flush=True)\n"
        "input()\n"
        "print(hoplo.get(on(), timeout=30), flush=True)\n"
        "print(placement_group_table(group)['state'], flush=True)\n"
        "print(len(hoplo.wait([runs], timeout=0)[0]), flush=True)\n"
        "input()\n"
        "print(hoplo.get(runs), flush=True)\n"
        "print(hoplo.get(on()), flush=True)\n"
    )
    with begin(first, text) as driver:
        was = driver.stdout.readline().strip()
        assert was == node_of(first, 2.0)
        assert driver.stdout.readline() == "runs\n"
        joined_as = ["--address", address, "--token-file", str(token), "--num-cpus", "3"]
        third.hoplo("start", *joined_as, "--resources", '{"disk": 1}')
        new = node_of(first, 3.0)
        first.hoplo("drain", was, "--no-wait")
        driver.stdin.write("\n")
        driver.stdin.flush()
        told = [driver.stdout.readline().strip() for _ in range(3)]
        assert told == [new, "CREATED", "0"], "what runs there goes on meanwhile"
        assert first.nodes()[was] == "DRAINING"
        (tmp_path / "gate").touch()
        assert eventually(lambda: reason(first, was) == "it was drained")
        driver.stdin.write("\n")
        driver.stdin.flush()
        assert driver.stdout.readline().strip() == was, "it finished where it ran"
        assert driver.stdout.readline().strip() == new
        driver.stdin.close()


def test_while_tasks_run_none_fails_and_none_spends_a_retry(machines):  # noqa: F811
    first, second, third = machines(), machines(), machines()
    address, token = started(first)
    joined(second, address, token)
    third.hoplo("start", "--address", address, "--token-file", str(token), "--num-cpus", "3")
    text = (
        "import numpy\n"
        "@hoplo.remote(num_cpus=1, max_retries=0)\n"
        "def work(number, size):\n"
        "    time.sleep(0.01)\n"
        "    node = hoplo.get_runtime_context().get_node_id()\n"
        "    return number, node, numpy.zeros(size)\n"
        "refs, nodes, runs = [], set(), True\n"
        "import threading\n"
        "def submit():\n"
        "    while runs:\n"
        "        refs.append(work.remote(len(refs), 30_000 if len(refs) % 10 == 0 else 1))\n"
        "        time.sleep(0.002)\n"
        "thread = threading.Thread(target=submit)\n"
        "thread.start()\n"
        "while len(refs) < 600:\n"
        "    time.sleep(0.01)\n"
        "print('work', flush=True)\n"
        "input()\n"
        "runs = False\n"
        "thread.join()\n"
        "for number, (same, node, _) in enumerate(hoplo.get(refs)):\n"
        "    assert same == number\n"
        "    nodes.add(node)\n"
        "print(*nodes, flush=True)\n"
    )
    with begin(first, text) as driver:
        assert driver.stdout.readline() == "work\n"
        node = node_of(first, 2.0)
        out = first.hoplo("drain", node, "--deadline", "60").stdout
        assert "it was drained" in out
        assert "its time was over" not in out
        driver.stdin.write("\n")
        driver.stdin.flush()
        assert node in driver.stdout.readline().split(), "it had worked there"
        driver.stdin.close()
