"""Several results of one task, and of a method."""

import ray


@ray.remote(num_returns=3)
def three():
    return 0, 1, 2


@ray.remote
class Pair:
    @ray.method(num_returns=2)
    def both(self):
        return "a", "b"


a, b, c = three.remote()
print(ray.get([a, b, c]))
x, y = Pair.remote().both.remote()
print(ray.get(x), ray.get(y))
print(three.options(num_returns=1).remote().__class__.__name__)
# > [0, 1, 2]
# > a b
# > ObjectRef
