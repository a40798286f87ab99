"""What goes wrong when somebody asks what there is."""

from __future__ import annotations

__all__ = ["StateError"]


class StateError(ValueError):
    """The question is none that can be answered, or a part of the answer is missing."""
