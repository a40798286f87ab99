from hoplo.util.collective.types import *
