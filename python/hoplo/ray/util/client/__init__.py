"""Ray's client of `ray://` addresses: there is none, and libraries that ask hear so."""

from __future__ import annotations

from ..._absent import absent

__all__ = ["num_connected_contexts", "ray"]


class _NoClient:
    """What `ray.util.client.ray` is in a program that is no client."""

    def is_connected(self) -> bool:
        """Whether this program speaks to a cluster by `ray://`. It never does.

        >>> ray.is_connected()
        False
        """
        return False


ray = _NoClient()


def num_connected_contexts() -> int:
    """How many clusters this program speaks to by `ray://`.

    >>> num_connected_contexts()
    0
    """
    return 0


__getattr__ = absent(__name__, __all__)
