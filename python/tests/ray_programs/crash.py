"""A worker that crashes."""

import os

import ray


@ray.remote(max_retries=0)
def crashes():
    os._exit(3)


try:
    ray.get(crashes.remote())
except ray.exceptions.WorkerCrashedError:
    print("crashed")
# > crashed
