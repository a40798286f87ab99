from hoplo.ray.util.client import *

from . import common as common
