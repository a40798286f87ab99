from hoplo.ray.util.state import *

from . import api as api
from . import common as common
from . import errors as errors
from . import exception as exception
from . import rows as rows
from . import summaries as summaries
