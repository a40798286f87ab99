"""Simulators send streams to a learner: of samples, as in IMPALA, or of gradients, as in A3C.

    python examples/stream_samples.py [--address HOST:PORT]

Each simulator balances a pole with the newest policy that it was given. The learner takes the first
two streams' parts that are there, makes a new policy, and gives that to those two alone. So nobody
waits for the slowest. Of samples the learner makes gradients itself; gradients are made where the
samples are, and `hoplo.reduce(refs, "mean", n=2)` folds the first two.
"""

import argparse

import gymnasium
import numpy as np

import hoplo

SIMULATORS, UPDATES, EPISODES, RATE, STEPS_MAX = 4, 160, 4, 2.0, 200

Samples = tuple[np.ndarray, np.ndarray, np.ndarray, float]


def gradient_of(weights: np.ndarray, samples: Samples) -> np.ndarray:
    """Of the expected return (Williams 1992), with what is usual taken off each return."""
    seen, actions, returns, _ = samples
    chance = 1 / (1 + np.exp(-(seen @ weights)))
    advantage = (returns - returns.mean()) / (returns.std() + 1e-6)
    return seen.T @ ((actions - chance) * advantage) / len(seen)


@hoplo.remote(num_cpus=0)
class Simulator:
    """Holds one environment."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.pole = gymnasium.make("CartPole-v1", max_episode_steps=STEPS_MAX)

    def samples(self, weights: np.ndarray) -> Samples:
        """What was seen and done in some episodes, what that brought, and the mean return."""
        seen, actions, returns, lengths = [], [], [], []
        for _ in range(EPISODES):
            state, _ = self.pole.reset(seed=int(self.random.integers(2**31)))
            steps, ended = 0, False
            while not ended:
                action = int(self.random.random() < 1 / (1 + np.exp(-(state @ weights))))
                seen.append(state)
                actions.append(action)
                state, _, fell, late, _ = self.pole.step(action)
                steps, ended = steps + 1, fell or late
            returns += range(steps, 0, -1)
            lengths.append(steps)
        done = np.array(actions), np.array(returns, float)
        return np.array(seen), *done, float(np.mean(lengths))

    def gradient(self, weights: np.ndarray) -> np.ndarray:
        """The gradient of such samples, and behind it the mean return."""
        samples = self.samples(weights)
        return np.append(gradient_of(weights, samples), samples[3])


@hoplo.remote(num_cpus=0)
def mean_gradient(weights: np.ndarray, *parts: Samples) -> np.ndarray:
    """Of samples of several simulators, and behind it the mean return."""
    rows = [np.append(gradient_of(weights, part), part[3]) for part in parts]
    return np.mean(rows, axis=0)


def train(streams: str) -> float:
    """The mean return of the last ten updates; `streams`: "samples" or "gradient"."""
    simulators = [Simulator.remote(seed) for seed in range(SIMULATORS)]
    weights, history = np.zeros(4), []
    coming = [getattr(simulator, streams).remote(weights) for simulator in simulators]
    for number in range(1, UPDATES + 1):
        if streams == "gradient":
            mean, members = hoplo.reduce(coming, "mean", n=2, with_members=True)
            taken = hoplo.get(members)
        else:
            ready, _ = hoplo.wait(coming, num_returns=2)
            taken = [coming.index(ref) for ref in ready]
            mean = mean_gradient.remote(weights, *ready)
        *gradient, episode = hoplo.get(mean)
        weights = weights + RATE * np.array(gradient)
        history.append(episode)
        for at in taken:
            coming[at] = getattr(simulators[at], streams).remote(weights)
        if number % 40 == 0:
            print(f"  update {number:3}  mean return {np.mean(history[-10:]):5.1f}", flush=True)
    return float(np.mean(history[-10:]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--address", help="of a cluster; without it, a node of its own")
    with hoplo.init(address=parser.parse_args().address):
        for streams in ("samples", "gradient"):
            print(f"streams of {streams}")
            train(streams)
