from hoplo.ray.runtime_env import *

from . import runtime_env as runtime_env
