"""Concurrency groups and threads."""

import threading

import ray


@ray.remote(concurrency_groups={"io": 2, "compute": 1})
class Mixed:
    def __init__(self):
        self.both = threading.Barrier(2)

    @ray.method(concurrency_group="io")
    def meet(self):
        self.both.wait(30)
        return "met"

    @ray.method(concurrency_group="compute")
    def compute(self):
        return "computed"


mixed = Mixed.remote()
print(ray.get([mixed.meet.remote(), mixed.meet.remote()]), ray.get(mixed.compute.remote()))
print(ray.get(mixed.compute.options(concurrency_group="io").remote()))
# > ['met', 'met'] computed
# > computed
