from hoplo.ray.experimental.internal_kv import *
