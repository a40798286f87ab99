from hoplo.util.actor_pool import *
