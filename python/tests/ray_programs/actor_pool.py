"""ActorPool."""

import ray
from ray.util import ActorPool


@ray.remote
class Doubler:
    def double(self, x):
        return 2 * x


pool = ActorPool([Doubler.remote() for _ in range(2)])
print(list(pool.map(lambda actor, x: actor.double.remote(x), [1, 2, 3, 4])))
print(sorted(pool.map_unordered(lambda actor, x: actor.double.remote(x), range(3))))
pool.submit(lambda actor, x: actor.double.remote(x), 5)
print(pool.has_next(), pool.get_next(), pool.has_free())
# > [2, 4, 6, 8]
# > [0, 2, 4]
# > True 10 True
