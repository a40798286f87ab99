from hoplo.ray.actor import *
