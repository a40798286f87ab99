from hoplo.remote_function import *
