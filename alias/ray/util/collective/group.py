from hoplo.util.collective.group import *
