"""An actor that is killed, and one whose constructor fails."""

import ray
import ray.exceptions


@ray.remote
class Store:
    def __init__(self, broken=False):
        if broken:
            raise RuntimeError("no disk")

    def ping(self):
        return "pong"


store = Store.remote()
print(ray.get(store.ping.remote()))
ray.kill(store)
try:
    ray.get(store.ping.remote())
except ray.exceptions.RayActorError as error:
    print("gone", isinstance(error, ray.exceptions.ActorDiedError))
try:
    ray.get(Store.remote(broken=True).ping.remote())
except ray.exceptions.RayActorError as error:
    print("no disk" in str(error))
# > pong
# > gone True
# > True
