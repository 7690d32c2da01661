"""A hash of rows that does not depend on their order, and is wrong when one is lost, doubled or changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

ODD = np.uint64(0x9E3779B97F4A7C15)


def mixed(values: np.ndarray) -> np.ndarray:
    """Scramble 64-bit numbers (splitmix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def row_hashes(array: np.ndarray) -> np.ndarray:
    """One number for each row of an array: of all its bytes and their places."""
    rows = np.ascontiguousarray(array).reshape(len(array), -1).view(np.uint8)
    width = -rows.shape[1] % 8
    padded = np.pad(rows, ((0, 0), (0, width))) if width else rows
    words = np.ascontiguousarray(padded).view(np.uint64)
    places = mixed(np.arange(1, words.shape[1] + 1, dtype=np.uint64) * ODD) | np.uint64(1)
    return (
        np.array([mixed(row * places).sum(dtype=np.uint64) for row in words])
        if len(words) * 64 < words.size
        else (mixed(words * places).sum(axis=1, dtype=np.uint64))
    )


def plain(batch: Any) -> Any:
    """Convert a batch, a dict or tuple of tensors or arrays, to an array or a dict of arrays."""
    if isinstance(batch, dict):
        if len(batch) == 1:
            return plain(next(iter(batch.values())))
        return {name: plain(value) for name, value in batch.items()}
    if isinstance(batch, (tuple, list)) and len(batch) == 1:
        return plain(batch[0])
    return np.asarray(batch)


def size(batch: Any) -> int:
    """Return the number of rows of a batch."""
    while isinstance(batch, (dict, tuple, list)):
        batch = next(iter(batch.values())) if isinstance(batch, dict) else batch[0]
    return len(batch)


def multiset(batches: Iterable[Any]) -> tuple[int, int]:
    """Count the rows of batches and add up their hashes."""
    count, total = 0, np.uint64(0)
    with np.errstate(over="ignore"):
        for batch in batches:
            given = plain(batch)
            columns = given if isinstance(given, dict) else {"": given}
            hashes = np.zeros(len(next(iter(columns.values()))), np.uint64)
            for place, name in enumerate(sorted(columns)):
                hashes += row_hashes(columns[name]) * np.uint64(2 * place + 1)
            count += len(hashes)
            total += mixed(hashes).sum(dtype=np.uint64)
    return count, int(total)
