"""An actor that leaves by itself."""

import ray
from ray.actor import exit_actor


@ray.remote
class Guest:
    def leave(self):
        exit_actor()


guest = Guest.remote()
try:
    ray.get(guest.leave.remote())
except ray.exceptions.RayActorError:
    print("left")


class Plain:
    def hello(self):
        return "hello"


print(ray.get(ray.remote(Plain).remote().hello.remote()))
print(ray.get(ray.remote(num_cpus=0)(lambda: "anonymous").remote()))
print(isinstance(guest, ray.actor.ActorHandle))
# > left
# > hello
# > anonymous
# > True
