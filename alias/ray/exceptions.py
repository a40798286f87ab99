from hoplo.ray.exceptions import *
