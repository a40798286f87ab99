from hoplo.ray.util.multiprocessing import *

from . import pool as pool
