"""An actor that dies and is restarted, with its calls run again."""

import os

import ray


@ray.remote(max_restarts=2, max_task_retries=2)
class Fragile:
    def __init__(self):
        self.count = 0

    def count_up(self):
        self.count += 1
        return self.count

    def is_again(self):
        return ray.get_runtime_context().was_current_actor_reconstructed

    def die(self):
        os._exit(1)


fragile = Fragile.options(max_task_retries=0).remote()
print(ray.get([fragile.count_up.remote() for _ in range(2)]), ray.get(fragile.is_again.remote()))
try:
    ray.get(fragile.die.remote())
except ray.exceptions.RayActorError:
    print("died")


def until_it_is_back():
    while True:
        try:
            return ray.get(fragile.count_up.remote())
        except ray.exceptions.ActorUnavailableError:
            pass


print(until_it_is_back(), ray.get(fragile.is_again.remote()))
# > [1, 2] False
# > died
# > 1 True
