"""A queue between tasks."""

import ray
from ray.util.queue import Empty, Full, Queue

queue = Queue(maxsize=2, actor_options={"num_cpus": 0})


@ray.remote
def produce(queue):
    for i in range(3):
        queue.put(i)


done = produce.remote(queue)
print([queue.get() for _ in range(3)])
ray.get(done)
try:
    queue.get(block=False)
except Empty:
    print("empty")
queue.put_nowait_batch([7, 8])
try:
    queue.put_nowait(9)
except Full:
    print("full", queue.qsize(), queue.get_nowait_batch(2))
queue.shutdown()
# > [0, 1, 2]
# > empty
# > full 2 [7, 8]
