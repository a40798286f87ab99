"""Squares in parallel."""

import ray

ray.init(num_cpus=2)


@ray.remote
def square(x):
    return x * x


futures = [square.remote(i) for i in range(4)]
print(ray.get(futures))
# > [0, 1, 4, 9]
