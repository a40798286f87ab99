"""`wait` for the ones that are done."""

import ray

ray.init(num_cpus=2)


@ray.remote
def quick(i):
    return i


pending = [quick.remote(i) for i in range(5)]
seen = []
while pending:
    done, pending = ray.wait(pending, num_returns=1, timeout=30)
    seen += ray.get(done)
print(sorted(seen))
try:
    ray.wait([quick.remote(1)], num_returns=2)
except ValueError:
    print("too many")
# > [0, 1, 2, 3, 4]
# > too many
