from hoplo.ray.runtime_env import *
