"""Equal actors that are called together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import hoplo

__all__ = ["ActorGroup"]


class ActorGroup:
    """`num_actors` actors of one class; `group.method.remote()` calls all of them.

    It gives a list of refs, in the order of the actors. `init_args` and `init_kwargs` are what
    each constructor is given. Raises ValueError for fewer than one actor.

    >>> class Doubler:
    ...     def double(self, x):
    ...         return 2 * x
    >>> group = ActorGroup(Doubler, num_actors=2)
    >>> hoplo.get(group.double.remote(4))
    [8, 8]
    >>> group.shutdown()
    """

    def __init__(
        self,
        actor_cls: type,
        num_actors: int = 1,
        num_cpus_per_actor: float = 1,
        num_gpus_per_actor: float = 0,
        resources_per_actor: dict[str, float] | None = None,
        init_args: Sequence[Any] | None = None,
        init_kwargs: dict[str, Any] | None = None,
    ) -> None:
        if num_actors < 1:
            raise ValueError(f"num_actors must be 1 or more, not {num_actors}")
        self.num_actors = num_actors
        plain = getattr(actor_cls, "__wrapped__", actor_cls)
        self._class: Any = hoplo.remote(
            num_cpus=num_cpus_per_actor,
            num_gpus=num_gpus_per_actor,
            resources=resources_per_actor or {},
        )(plain)
        self._args = tuple(init_args or ())
        self._kwargs = dict(init_kwargs or {})
        self.actors: list[Any] = []
        self.start()

    def start(self) -> None:
        """Makes the actors, where there are none. Raises RuntimeError where there are."""
        if self.actors:
            raise RuntimeError("the group has its actors: call shutdown() first")
        self.add_actors(self.num_actors)

    def add_actors(self, num_actors: int) -> None:
        """Makes that many more."""
        made = [self._class.remote(*self._args, **self._kwargs) for _ in range(num_actors)]
        self.actors += made

    def remove_actors(self, actor_indexes: Sequence[int]) -> None:
        """Ends those at these places of the list."""
        gone = set(actor_indexes)
        for index in gone:
            hoplo.kill(self.actors[index])
        self.actors = [a for index, a in enumerate(self.actors) if index not in gone]

    def shutdown(self, patience_s: float = 5) -> None:
        """Ends all: at most `patience_s` seconds later they are killed in the middle of a call."""
        ended = [actor.__hoplo_terminate__.remote() for actor in self.actors]
        if ended and patience_s > 0:
            hoplo.wait(ended, num_returns=len(ended), timeout=patience_s)
        for actor in self.actors:
            hoplo.kill(actor)
        self.actors = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(self._class.__wrapped__, name):
            raise AttributeError(f"the actors of the group have no method {name!r}")
        return _Everywhere(self, name)

    def __getitem__(self, index: int) -> Any:
        return self.actors[index]

    def __len__(self) -> int:
        return len(self.actors)


class _Everywhere:
    """A method of all actors of a group."""

    def __init__(self, group: ActorGroup, name: str) -> None:
        self._group = group
        self._name = name

    def remote(self, *args: Any, **kwargs: Any) -> list[Any]:
        """Calls it in each actor; a list of refs."""
        return [getattr(a, self._name).remote(*args, **kwargs) for a in self._group.actors]
