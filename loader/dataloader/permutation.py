"""torch's drawing algorithms: the two shuffles of ``range(n)``, and multinomial draws.

A Fisher-Yates shuffle is a chain: step i swaps place i with a drawn place, which later steps may
draw again. Within a block of steps the chain is short, so a block is computed at once: its steps are
sorted by the drawn place, each finds the previous step with the same place, and steps that depend
on a place of the block itself follow pointers to the position of its value at the block's beginning. Extra
memory is that of a block; the speed is that of torch's own loop.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

# From this length on torch shuffles by `inside_out`, below by `swapping`.
HUGE = (2**32 - 1) // 20
_BLOCK = 2**15  # the fastest for n from 1e3 to 1e7: its sort stays in the cache


def swapping(n: int, draw: Callable[[int], np.ndarray], block: int = _BLOCK) -> np.ndarray:
    """Shuffle from the left: step i swaps place i with place ``i + draw % (n - i)``.

    Parameters
    ----------
    n : int
        The number of places.
    draw : callable
        Returns the next k random numbers below 2**32, as uint64; n - 1 are drawn in total.
    block : int
        The number of steps computed at once; the result does not depend on it.

    Returns
    -------
    (n,) int64 ndarray

    Examples
    --------
    >>> swapping(4, lambda k: np.array([1, 1, 1], np.uint64)[:k]).tolist()
    [1, 2, 3, 0]
    """
    values = np.arange(n, dtype=np.int64)
    for start in range(0, n - 1, block):
        count = min(block, n - 1 - start)
        steps = np.arange(count, dtype=np.uint64)
        drawn = draw(count) % (np.uint64(n - start) - steps) + steps
        step, place, again = _by_place(drawn, steps)
        # From here on a place, and a step, is counted from the block's start.
        inner = int(np.searchsorted(place, count))
        ahead = np.append(step[:inner] < place[:inner], False)  # False: a step that stays in place
        # The last step that drew a place before the place's own step gave it the value it then has;
        # the last alone is assigned, as numpy does not promise which of several would stay.
        giver = np.flatnonzero(ahead[:-1] & ~(again[1 : inner + 1] & ahead[1:]))
        root = np.arange(count)
        root[place[giver]] = step[giver]
        root = _followed(root)
        origin = place.copy()
        repeated = np.flatnonzero(again[:-1])
        origin[repeated] = root[step[repeated - 1]]
        final = np.flatnonzero(~again[inner + 1 :]) + inner  # the last on each place to the right
        left_there = values[root[step[final]] + start]
        values[step + start] = values[origin + start]
        values[place[final] + start] = left_there
    return values


def inside_out(n: int, draw: Callable[[int], np.ndarray], block: int = _BLOCK) -> np.ndarray:
    """Grow a shuffle: step i moves the value at ``draw % (i + 1)`` to place i and puts i there.

    Parameters
    ----------
    n : int
        The number of places.
    draw : callable
        Returns the next k random numbers below 2**64, as uint64; n are drawn in total.
    block : int
        The number of steps computed at once; the result does not depend on it.

    Returns
    -------
    (n,) int64 ndarray

    Examples
    --------
    >>> inside_out(3, lambda k: np.array([0, 0, 1], np.uint64)[:k]).tolist()
    [1, 2, 0]
    """
    values = np.empty(n, np.int64)
    for start in range(0, n, block):
        count = min(block, n - start)
        steps = np.arange(count, dtype=np.uint64)
        drawn = draw(count) % (steps + np.uint64(start + 1))
        step, place, again = _by_place(drawn, steps)
        first = ~again[:-1]
        taken = np.empty(count, np.int64)  # what each step moves, by step
        taken[step[~first]] = step[np.flatnonzero(~first) - 1] + start
        old = first & (place < start)
        taken[step[old]] = values[place[old]]
        new = first & (place >= start)  # moves what its place's own step put there, or is that step
        taken[step[new]] = place[new]
        root = np.arange(count)
        root[step[new]] = place[new] - start
        taken = taken[_followed(root)]
        values[start : start + count] = taken
        last = ~again[1:]
        values[place[last]] = step[last] + start
    return values


def _by_place(drawn: np.ndarray, steps: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a block's steps sorted by (place drawn, step).

    Returns
    -------
    step, place : (k,) int64 ndarray
    again : (k + 1,) bool ndarray
        True if the place is that of the step before; False at both ends.
    """
    bits = len(steps).bit_length()
    keys = ((drawn << np.uint64(bits)) | steps).view(np.int64)
    keys.sort()
    place = keys >> bits
    again = np.zeros(len(steps) + 1, np.bool_)
    np.equal(place[1:], place[:-1], out=again[1:-1])
    return keys & ((1 << bits) - 1), place, again


def _followed(parent: np.ndarray) -> np.ndarray:
    """Return each node's root; a root is its own parent."""
    while True:
        further = parent[parent]
        if np.array_equal(further, parent):
            return parent
        parent = further


_MOST_WEIGHTS = 2**24


def multinomial(
    weights: np.ndarray, count: int, replacement: bool, uniform: Callable[[int], np.ndarray]
) -> np.ndarray:
    """Draw indices with probabilities proportional to `weights`.

    With replacement, every draw is looked up in the cumulative weights. Without, or for one draw
    only, every index waits an exponential time divided by its weight, and the first ones win.

    Parameters
    ----------
    weights : (n,) float64 ndarray
        Not below 0, finite, with a sum above 0.
    count : int
        The number of draws.
    replacement : bool
        True if an index may come more than once.
    uniform : callable
        Returns the next k float64 in [0, 1); `count` are drawn with replacement, else n.

    Returns
    -------
    (count,) int64 ndarray

    Raises
    ------
    RuntimeError
        What torch refuses, with the same type.

    Notes
    -----
    Without replacement, indices of weight 0 come last, ordered by number here,
    and in torch in the order that its sort happens to leave.
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
