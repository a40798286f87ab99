"""A task on one node, and one that spreads."""

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

ray.init(num_cpus=1)


@ray.remote
def node():
    return ray.get_runtime_context().get_node_id()


here = ray.get_runtime_context().get_node_id()
there = node.options(scheduling_strategy=NodeAffinitySchedulingStrategy(here, soft=False))
print(ray.get(there.remote()) == here)
print(ray.get(node.options(scheduling_strategy="SPREAD").remote()) == here)
print(ray.nodes()[0]["NodeID"] == here, ray.nodes()[0]["Alive"])
print(ray.util.get_node_ip_address() == ray.nodes()[0]["NodeManagerAddress"])
# > True
# > True
# > True True
# > True
