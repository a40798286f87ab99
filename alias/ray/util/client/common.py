from hoplo.ray.util.client.common import *
