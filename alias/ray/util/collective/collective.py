from hoplo.util.collective.collective import *
