"""What may still change, under the names of `ray.experimental`."""

from __future__ import annotations

from hoplo.experimental import get_object_locations

from .._absent import absent

__all__ = ["get_local_object_locations", "get_object_locations"]

get_local_object_locations = get_object_locations

__getattr__ = absent(__name__, __all__)
