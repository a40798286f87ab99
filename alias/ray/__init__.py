"""`import ray` gives `hoplo.ray`."""

import sys

import hoplo.ray

sys.modules[__name__] = hoplo.ray
