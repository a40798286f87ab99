from hoplo.ray.util.serialization import *
