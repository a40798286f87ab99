"""The error of a task, under both of its types."""

import ray
from ray.exceptions import RayError, RayTaskError


@ray.remote
def fails(x):
    raise ZeroDivisionError(f"cannot divide {x}")


try:
    ray.get(fails.remote(3))
except RayTaskError as error:
    print(isinstance(error, ZeroDivisionError), isinstance(error, RayError))
    print(type(error.cause).__name__, error.cause)
    print(isinstance(error.as_instanceof_cause(), ZeroDivisionError))
try:
    ray.get(fails.remote(3))
except ZeroDivisionError as error:
    print("cannot divide 3" in str(error))
# > True True
# > ZeroDivisionError cannot divide 3
# > True
# > True
