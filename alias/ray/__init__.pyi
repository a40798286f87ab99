from hoplo.ray import *

from . import actor as actor
from . import cloudpickle as cloudpickle
from . import dag as dag
from . import doctor as doctor
from . import exceptions as exceptions
from . import experimental as experimental
from . import job_config as job_config
from . import remote_function as remote_function
from . import runtime_context as runtime_context
from . import runtime_env as runtime_env
from . import types as types
from . import util as util
