from hoplo.ray.dag import *
