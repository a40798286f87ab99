from hoplo.util.queue import *
