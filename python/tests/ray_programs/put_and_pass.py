"""A large array put once and given to several tasks."""

import numpy as np
import ray

ray.init(num_cpus=2)


@ray.remote
def total(matrix):
    return float(np.sum(matrix))


matrix = ray.put(np.ones((300, 300)))
print(ray.get(total.remote(matrix)), ray.get(total.remote(np.ones((2, 2)))))
print(ray.get(matrix).flags.writeable)
# > 90000.0 4.0
# > False
