"""Serves an ensemble: each batch goes to all models at once, and their majority is the answer.

    python examples/serve_ensemble.py [--address HOST:PORT]

Each model is an actor that has learned handwritten digits from a part of the images and pixels. A
batch is put once: all models get the same object, passed on from node to node in a cluster. The
vote is a sum of their votes (`hoplo.reduce`).
"""

import argparse
import time

import numpy as np
from sklearn.datasets import load_digits

import hoplo

MODELS, BATCHES = 6, 40


def data() -> tuple[np.ndarray, np.ndarray]:
    """1797 images of 8 x 8, in an order of their own, and which digit each shows."""
    images, digits = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(digits))
    return images[order] / 16, digits[order]


@hoplo.remote(num_cpus=0)
class Model:
    """Knows some images, and looks at some pixels: the nearest one that it knows says the digit."""

    def __init__(self, seed: int) -> None:
        random = np.random.default_rng(seed)
        images, digits = data()
        known = random.choice(1200, size=150, replace=False)
        self.pixels = random.choice(64, size=24, replace=False)
        self.images, self.digits = images[known][:, self.pixels], digits[known]

    def votes(self, images: np.ndarray) -> np.ndarray:
        """For each image a 1 at the digit that it shows, and 0 at the others."""
        far = ((images[:, None, self.pixels] - self.images) ** 2).sum(axis=2)
        return np.eye(10, dtype=int)[self.digits[far.argmin(axis=1)]]


def serve() -> float:
    """The accuracy of the votes on images that no model has seen."""
    models = [Model.remote(seed) for seed in range(MODELS)]
    images, digits = (part[1200:] for part in data())
    alone, together = [], []
    started = time.monotonic()
    for batch in np.array_split(np.arange(len(digits)), BATCHES):
        shared = hoplo.put(images[batch])
        votes = [model.votes.remote(shared) for model in models]
        vote = hoplo.get(hoplo.reduce(votes)).argmax(axis=1)
        together.append(np.mean(vote == digits[batch]))
        each = [one.argmax(axis=1) for one in hoplo.get(votes)]
        alone.append([np.mean(one == digits[batch]) for one in each])
        if len(together) % 10 == 0:
            print(f"  {len(together):2} batches  accuracy {np.mean(together):.1%}", flush=True)
    seconds = (time.monotonic() - started) / BATCHES
    print(f"one model alone: {np.mean(alone):.1%}")
    print(f"the vote of {MODELS}: {np.mean(together):.1%}, {1000 * seconds:.1f} ms a batch")
    return float(np.mean(together))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--address", help="of a cluster; without it, a node of its own")
    with hoplo.init(address=parser.parse_args().address):
        serve()
