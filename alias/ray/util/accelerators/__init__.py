from hoplo.ray.util.accelerators import *

from . import accelerators as accelerators
