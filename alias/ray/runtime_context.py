from hoplo.ray.runtime_context import *
