from hoplo.util.inspect import *
