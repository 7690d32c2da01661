"""torch.multinomial's two ways of drawing from weights, given the uniform numbers."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

__all__ = ["multinomial"]

_MOST_WEIGHTS = 2**24


def multinomial(
    weights: np.ndarray, count: int, replacement: bool, uniform: Callable[[int], np.ndarray]
) -> np.ndarray:
    """Indices of `weights`, each as likely as its weight.

    With replacement, every draw is looked up in the cumulative weights. Without, or for one draw
    only, every index waits an exponential time divided by its weight, and the first win.

    Parameters
    ----------
    weights : (n,) float64 ndarray
        Not below 0, finite, with a sum above 0.
    count : int
        How many draws.
    replacement : bool
        Whether an index can come more than once.
    uniform : callable
        Gives the next k float64 in [0, 1): taken are `count` with replacement, else n.

    Returns
    -------
    (count,) int64 ndarray

    Raises
    ------
    RuntimeError
        What torch refuses, with the same type.

    Notes
    -----
    Without replacement, indices of weight 0 come last; among themselves they come by number here,
    and in the order that a sort happens to leave in torch.
    """
    _check(weights, count, replacement)
    if replacement and count > 1:
        cumulative = np.cumsum(weights)
        cumulative /= cumulative[-1]
        return np.searchsorted(cumulative, uniform(count), side="left").astype(np.int64, copy=False)
    # numpy's own log1p differs from the C library's, which torch calls, in the last bit.
    waits = -np.array(list(map(math.log1p, (-uniform(len(weights))).tolist())))
    with np.errstate(divide="ignore", invalid="ignore"):  # a wait of 0 comes once in 2**53
        chances = weights / waits
    return np.argsort(-chances, kind="stable")[:count].astype(np.int64, copy=False)


def _check(weights: np.ndarray, count: int, replacement: bool) -> None:
    if weights.ndim != 1:
        raise RuntimeError(f"weights must have one dimension, not shape {weights.shape}")
    if count <= 0:
        raise RuntimeError(f"the number of samples must be positive, not {count}")
    if not replacement and count > len(weights):
        raise RuntimeError(f"{count} samples without replacement need {count} weights or more")
    if len(weights) > _MOST_WEIGHTS:
        raise RuntimeError(f"at most {_MOST_WEIGHTS} weights can be drawn from")
    wrong = np.flatnonzero(~((weights >= 0) & np.isfinite(weights)))
    if len(wrong):
        at = int(wrong[0])
        raise RuntimeError(f"weight {at} is {weights[at]}: weights must be finite and not below 0")
    if not weights.any():
        raise RuntimeError("the weights must have a sum above 0")
