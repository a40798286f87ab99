"""Tasks that start tasks, refs inside of lists, an actor handle given away."""

import ray


@ray.remote
def leaf(x):
    return x + 1


@ray.remote
def parent(n):
    return [leaf.remote(i) for i in range(n)]


@ray.remote
class Log:
    def __init__(self):
        self.lines = []

    def write(self, line):
        self.lines.append(line)

    def read(self):
        return sorted(self.lines)


@ray.remote
def work(log, i):
    ray.get(log.write.remote(f"line {i}"))


print(ray.get(ray.get(parent.remote(3))))
log = Log.remote()
ray.get([work.remote(log, i) for i in range(3)])
print(ray.get(log.read.remote()))
# > [1, 2, 3]
# > ['line 0', 'line 1', 'line 2']
