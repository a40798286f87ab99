from hoplo.util.scheduling_strategies import *
