"""Iterators over several actors."""

import ray
from ray.util import iter as parallel

ray.init(num_cpus=4)
it = parallel.from_items([1, 2, 3, 4, 5], num_shards=2)
print(it.num_shards(), list(it.gather_sync()))
print(list(it.for_each(lambda x: x * x).filter(lambda x: x % 2 == 1).gather_sync()))
print(list(parallel.from_range(7, num_shards=3).batch(2).gather_sync()))
print(list(parallel.from_range(4).batch_across_shards()))
print(sorted(parallel.from_iterators([range(2), lambda: iter([7, 8])]).gather_async()))
print(sorted(it.union(parallel.from_range(2)).gather_sync()))
print(it.select_shards([1]).take(5), [list(shard) for shard in it.shards()])
print(list(it.combine(lambda x: [x] * (x % 3)).gather_sync()))
print(sorted(it.local_shuffle(shuffle_buffer_size=3, seed=1).gather_sync()))
print(parallel.from_range(3, num_shards=1, repeat=True).take(5))
local = it.gather_sync().for_each(lambda x: x + 1).batch(2)
print(local.take(2), list(local))
parallel.from_range(3, num_shards=1).show()
# > 2 [1, 2, 3, 4, 5]
# > [1, 9, 25]
# > [[0, 1], [2, 3], [4, 5], [6]]
# > [[0, 2], [1, 3]]
# > [0, 1, 7, 8]
# > [0, 1, 1, 2, 3, 4, 5]
# > [2, 4] [[1, 3, 5], [2, 4]]
# > [1, 2, 5, 2, 5, 4]
# > [1, 2, 3, 4, 5]
# > [0, 1, 2, 0, 1]
# > [[2, 3], [4, 5]] [[6]]
# > 0
# > 1
# > 2
