from hoplo.util.collective import *

from . import collective as collective
from . import group as group
