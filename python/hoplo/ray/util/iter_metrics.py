"""What the steps of a `LocalIterator` count while it is read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from .timer import Timer

__all__ = ["MetricsContext", "SharedMetrics"]


class MetricsContext:
    """Numbers and times by name. `LocalIterator.get_metrics()` gives it to functions of steps.

    `counters` begin at 0; `timers` measure (`with metrics.timers["name"]:`); `info` has whatever a
    step puts there; `current_actor` made the item that was read last, if that is known.

    >>> metrics = MetricsContext()
    >>> metrics.counters["items"] += 2
    >>> metrics.save()
    {'counters': {'items': 2}, 'info': {}, 'timers': None}
    """

    def __init__(self) -> None:
        self.counters: defaultdict[str, int] = defaultdict(int)
        self.timers: defaultdict[str, Timer] = defaultdict(Timer)
        self.info: dict[Any, Any] = {}
        self.current_actor: Any = None

    def save(self) -> dict[str, Any]:
        """Counters and info, as a dict that can be pickled. Timers are not saved."""
        return {"counters": dict(self.counters), "info": dict(self.info), "timers": None}

    def restore(self, values: Mapping[str, Any]) -> None:
        """Takes what `save` gave; timers begin anew."""
        self.counters.clear()
        self.counters.update(values["counters"])
        self.timers.clear()
        self.info = dict(values["info"])


class SharedMetrics:
    """The metrics of one iterator. Once its `parents` are joined with it, they are theirs, too."""

    def __init__(
        self,
        metrics: MetricsContext | None = None,
        parents: Sequence[SharedMetrics] | None = None,
    ) -> None:
        self.parents = list(parents or ())
        self.set(metrics or MetricsContext())

    def get(self) -> MetricsContext:
        return self.metrics

    def set(self, metrics: MetricsContext) -> None:
        """From now on these are the metrics, of the parents and of theirs as well."""
        self.metrics = metrics
        for parent in self.parents:
            parent.set(metrics)
