from hoplo.ray.util.state.common import *
