"""Work that several systems are given: rollouts, a policy, empty functions."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from player import Player

# ------------------------------------------------------------------------------- empty


def nothing() -> None:
    return None


def plain(x: int) -> int:
    return x


def plus_one(x: Any) -> Any:
    return x + 1


# ------------------------------------------------------------------------------- rollouts


def rollout(seed: int, steps: int) -> int:
    """`steps` timesteps of Pendulum-v1 under random actions."""
    import gymnasium

    environment = gymnasium.make("Pendulum-v1", max_episode_steps=steps + 1).unwrapped
    environment.reset(seed=seed)
    generator = np.random.default_rng(seed)
    actions = generator.uniform(-2, 2, size=(steps, 1)).astype(np.float32)
    for action in actions:
        environment.step(action)
    return steps


def lengths(cores: int, seed: int) -> list[list[int]]:
    """Three rounds of one rollout a core: 2,000 to 60,000 steps, as uneven as episodes are."""
    generator = np.random.default_rng(seed)
    return [[int(n) for n in generator.integers(2_000, 60_000, cores)] for _ in range(3)]


def add_rollouts(play: Player, api: Any) -> None:
    task = api.remote(rollout)

    for cores in (1, 2):

        @play.measure(f"rollouts.{cores}")
        def _(cores=cores):
            api.get([task.remote(0, 100) for _ in range(4)])

            def run(count):
                steps, start = 0, time.perf_counter()
                for repeat in range(count):
                    runs = [n for step in lengths(cores, repeat) for n in step]
                    refs = [task.remote(seed, n) for seed, n in enumerate(runs)]
                    while refs:
                        ready, refs = api.wait(refs)
                        steps += sum(api.get(ready))
                return {"seconds": time.perf_counter() - start, "count": steps}

            yield run


# ------------------------------------------------------------------------------- serving

BATCH = 64
SERVING = [(4, 5), (4, 10), (100, 5), (100, 10)]
"""State in KB, model time in ms."""


class Policy:
    """A small fully connected network, whose evaluation takes `model_ms` in all."""

    def __init__(self, state_kb: int, model_ms: float) -> None:
        generator = np.random.default_rng(0)
        inputs = state_kb * 1000 // 4
        self.first = generator.standard_normal((inputs, 16), np.float32) * 0.01
        self.second = generator.standard_normal((16, 4), np.float32)
        self.seconds = model_ms / 1000

    def evaluate(self, states: np.ndarray) -> np.ndarray:
        until = time.perf_counter() + self.seconds
        actions = np.tanh(states @ self.first) @ self.second
        left = until - time.perf_counter() - 0.0003
        if left > 0:
            time.sleep(left)
        while time.perf_counter() < until:
            pass
        return actions


def states_of(state_kb: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((BATCH, state_kb * 1000 // 4), np.float32)


def add_serving(play: Player, api: Any) -> None:
    actor_class = api.remote(num_cpus=1)(Policy)

    for state_kb, model_ms in SERVING:

        @play.measure(f"serve.{state_kb}.{model_ms}")
        def _(state_kb=state_kb, model_ms=model_ms):
            policy, states = actor_class.remote(state_kb, model_ms), states_of(state_kb)

            def run(count):
                for _ in range(count):
                    assert api.get(policy.evaluate.remote(states)).shape == (BATCH, 4)
                return {"count": count * BATCH}

            yield run
            api.kill(policy)
