"""A tree reduction over actors, refs passed between tasks."""

import ray

ray.init(num_cpus=2)


@ray.remote
class Shard:
    def __init__(self, numbers):
        self.numbers = numbers

    def total(self):
        return sum(self.numbers)


@ray.remote
def add(a, b):
    return a + b


shards = [Shard.remote(range(i * 10, i * 10 + 10)) for i in range(4)]
totals = [shard.total.remote() for shard in shards]
while len(totals) > 1:
    totals = [*totals[2:], add.remote(totals[0], totals[1])]
print(ray.get(totals[0]))
# > 780
