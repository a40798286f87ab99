"""Placement groups and the job that made them: which ends with it, which stays, who finds it."""

from __future__ import annotations

import json
import os
import signal

from conftest import alive, command, eventually, run_driver
from processes import listed

import hoplo
from hoplo.util.placement_group import get_placement_group, placement_group_table
from hoplo.util.scheduling_strategies import PlacementGroupSchedulingStrategy

NODE = None

MAKES = """
import hoplo
from hoplo.util.placement_group import placement_group

hoplo.init(address="auto", namespace="shared")
groups = [
    placement_group([{"CPU": 1}], name="bound"),
    placement_group([{"CPU": 1}], name="kept", lifetime="detached"),
]
print([group.wait(20) for group in groups])
"""


def states():
    return {row["name"]: row["state"] for row in listed("placement_groups")}


def test_a_group_ends_with_its_job_unless_it_is_detached(head):
    head("--num-cpus", "2")
    assert run_driver(MAKES).stdout.strip() == "[True, True]"
    hoplo.init(address="auto", namespace="shared")
    eventually(lambda: states() == {"bound": "REMOVED", "kept": "CREATED"})
    kept = get_placement_group("kept")
    assert placement_group_table(kept)["is_detached"]

    @hoplo.remote
    def where():
        return hoplo.get_runtime_context().get_placement_group_id()

    strategy = PlacementGroupSchedulingStrategy(kept)
    ref = where.options(scheduling_strategy=strategy).remote()
    assert hoplo.get(ref, timeout=20) == kept.id.hex()
    eventually(lambda: hoplo.available_resources()["CPU"] == 1)


def test_a_detached_group_outlives_a_head_that_was_killed(head):
    head("--num-cpus", "2")
    run_driver(MAKES)
    daemon = json.loads(command("status", "--json").stdout)["pid"]
    os.kill(daemon, signal.SIGKILL)
    eventually(lambda: not alive(daemon))
    head("--num-cpus", "2")
    hoplo.init(address="auto", namespace="shared")
    eventually(lambda: states() == {"kept": "CREATED"})
    assert get_placement_group("kept").wait(10)
