from hoplo.util.summary import *
