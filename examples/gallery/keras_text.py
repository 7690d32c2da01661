"""Keras: which package of the standard library a line of Python is from; any backend.

The pipeline gives numpy arrays, which Keras takes with TensorFlow, JAX or torch behind it (`KERAS_BACKEND`). The
weights, the optimizer's variables and the pipeline's state are saved in one file after a step, so that none is ahead.

    pip install . keras tensorflow
    python examples/gallery/keras_text.py --steps 40 --state keras_text.npz

Data: Python's standard library (PSF licence).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sysconfig
import zlib
from pathlib import Path
from typing import Any

import keras
import numpy as np

import tundish as td

PACKAGES = ["asyncio", "email", "unittest", "xml"]
BUCKETS, LENGTH = 2048, 48


# %% One element: the line's groups of three letters as numbers, and which package it is from.
def features(line: str, label: np.integer) -> dict[str, Any]:
    """Hash the groups of three letters; 0 is padding."""
    groups = [line[at : at + 3].encode() for at in range(min(len(line) - 2, LENGTH))]
    numbers = [1 + zlib.crc32(group) % (BUCKETS - 1) for group in groups]
    return {"x": np.array(numbers + [0] * (LENGTH - len(numbers)), np.int32), "y": label}


# %% The pipeline: a shuffled reader for each package, and the same share of each.
def lines(package: str, label: int) -> td.Dataset:
    """All lines of a package that say something, without end."""
    files = sorted(Path(sysconfig.get_paths()["stdlib"], package).rglob("*.py"))
    reader = td.TextLineDataset(files, encoding="utf-8").shuffle(None, seed=1).repeat()
    return reader.filter(lambda line: len(line) > 20).map(lambda line: (line, label))


def data(workers: int) -> td.Dataset:
    """Batches of 64 lines."""
    sources = [lines(package, label) for label, package in enumerate(PACKAGES)]
    mixed = td.Dataset.sample_from_datasets(sources, seed=2)
    return mixed.map(features).batch(64).with_options(td.Options(workers=workers))


# %% One file for all: variables as arrays, the pipeline's state as JSON.
def save(path: Path, model: keras.Model, state: dict[str, Any]) -> None:
    """Write a file that is the old one or the new one at any instant."""
    variables = [np.asarray(v) for v in [*model.variables, *model.optimizer.variables]]
    new = path.with_suffix(".new.npz")
    np.savez(new, *variables, data=json.dumps(state))
    new.replace(path)


def restore(path: Path, model: keras.Model) -> dict[str, Any]:
    """Set the variables to what was saved; give the pipeline's state."""
    with np.load(path) as saved:
        for number, variable in enumerate([*model.variables, *model.optimizer.variables]):
            variable.assign(saved[f"arr_{number}"])
        return json.loads(str(saved["data"]))


# %% The loop.
def main(arguments: list[str] | None = None) -> None:
    """Train, and continue from the file if there is one."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--state", type=Path, default=Path("keras_text.npz"))
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args(arguments)

    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.layers.Input((LENGTH,), dtype="int32"),
            keras.layers.Embedding(BUCKETS, 16),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(len(PACKAGES)),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss)
    model.optimizer.build(model.trainable_variables)
    with iter(data(args.workers)) as batches:
        if args.state.exists():
            batches.load_state_dict(restore(args.state, model))
            print(f"continuing after step {int(model.optimizer.iterations)}")
        for step in range(int(model.optimizer.iterations) + 1, args.steps + 1):
            batch = next(batches)
            found = model.train_on_batch(batch["x"], batch["y"])
            print(f"step {step} loss {float(found):.4f}", flush=True)
            if step % 5 == 0:
                save(args.state, model, batches.state_dict())

    raw = b"".join(np.asarray(variable).tobytes() for variable in model.variables)
    print(f"weights {hashlib.sha256(raw).hexdigest()[:16]}")


# %% Run it.
if __name__ == "__main__":
    main()
