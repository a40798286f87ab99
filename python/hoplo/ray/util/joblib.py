"""joblib's backend "ray"."""

from __future__ import annotations

from joblib import register_parallel_backend

from hoplo.util.joblib import HoploBackend

__all__ = ["register_ray"]


def register_ray() -> None:
    """Makes the backend "ray" known to joblib: it runs batches as tasks of hoplo's.

    >>> from joblib import Parallel, delayed, parallel_config
    >>> register_ray()
    >>> with parallel_config("ray"):
    ...     Parallel()(delayed(pow)(i, 2) for i in range(4))
    [0, 1, 4, 9]
    """
    register_parallel_backend("ray", HoploBackend)
