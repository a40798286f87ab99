from hoplo.ray.util.local_iter import *
