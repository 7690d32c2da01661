"""Functions that workers find by name."""

from __future__ import annotations

from typing import Any

import numpy as np


def pictures(k: int) -> dict[str, Any]:
    """An element; the third has a nan and a negative number."""
    image = np.full((4, 4, 3), 0.5, np.float32)
    if k == 3:
        image[1, 2, 0], image[3, 3, 1] = np.nan, -0.25
    return {"image": image, "label": k, "views": (image[0], {"name": f"picture {k}"})}


def pair(k: int) -> tuple[Any, Any]:
    """A tuple of an array and a text."""
    return np.arange(k, k + 3), f"label {k}"
