from hoplo.ray.util.annotations import *
