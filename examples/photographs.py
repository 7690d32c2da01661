"""Photographs, decoded and cut in two worker processes; stopped and gone on with in the middle.

Run it twice: the second run goes on where the first one stopped. Any folder of JPEGs will do:
``python examples/photographs.py 'photos/*/*.jpg'``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import tundish as td
from tundish.cli.photographs import PATTERN

STATE = Path("photographs-state.json")


def load(path: str, rng: np.random.Generator) -> dict[str, Any]:
    """Any Python; it may hold the GIL. `rng` is this element's own, whoever computes it."""
    with Image.open(path) as file:
        pixels = np.asarray(file)
    top, left = rng.integers(0, (pixels.shape[0] - 223, pixels.shape[1] - 223))
    return {"image": pixels[top : top + 224, left : left + 224], "name": Path(path).stem}


def data(pattern: str = PATTERN) -> td.Dataset:
    """The pipeline; ``tundish inspect examples/photographs.py:data`` shows it."""
    return (
        td.Dataset.list_files(pattern, shuffle=False)
        .repeat(40)
        .shuffle(None, seed=1)
        .map(load, num_parallel_calls=2, seed=1)
        .batch(16, drop_remainder=True)
    )


def main() -> None:
    """Do ten steps, then stop as if the machine was needed for something else."""
    with iter(data(*sys.argv[1:])) as batches:
        if batches.restore(STATE, missing_ok=True):
            print("going on where the last run stopped")
        for step, batch in enumerate(batches):
            print(step, batch["image"].shape, batch["name"][:3])
            if step == 9:
                batches.save(STATE)
                return
    STATE.unlink(missing_ok=True)
    print("all done")


if __name__ == "__main__":
    main()
