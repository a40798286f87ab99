from hoplo.ray.util.check_serialize import *
