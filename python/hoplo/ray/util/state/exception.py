"""What goes wrong when somebody asks what there is."""

from __future__ import annotations

from hoplo.exceptions import ConnectionFailedError as ServerUnavailable
from hoplo.util.state.errors import StateError as RayStateApiException

__all__ = ["RayStateApiException", "ServerUnavailable"]
