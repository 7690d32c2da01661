"""The elements and errors that a dataset gives, in their order."""

from __future__ import annotations

from typing import Any

import numpy as np

from tundish import Dataset


def outcomes(ds: Dataset, workers: int = 0) -> list[Any]:
    """Return elements as lists or numbers, and errors."""
    found: list[Any] = []
    with ds.iterator(workers=workers) as it:
        while True:
            try:
                element = next(it)
            except StopIteration:
                return found
            except Exception as error:  # noqa: BLE001 - it is what is looked at
                found.append(error)
            else:
                found.append(element.tolist() if isinstance(element, np.ndarray) else element)
