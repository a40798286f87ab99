"""Names, namespaces, get_if_exists and the list of names."""

import ray
from ray.util import list_named_actors

ray.init(num_cpus=2, namespace="shop")


@ray.remote
class Shelf:
    def name(self):
        return ray.get_runtime_context().get_actor_name()


shelf = Shelf.options(name="books").remote()
ray.get(shelf.__ray_ready__.remote())
print(ray.get(ray.get_actor("books").name.remote()))
same = Shelf.options(name="books", get_if_exists=True).remote()
print(same == shelf, same._actor_id == shelf._actor_id)
print(list_named_actors(), list_named_actors(all_namespaces=True))
try:
    ray.get_actor("toys")
except ValueError:
    print("no toys")
# > books
# > True True
# > ['books'] [{'name': 'books', 'namespace': 'shop'}]
# > no toys
