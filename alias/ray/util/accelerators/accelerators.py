from hoplo.ray.util.accelerators import *
