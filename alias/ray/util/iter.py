from hoplo.ray.util.iter import *
