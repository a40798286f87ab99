"""Ray. Its argument: how many CPUs the node has."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile

os.environ |= {
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DISABLE_MEMORY_MONITOR": "1",
}

import ray
import ray_like
from player import Player
from workloads import add_rollouts, add_serving

play = Player()
ray_like.add_measures(play, ray)
add_rollouts(play, ray)
add_serving(play, ray)

if __name__ == "__main__":
    cpus = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    folder = tempfile.mkdtemp(prefix="hb-", dir="/tmp")
    ray.init(
        num_cpus=cpus,
        object_store_memory=3 << 30,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        _temp_dir=folder,
    )
    play.serve(ray.shutdown)
    shutil.rmtree(folder, ignore_errors=True)
