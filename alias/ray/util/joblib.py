from hoplo.ray.util.joblib import *
