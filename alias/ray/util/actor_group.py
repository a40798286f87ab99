from hoplo.ray.util.actor_group import *
