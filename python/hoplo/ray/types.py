"""Types for annotations, under the names of `ray.types`."""

from __future__ import annotations

from hoplo import ObjectRef

__all__ = ["ObjectRef"]
