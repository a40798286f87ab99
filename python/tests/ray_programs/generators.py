"""A generator task, its refs one by one."""

import ray


@ray.remote
def numbers(n):
    for i in range(n):
        yield i * 10


print([ray.get(ref) for ref in numbers.remote(3)])


@ray.remote
class Reader:
    def lines(self):
        yield "first"
        yield "second"


for ref in Reader.remote().lines.options(num_returns="streaming").remote():
    print(ray.get(ref))
refs = numbers.remote(2)
print(isinstance(refs, ray.ObjectRefGenerator), ray.get(next(refs)))
# > [0, 10, 20]
# > first
# > second
# > True 0
