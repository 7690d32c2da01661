"""What was found of a feature: a list of values for each example, or nothing."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

__all__ = ["Lists", "Wanted", "joined_arrays", "splits_of"]


class Wanted(NamedTuple):
    """A list that is to be found.

    Attributes
    ----------
    key : bytes
        The feature's name.
    kind : numpy.dtype or type
        float32, int64, or `bytes`.
    dense : bool
        Whether an entry that says nothing counts as none at all, so that an earlier one of the same
        name is taken: tensorflow's rule for features of a fixed length.
    """

    key: bytes
    kind: Any
    dense: bool


class Lists(NamedTuple):
    """What was found.

    Attributes
    ----------
    counts : numpy.ndarray of shape (examples,), int64
        How many values each example has.
    present : numpy.ndarray of shape (examples,), bool
        Whether it has the feature at all.
    values : numpy.ndarray of shape (total,)
        Of all, one example behind the other; objects for `bytes`. Nobody else has it.
    """

    counts: np.ndarray
    present: np.ndarray
    values: np.ndarray


def splits_of(counts: np.ndarray) -> np.ndarray:
    """Where each list begins, and where the last ends."""
    splits = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=splits[1:])
    return splits


def joined_arrays(arrays: list[np.ndarray | None], kind: Any) -> Lists:
    """Of the values of one example after another; None where the feature is missing."""
    present = np.array([array is not None for array in arrays], bool)
    found = [array for array in arrays if array is not None]
    counts = np.zeros(len(arrays), np.int64)
    counts[present] = [len(array) for array in found]
    if len(found) == 1:
        values = found[0]
    elif found:
        values = np.concatenate(found)
    else:
        values = np.empty(0, object if kind is bytes else kind)
    return Lists(counts, present, values)
