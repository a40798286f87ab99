from hoplo.ray.util.multiprocessing.pool import *
