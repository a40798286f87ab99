from hoplo.ray.types import *
