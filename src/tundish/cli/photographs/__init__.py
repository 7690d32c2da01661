"""Six real photographs, and what a training pipeline does to them.

Where they are from and under which licence stands beside them, in ``README.md``.
"""

from __future__ import annotations

import hashlib
import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BATCH", "CROP", "PATHS", "PATTERN", "digest", "load", "without_transport"]

CROP = 224
BATCH = 64
FOLDER = Path(__file__).parent
PATTERN = str(FOLDER / "*.jpg")
PATHS = sorted(map(str, FOLDER.glob("*.jpg")))


def load(path: str, rng: np.random.Generator) -> dict[str, Any]:
    """Decode a photograph, cut a random square out of it, and flip every other one.

    Returns
    -------
    dict
        ``image``, uint8 of shape (224, 224, 3), and ``name``.
    """
    with Image.open(path) as file:
        pixels = np.asarray(file)
    height, width, _ = pixels.shape
    top, left = rng.integers(0, (height - CROP + 1, width - CROP + 1))
    crop = pixels[top : top + CROP, left : left + CROP]
    return {"image": crop[:, ::-1] if rng.random() < 0.5 else crop, "name": Path(path).stem}


def digest(batch: dict[str, Any]) -> bytes:
    """A digest of everything a batch holds."""
    images = batch["image"]
    text = f"{images.dtype} {images.shape} {list(batch['name'])}"
    return hashlib.blake2b(images.tobytes() + text.encode(), digest_size=16).digest()


def without_transport(index: int) -> Callable[[], int]:
    """Return the same work for `tundish.cli.independent`, whose batches are made and dropped."""
    paths = itertools.cycle(PATHS)
    rng = np.random.default_rng(index)
    images = np.empty((BATCH, CROP, CROP, 3), np.uint8)

    def make_batch() -> int:
        names = []
        for row in range(BATCH):
            element = load(next(paths), rng)
            images[row] = element["image"]
            names.append(element["name"])
        return BATCH

    return make_batch
