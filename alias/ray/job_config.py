from hoplo.ray.job_config import *
