"""Trains a linear classifier on several workers that share weights through a parameter server.

    python examples/parameter_server.py

The server is an actor that holds the weights. Each worker actor has its own share of the data; the
gradient of whichever worker is ready first is applied, and that worker goes on at once, so that
nobody waits for the slowest (asynchronous stochastic gradient descent).
"""

import numpy as np

import hoplo
from hoplo.util import Progress

FEATURES = 64
WORKERS = 4
STEPS = 400
BATCH = 256
LEARNING_RATE = 0.5

TRUE_WEIGHTS = np.random.default_rng(7).standard_normal(FEATURES)


def examples(seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Points, and on which side of the true plane they lie."""
    points = np.random.default_rng(seed).standard_normal((count, FEATURES))
    return points, (points @ TRUE_WEIGHTS > 0).astype(float)


@hoplo.remote
class ParameterServer:
    """Holds the weights."""

    def __init__(self) -> None:
        self.weights = np.zeros(FEATURES)

    def apply(self, gradient: np.ndarray) -> np.ndarray:
        """Takes one step and returns the new weights."""
        self.weights = self.weights - LEARNING_RATE * gradient
        return self.weights


@hoplo.remote
class Worker:
    """Holds a share of the data."""

    def __init__(self, seed: int) -> None:
        self.points, self.labels = examples(seed, 20_000)
        self.random = np.random.default_rng(seed)

    def gradient(self, weights: np.ndarray) -> np.ndarray:
        """Of the logistic loss, on a random batch."""
        batch = self.random.integers(len(self.points), size=BATCH)
        points, labels = self.points[batch], self.labels[batch]
        predicted = 1 / (1 + np.exp(-(points @ weights)))
        return points.T @ (predicted - labels) / BATCH


def main() -> float:
    server = ParameterServer.remote()
    workers = [Worker.remote(seed) for seed in range(WORKERS)]
    weights = hoplo.put(np.zeros(FEATURES))

    working = {worker.gradient.remote(weights): worker for worker in workers}
    with Progress("steps", total=STEPS) as bar:
        for _ in range(STEPS):
            (gradient,), _ = hoplo.wait(list(working))
            worker = working.pop(gradient)
            weights = server.apply.remote(gradient)
            working[worker.gradient.remote(weights)] = worker
            bar.advance()

    points, labels = examples(seed=1_000, count=20_000)
    return float(np.mean((points @ hoplo.get(weights) > 0) == labels))


if __name__ == "__main__":
    with hoplo.init():
        print(f"accuracy on new data: {main():.1%}")
