from hoplo.ray.util.state.exception import *
