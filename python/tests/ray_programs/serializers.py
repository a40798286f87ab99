"""A class that cannot be pickled, with functions that say how it is sent."""

import threading

import ray
from ray.util import inspect_serializability


class Guarded:
    def __init__(self, value):
        self.value, self.lock = value, threading.Lock()


ray.util.register_serializer(
    Guarded, serializer=lambda g: g.value, deserializer=lambda value: Guarded(value)
)
print(ray.get(ray.put(Guarded(5))).value)


@ray.remote
def read(guarded):
    return guarded.value


print(ray.get(read.remote(Guarded(6))), ray.get(read.remote(ray.put(Guarded(7)))))
ray.util.deregister_serializer(Guarded)
try:
    ray.put(Guarded(1))
except TypeError:
    print("a lock")
with open("/dev/null", "w") as quiet:
    print(inspect_serializability(threading.Lock(), name="lock", print_file=quiet)[0])
# > 5
# > 6 7
# > a lock
# > False
