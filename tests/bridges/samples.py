"""Functions for workers, which would import a framework with the module of a test."""

from __future__ import annotations

from typing import Any

import numpy as np


def sample(i: int) -> dict[str, Any]:
    return {"x": np.full((3, 2), i, np.float32), "name": str(i), "raw": b"b", "ok": i > 1}


def large(i: int) -> dict[str, Any]:
    return {"x": np.full((128, 1024), i, np.float32), "name": str(i)}


def ten_times(batch: dict[str, Any]) -> dict[str, Any]:
    return {"x": batch["x"] * 10, "s": batch["s"]}


def point(i: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    x = rng.normal(size=2).astype(np.float32)
    return x, np.array([3 * x[0] - x[1]], np.float32)
