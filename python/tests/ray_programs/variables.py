"""Variables of a runtime environment, as a dict and as an object."""

import os

import ray
from ray.runtime_env import RuntimeEnv

ray.init(num_cpus=2, runtime_env={"env_vars": {"LEVEL": "job"}})


@ray.remote
def level():
    return os.environ["LEVEL"], os.environ.get("MORE")


print(ray.get(level.remote()))
env = RuntimeEnv(env_vars={"LEVEL": "task", "MORE": "yes"})
print(ray.get(level.options(runtime_env=env).remote()), env["env_vars"]["LEVEL"])
# > ('job', None)
# > ('task', 'yes') task
