from hoplo.ray.util.iter_metrics import *
