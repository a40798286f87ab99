"""A joblib backend: `Parallel(...)` inside `parallel_config("hoplo")` runs its batches as tasks."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from joblib import register_parallel_backend
from joblib.parallel import AutoBatchingMixin, ParallelBackendBase

import hoplo

__all__ = ["register_hoplo"]


def register_hoplo() -> None:
    """Makes the backend "hoplo" known to joblib.

    >>> from joblib import Parallel, delayed, parallel_config
    >>> register_hoplo()
    >>> with parallel_config("hoplo"):
    ...     Parallel()(delayed(pow)(i, 2) for i in range(4))
    [0, 1, 4, 9]
    """
    register_parallel_backend("hoplo", HoploBackend)


class HoploBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]
    """Runs each batch of calls as one task. Options of the tasks go to `parallel_config`."""

    supports_retrieve_callback = True
    uses_threads = False
    supports_sharedmem = False

    def __init__(self, nesting_level: int | None = None, **options: Any) -> None:
        super().__init__(nesting_level=nesting_level)
        self._run_batch = hoplo.remote(**{"max_retries": 0, **options})(_run_batch)
        self._running: set[Any] = set()

    def configure(
        self,
        n_jobs: int = 1,
        parallel: Any = None,
        prefer: Any = None,
        require: Any = None,
        **_: Any,
    ) -> int:
        self.parallel = parallel
        return self.effective_n_jobs(n_jobs)

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """All of the cluster's CPUs for -1 or None, all but one for -2, and so on."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is not None and n_jobs > 0:
            return n_jobs
        if not hoplo.is_initialized():
            hoplo.init()
        cpus = int(hoplo.cluster_resources().get("CPU", 1))
        return max(1, cpus + 1 + (-1 if n_jobs is None else n_jobs))

    def submit(
        self, func: Callable[[], Any], callback: Callable[[Any], Any] | None = None
    ) -> Future[Any]:
        ref = self._run_batch.remote(func)
        self._running.add(ref)
        future: Future[Any] = ref.future()
        future.add_done_callback(lambda _: self._running.discard(ref))
        if callback is not None:
            future.add_done_callback(callback)
        return future

    apply_async = submit

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        return out.result()

    def retrieve_result(self, out: Future[Any], timeout: float | None = None) -> Any:
        return out.result(timeout)

    def abort_everything(self, ensure_ready: bool = True) -> None:
        for ref in list(self._running):
            hoplo.cancel(ref)
        self._running.clear()
        if ensure_ready:
            self.configure(n_jobs=self.parallel.n_jobs, parallel=self.parallel)


def _run_batch(batch: Callable[[], Any]) -> Any:
    return batch()
