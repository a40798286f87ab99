from hoplo.experimental import *
