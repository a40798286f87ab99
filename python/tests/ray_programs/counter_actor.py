"""Actors that keep a count."""

import ray


@ray.remote
class Counter:
    def __init__(self):
        self.n = 0

    def increment(self):
        self.n += 1

    def read(self):
        return self.n


counters = [Counter.remote() for _ in range(3)]
[c.increment.remote() for c in counters for _ in range(2)]
print(ray.get([c.read.remote() for c in counters]))
# > [2, 2, 2]
