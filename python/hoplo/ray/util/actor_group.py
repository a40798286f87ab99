"""Equal actors that are called together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import hoplo

__all__ = ["ActorConfig", "ActorGroup", "ActorGroupMethod", "ActorWrapper"]


@dataclass
class ActorWrapper:
    """An actor of a group."""

    actor: Any
    """Its handle."""
    metadata: Any = None
    """What its method `get_actor_metadata` gave when it was made; None without such a method."""


@dataclass
class ActorConfig:
    """What each actor of a group asks for, and what its constructor is given."""

    num_cpus: float
    num_gpus: float
    resources: dict[str, float] | None
    init_args: tuple[Any, ...]
    init_kwargs: dict[str, Any]


class ActorGroup:
    """`num_actors` actors of one class; `group.method.remote()` calls all of them.

    It gives a list of refs, in the order of the actors. `init_args` and `init_kwargs` are what
    each constructor is given. `group[0]` has the handle of the first one, `group[0].actor`. What
    the actors say of themselves by a method `get_actor_metadata` is asked when they are made.

    Raises ValueError for fewer than one actor.

    >>> class Doubler:
    ...     def double(self, x):
    ...         return 2 * x
    ...     def get_actor_metadata(self):
    ...         return "doubles"
    >>> group = ActorGroup(Doubler, num_actors=2)
    >>> hoplo.get(group.double.remote(4)), hoplo.get(group[0].actor.double.remote(1))
    ([8, 8], 2)
    >>> group.actor_metadata
    ['doubles', 'doubles']
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
        self.actor_config = config = ActorConfig(
            num_cpus=num_cpus_per_actor,
            num_gpus=num_gpus_per_actor,
            resources=resources_per_actor,
            init_args=tuple(init_args or ()),
            init_kwargs=dict(init_kwargs or {}),
        )
        plain = getattr(actor_cls, "__wrapped__", actor_cls)
        self._class: Any = hoplo.remote(
            num_cpus=config.num_cpus, num_gpus=config.num_gpus, resources=config.resources or {}
        )(plain)
        self.actors: list[ActorWrapper] = []
        self.start()

    def start(self) -> None:
        """Makes the actors, where there are none. Raises RuntimeError where there are."""
        if self.actors:
            raise RuntimeError("the group has its actors: call shutdown() first")
        self.add_actors(self.num_actors)

    def add_actors(self, num_actors: int) -> None:
        """Makes that many more, and waits for what they say of themselves."""
        config = self.actor_config
        made = [
            self._class.remote(*config.init_args, **config.init_kwargs) for _ in range(num_actors)
        ]
        told: list[Any] = [None] * num_actors
        if hasattr(self._class.__wrapped__, "get_actor_metadata"):
            told = hoplo.get([actor.get_actor_metadata.remote() for actor in made])
        self.actors += map(ActorWrapper, made, told)

    def remove_actors(self, actor_indexes: Sequence[int]) -> None:
        """Ends those at these places of the list."""
        gone = set(actor_indexes)
        for index in gone:
            hoplo.kill(self.actors[index].actor)
        self.actors = [a for index, a in enumerate(self.actors) if index not in gone]

    def shutdown(self, patience_s: float = 5) -> None:
        """Ends all: at most `patience_s` seconds later they are killed in the middle of a call."""
        ended = [wrapper.actor.__hoplo_terminate__.remote() for wrapper in self.actors]
        if ended and patience_s > 0:
            hoplo.wait(ended, num_returns=len(ended), timeout=patience_s)
        for wrapper in self.actors:
            hoplo.kill(wrapper.actor)
        self.actors = []

    @property
    def actor_metadata(self) -> list[Any]:
        """What the actors said of themselves, in their order; None for those that say nothing."""
        return [wrapper.metadata for wrapper in self.actors]

    def __getattr__(self, name: str) -> ActorGroupMethod:
        if name.startswith("_") or not hasattr(self._class.__wrapped__, name):
            raise AttributeError(f"the actors of the group have no method {name!r}")
        if not self.actors:
            raise RuntimeError("the group was shut down: call start() first")
        return ActorGroupMethod(self, name)

    def __getitem__(self, index: int) -> ActorWrapper:
        return self.actors[index]

    def __len__(self) -> int:
        return len(self.actors)


class ActorGroupMethod:
    """A method of all actors of a group."""

    def __init__(self, actor_group: ActorGroup, method_name: str) -> None:
        self._group = actor_group
        self._name = method_name

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(
            f"{self._name}() runs nothing, since the actors have it: call {self._name}.remote()"
        )

    def remote(self, *args: Any, **kwargs: Any) -> list[Any]:
        """Calls it in each actor; a list of refs."""
        return [getattr(a.actor, self._name).remote(*args, **kwargs) for a in self._group.actors]
