"""Trains a network on handwritten digits, on several workers: all at once, or the first that come.

    python examples/train_digits.py [--address HOST:PORT]

Synchronous: each step takes the mean of the gradients of all workers (`hoplo.reduce`).
Asynchronous: each step takes the first two gradients that are there; their workers go on with the
new model, and the others, one of which is slow, with what they have. The model goes to whoever
needs it as a ref, so nothing passes through this program.
"""

import argparse
import time

import numpy as np
from sklearn.datasets import load_digits

import hoplo

WORKERS, STEPS, HIDDEN, BATCH, RATE = 4, 60, 48, 256, 0.3
SLOW_SECONDS = 0.03


def data() -> tuple[np.ndarray, np.ndarray]:
    """1797 images of 8 x 8, in an order of their own, and which digit each shows."""
    images, digits = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(digits))
    return images[order] / 16, digits[order]


def new_model() -> dict[str, np.ndarray]:
    random = np.random.default_rng(1)
    return {
        "hidden": random.standard_normal((64, HIDDEN)) / 8,
        "out": random.standard_normal((HIDDEN, 10)) / 7,
    }


def forward(model: dict[str, np.ndarray], images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What the hidden layer gives, and the probability of each digit."""
    hidden = np.maximum(images @ model["hidden"], 0)
    scores = np.exp(hidden @ model["out"] - (hidden @ model["out"]).max(axis=1, keepdims=True))
    return hidden, scores / scores.sum(axis=1, keepdims=True)


@hoplo.remote(num_cpus=0)
class Worker:
    """Holds a share of the images."""

    def __init__(self, rank: int) -> None:
        images, digits = data()
        self.images, self.digits = images[rank:1400:WORKERS], digits[rank:1400:WORKERS]
        self.random = np.random.default_rng(rank)
        self.seconds = SLOW_SECONDS if rank == 0 else 0.0

    def gradient(self, model: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        time.sleep(self.seconds)  # one of them is a slow machine
        batch = self.random.integers(len(self.digits), size=BATCH)
        images = self.images[batch]
        hidden, error = forward(model, images)
        error[np.arange(BATCH), self.digits[batch]] -= 1
        back = (error @ model["out"].T) * (hidden > 0)
        return {"hidden": images.T @ back / BATCH, "out": hidden.T @ error / BATCH}


@hoplo.remote(num_cpus=0)
def step(model: dict[str, np.ndarray], gradient: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: model[name] - RATE * gradient[name] for name in model}


def train(first: int) -> float:
    """Each step takes the first so many gradients. The accuracy on images that were not seen."""
    workers = [Worker.remote(rank) for rank in range(WORKERS)]
    model = hoplo.put(new_model())
    images, digits = data()
    gradients = [worker.gradient.remote(model) for worker in workers]
    started = time.monotonic()
    for number in range(1, STEPS + 1):
        mean, members = hoplo.reduce(gradients, "mean", n=first, with_members=True)
        model = step.remote(model, mean)
        for at in hoplo.get(members):
            gradients[at] = workers[at].gradient.remote(model)
        if number % 20 == 0:
            right = forward(hoplo.get(model), images[1400:])[1].argmax(axis=1) == digits[1400:]
            seconds = time.monotonic() - started
            print(f"  step {number:3}  {seconds:4.1f} s  accuracy {right.mean():.1%}", flush=True)
    return float(right.mean())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--address", help="of a cluster; without it, a node of its own")
    # One thread for each worker: several would fight for the CPUs.
    threads = {"env_vars": {"OPENBLAS_NUM_THREADS": "1"}}
    with hoplo.init(address=parser.parse_args().address, runtime_env=threads):
        print(f"synchronous: each step waits for all {WORKERS} workers")
        train(WORKERS)
        print("asynchronous: each step takes the first 2")
        train(2)
