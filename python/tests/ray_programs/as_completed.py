"""Results as they come."""

import ray
from ray.util import as_completed, map_unordered

ray.init(num_cpus=2)


@ray.remote
def square(x):
    return x * x


print(sorted(as_completed([square.remote(i) for i in range(5)])))
print(sorted(map_unordered(square, range(4), backpressure_size=2)))
# > [0, 1, 4, 9, 16]
# > [0, 1, 4, 9]
