"""`StateApiClient`: the questions of `ray.util.state`, asked with objects for their options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from types import ModuleType
from typing import Any

from hoplo.util import state
from hoplo.util.state._read import RUNS_OF_JOB_MAX

from . import _nodes
from .common import (
    ActorSummaries,
    GetApiOptions,
    ListApiOptions,
    ObjectSummaries,
    StateResource,
    SummaryApiOptions,
    SummaryResource,
    TaskSummaries,
    resource_to_schema,
)

__all__ = ["StateApiClient"]


class StateApiClient:
    """Asks the cluster at `address`; None is that of the session. There is no server between.

    `cookies` and `headers` have no effect.

    >>> from hoplo.ray.util.state.common import ListApiOptions, StateResource
    >>> client = StateApiClient()
    >>> hoplo.get(square.remote(3))
    9
    >>> client.list(StateResource.TASKS, ListApiOptions(limit=1), True)[0].type
    'NORMAL_TASK'
    """

    def __init__(
        self, address: str | None = None, cookies: object = None, headers: object = None
    ) -> None:
        self._address = address

    def list(
        self,
        resource: StateResource,
        options: ListApiOptions | None = None,
        raise_on_missing_output: bool = True,
        _explain: bool = False,
    ) -> list[Any]:
        """The rows, as the function `list_...` gives them."""
        resource_to_schema(resource)  # which refuses what has none
        options = options or ListApiOptions()
        function: Callable[..., list[Any]] = getattr(_asked(resource), f"list_{resource.value}")
        return function(
            self._address,
            options.filters,
            options.limit,
            options.timeout,
            options.detail,
            raise_on_missing_output,
            _explain,
        )

    def get(
        self,
        resource: StateResource,
        id: str,
        options: GetApiOptions | None = None,
        _explain: bool = False,
    ) -> Any:
        """The row with this id, as the function `get_...` gives it."""
        resource_to_schema(resource)
        one = "get_objects" if resource is StateResource.OBJECTS else f"get_{resource.value[:-1]}"
        options = options or GetApiOptions()
        return getattr(_asked(resource), one)(id, self._address, options.timeout, _explain)

    def summary(
        self,
        resource: SummaryResource,
        *,
        options: SummaryApiOptions | None = None,
        raise_on_missing_output: bool = True,
        _explain: bool = False,
    ) -> dict[str, Any]:
        """What the function `summarize_...` gives, of the rows that the filters let through.

        Raises NotImplementedError for a way to sum that hoplo has not.
        """
        options = options or SummaryApiOptions()
        by, made = _SUMS[resource]
        if options.summary_by not in (None, by):
            raise NotImplementedError(
                f"{resource.value} are summed by {by}, and not by {options.summary_by}: count the "
                f"rows of list_{resource.value}()"
            )
        asked = ListApiOptions(RUNS_OF_JOB_MAX, options.timeout, filters=options.filters)
        kind = StateResource(resource.value)
        rows = self.list(kind, asked, raise_on_missing_output, _explain)
        return {"cluster": asdict(made(rows))}


def _asked(resource: StateResource) -> ModuleType:
    return _nodes if resource is StateResource.NODES else state


_SUMS: dict[SummaryResource, tuple[str, Callable[[list[Any]], Any]]] = {
    SummaryResource.TASKS: (
        "func_name",
        lambda rows: TaskSummaries.to_summary_by_func_name(tasks=rows),
    ),
    SummaryResource.ACTORS: ("class", lambda rows: ActorSummaries.to_summary(actors=rows)),
    SummaryResource.OBJECTS: ("callsite", lambda rows: ObjectSummaries.to_summary(objects=rows)),
}
