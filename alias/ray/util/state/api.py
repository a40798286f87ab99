from hoplo.ray.util.state import *
