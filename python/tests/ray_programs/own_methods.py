"""What every actor answers beside its own methods."""

import ray


@ray.remote
class Box:
    def __init__(self, value):
        self.value = value


box = Box.remote(3)
print(ray.get(box.__ray_ready__.remote()))
print(ray.get(box.__ray_call__.remote(lambda self, more: self.value + more, 4)))
box.__ray_terminate__.remote()
try:
    ray.get(box.__ray_ready__.remote())
except ray.exceptions.RayActorError:
    print("ended")
# > True
# > 7
# > ended
