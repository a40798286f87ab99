from hoplo.ray.util.named import *
