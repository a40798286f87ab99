from hoplo.util.progress import *
