from hoplo.doctor import *
