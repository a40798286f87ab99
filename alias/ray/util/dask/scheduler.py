from hoplo.ray.util.dask import *
