"""Figure 3 of the OSDI 2018 paper as a real program: learns to balance a pole on a cart.

    python examples/train_policy.py        (or: make demo)

As in the figure, everything is called from within one task, `train_policy`, that creates the policy
by a task, has a set of Simulator actors roll it out, and hands the refs of their rollouts to a task
that makes the next policy. No value passes through `train_policy` itself but the statistics that it
reports, as a generator, while it goes on.

The learner is the cross-entropy method (Rubinstein 1999): a policy is a normal distribution over
the weights of a linear controller; each rollout tries some draws of it, and the best draws of all
rollouts give the next distribution.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import gymnasium
import numpy as np

import hoplo
from hoplo.util import Progress, job_summary

ENVIRONMENT = "CartPole-v1"
SOLVED_RETURN = 475.0
SIMULATORS = 10
STEPS_MAX = 100
DRAWS_PER_ROLLOUT = 2
EPISODES_PER_DRAW = 2
ELITE_DRAWS = 4
EVALUATION_EPISODES = 100
CURVE_FILE = Path("train_policy.png")


@dataclass(frozen=True)
class Policy:
    """A distribution over controllers, and how many updates made it."""

    mean: np.ndarray
    deviation: np.ndarray
    updates: int = 0
    mean_return: float = 0.0
    best_return: float = 0.0


@dataclass(frozen=True)
class Rollout:
    """Controllers that were tried, and the mean return of each."""

    weights: np.ndarray
    returns: np.ndarray


@hoplo.remote
def create_policy() -> Policy:
    """Knows nothing: any controller is as likely as its opposite."""
    observations = gymnasium.make(ENVIRONMENT).observation_space.shape[0]
    return Policy(mean=np.zeros(observations), deviation=np.ones(observations))


@hoplo.remote
class Simulator:
    """Holds one environment."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.environment = gymnasium.make(ENVIRONMENT)

    def rollout(self, policy: Policy) -> Rollout:
        """Tries some draws of the policy."""
        noise = self.random.standard_normal((DRAWS_PER_ROLLOUT, len(policy.mean)))
        weights = policy.mean + policy.deviation * noise
        returns = [
            np.mean([self.episode(draw) for _ in range(EPISODES_PER_DRAW)]) for draw in weights
        ]
        return Rollout(weights, np.array(returns))

    def evaluate(self, policy: Policy, episodes: int) -> list[float]:
        """The returns of the policy's mean, without noise."""
        return [self.episode(policy.mean) for _ in range(episodes)]

    def episode(self, weights: np.ndarray) -> float:
        """One episode from a new start: the sum of its rewards."""
        observation, _ = self.environment.reset(seed=int(self.random.integers(2**31)))
        total, ended = 0.0, False
        while not ended:
            action = int(observation @ weights > 0)
            observation, reward, terminated, truncated, _ = self.environment.step(action)
            total += float(reward)
            ended = terminated or truncated
        return total


@hoplo.remote
def update_policy(policy: Policy, *rollouts: Rollout) -> Policy:
    """The next policy: the distribution of the best draws, kept from narrowing too early."""
    weights = np.concatenate([rollout.weights for rollout in rollouts])
    returns = np.concatenate([rollout.returns for rollout in rollouts])
    elite = weights[np.argsort(returns)[-ELITE_DRAWS:]]
    extra = max(0.0, 0.3 * (1 - policy.updates / 15))
    return Policy(
        mean=elite.mean(axis=0),
        deviation=elite.std(axis=0) + extra,
        updates=policy.updates + 1,
        mean_return=float(returns.mean()),
        best_return=float(returns.max()),
    )


@hoplo.remote(num_returns="streaming")
def train_policy(seed: int) -> Iterator[Policy]:
    """Trains until every draw does well; each policy on the way, then the returns of the last."""
    policy = create_policy.remote()
    simulators = [Simulator.remote(seed + i) for i in range(SIMULATORS)]
    for _ in range(STEPS_MAX):
        rollouts = [simulator.rollout.remote(policy) for simulator in simulators]
        policy = update_policy.remote(policy, *rollouts)
        current = hoplo.get(policy)
        yield current
        if current.mean_return >= 490:
            break
    share = EVALUATION_EPISODES // SIMULATORS
    evaluations = [simulator.evaluate.remote(policy, share) for simulator in simulators]
    yield [value for values in hoplo.get(evaluations) for value in values]


def draw_curve(history: list[Policy], evaluation: float) -> None:
    """Writes the learning curve to CURVE_FILE."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    steps = [policy.updates for policy in history]
    axes.plot(steps, [policy.best_return for policy in history], label="best draw")
    axes.plot(steps, [policy.mean_return for policy in history], label="mean of all draws")
    axes.axhline(SOLVED_RETURN, linestyle=":", color="gray", label=f"solved: {SOLVED_RETURN:.0f}")
    axes.set(
        title=f"{ENVIRONMENT}: {evaluation:.0f} over {EVALUATION_EPISODES} evaluation episodes",
        xlabel="update of the policy",
        ylabel="return of an episode",
        ylim=(0, 520),
    )
    axes.legend(loc="lower right")
    figure.savefig(CURVE_FILE, dpi=120)


def main() -> None:
    started = time.monotonic()
    with hoplo.init():
        history: list[Policy] = []
        returns: list[float] = []
        # How many updates it takes is not known: the bar shows the return, from 0 to solved.
        with Progress("training", total=int(SOLVED_RETURN), rated=False) as bar:
            for ref in train_policy.remote(seed=0):
                value = hoplo.get(ref)
                if isinstance(value, Policy):
                    history.append(value)
                    gained = min(int(value.mean_return), bar.total) - bar.done
                    bar.advance(gained, note=f"update {value.updates}")
                else:
                    returns = value
        summary = job_summary()
    seconds = time.monotonic() - started

    evaluation = float(np.mean(returns))
    draw_curve(history, evaluation)
    calls = summary.tasks_finished + summary.method_calls_finished
    print(f"mean return     {evaluation:.1f} over {len(returns)} evaluation episodes")
    print(f"tasks           {summary.tasks_finished:,}")
    print(f"method calls    {summary.method_calls_finished:,}")
    print(f"calls/s         {calls / seconds:,.1f}")
    print(f"objects stored  {summary.objects_stored:,}")
    print(f"bytes stored    {summary.bytes_stored:,}")
    print(f"wall time       {seconds:.1f} s")
    print(f"learning curve  {CURVE_FILE}")
    if evaluation < SOLVED_RETURN:
        raise SystemExit(f"not solved: {ENVIRONMENT} asks for {SOLVED_RETURN:.0f}")


if __name__ == "__main__":
    main()
