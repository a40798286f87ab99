"""Resources of the program's own."""

import ray

ray.init(num_cpus=3, resources={"license": 2}, include_dashboard=False, log_to_driver=False)


@ray.remote(resources={"license": 1}, num_cpus=0.5)
def licensed():
    return ray.get_runtime_context().get_assigned_resources()


print(sorted(ray.get(licensed.remote()).items()))
total = ray.cluster_resources()
print(total["CPU"], total["license"], "memory" in total, "object_store_memory" in total)
print(ray.is_initialized())
ray.shutdown()
print(ray.is_initialized())
# > [('CPU', 0.5), ('license', 1.0)]
# > 3.0 2.0 True True
# > True
# > False
