from hoplo.util.iter import *
