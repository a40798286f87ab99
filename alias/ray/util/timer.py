from hoplo.ray.util.timer import *
