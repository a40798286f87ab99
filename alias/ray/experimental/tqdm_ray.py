from hoplo.ray.experimental.tqdm_ray import *
