"""A placement group and what runs in it."""

import ray
from ray.util.placement_group import PlacementGroup, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

ray.init(num_cpus=2)
import ray.util.placement_group  # noqa: E402

print(callable(ray.util.placement_group))
group = ray.util.placement_group([{"CPU": 1}, {"CPU": 1}], strategy="PACK")
ray.get(group.ready(), timeout=30)
print(group.bundle_specs)


@ray.remote(num_cpus=1)
def inside():
    return ray.get_runtime_context().get_placement_group_id()


strategy = PlacementGroupSchedulingStrategy(placement_group=group, placement_group_bundle_index=1)
print(ray.get(inside.options(scheduling_strategy=strategy).remote()) == group.id.hex())
print(isinstance(group, PlacementGroup), isinstance(group.id, ray.PlacementGroupID))
remove_placement_group(group)
# > True
# > [{'CPU': 1.0}, {'CPU': 1.0}]
# > True
# > True True
