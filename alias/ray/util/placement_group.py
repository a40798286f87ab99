from hoplo.util.placement_group import *
