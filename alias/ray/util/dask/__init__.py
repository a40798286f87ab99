from hoplo.ray.util.dask import *

from . import scheduler as scheduler
