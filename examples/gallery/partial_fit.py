"""NumPy and scikit-learn only: digits, augmented in worker processes, learnt by `partial_fit`.

No deep-learning framework is needed. Model and pipeline are pickled into one file; a killed run continues to the
same coefficients, bit for bit.

    pip install . scikit-learn
    python examples/gallery/partial_fit.py --steps 200 --state partial_fit.pickle

Data: scikit-learn's digits, of the UCI repository (CC BY 4.0).
"""

from __future__ import annotations

import argparse
import hashlib
import pickle
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier

import tundish as td

HELD_OUT = 297


# %% One element: a digit, moved by a pixel and with noise. `rng` is this element's own.
def augment(element: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Move an image of 8 x 8 and add noise."""
    image = np.roll(element["image"], rng.integers(-1, 2, size=2), axis=(0, 1))
    return {"x": (image + rng.normal(0, 0.05, image.shape)).ravel(), "y": element["label"]}


# %% The pipeline: arrays in memory, which exist once for all workers.
def data(images: np.ndarray, labels: np.ndarray, workers: int) -> td.Dataset:
    """Batches of 64 digits, without end."""
    return (
        td.Dataset.from_tensor_slices({"image": images, "label": labels})
        .shuffle(None, seed=1)
        .repeat()
        .map(augment, seed=1)
        .batch(64)
        .with_options(td.Options(workers=workers))
    )


# %% The loop.
def main(arguments: list[str] | None = None) -> None:
    """Fit, and continue from the file if there is one."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--state", type=Path, default=Path("partial_fit.pickle"))
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args(arguments)

    digits = load_digits()
    images, labels = digits.images / 16, digits.target
    model = SGDClassifier(random_state=0)
    step = 0
    with iter(data(images[HELD_OUT:], labels[HELD_OUT:], args.workers)) as batches:
        if args.state.exists():
            saved = pickle.loads(args.state.read_bytes())
            model, step = saved["model"], saved["step"]
            batches.load_state_dict(saved["data"])
            print(f"continuing after step {step}")
        while step < args.steps:
            batch = next(batches)
            model.partial_fit(batch["x"], batch["y"], classes=np.arange(10))
            step += 1
            print(f"step {step}", flush=True)
            if step % 5 == 0:
                saved = {"model": model, "step": step, "data": batches.state_dict()}
                new = args.state.with_suffix(".new")
                new.write_bytes(pickle.dumps(saved))
                new.replace(args.state)  # whole at any instant: the old one or the new one

    right = model.score(images[:HELD_OUT].reshape(HELD_OUT, -1), labels[:HELD_OUT])
    weights = hashlib.sha256(model.coef_.tobytes() + model.intercept_.tobytes()).hexdigest()
    print(f"{right:.1%} right, weights {weights[:16]}")


# %% Run it.
if __name__ == "__main__":
    main()
