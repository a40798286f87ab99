"""A timeout, then a cancel."""

import time

import ray
from ray.exceptions import GetTimeoutError, TaskCancelledError


@ray.remote
def sleeps():
    for _ in range(3000):
        time.sleep(0.1)


ref = sleeps.remote()
try:
    ray.get(ref, timeout=0.2)
except GetTimeoutError as error:
    print("late", isinstance(error, TimeoutError))
ray.cancel(ref)
try:
    ray.get(ref)
except TaskCancelledError:
    print("cancelled")
# > late True
# > cancelled
