"""Predictions of what a change of a plan would gain: the change as data, the numbers, and the assumptions.

Changes of only how a plan is run (the number of workers, the memory budget) have no data, since they do not affect
results. No change may add, lose or alter an element, nor make epochs equal that differed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from tundish.loader.watch.wording import number_text, seconds_text, share_text

if TYPE_CHECKING:
    from tundish.loader.watch.stats import Stats


@dataclass(frozen=True)
class Move:
    """Moves an operator upstream, before another.

    Attributes
    ----------
    name, before : str
        The operator, and the first of those that it moves past.
    reorders : bool
        True if the same elements come in another order: a shuffle moved past a filter permutes other positions.
    assumes : str
        What is assumed about the functions, in words; "" for nothing.
    """

    name: str
    before: str
    reorders: bool = False
    assumes: str = ""


@dataclass(frozen=True)
class KeepAfter:
    """Inserts a cache or a snapshot after an operator.

    Attributes
    ----------
    after : str
        The operator.
    shuffle : str
        A shuffle that moves to just after the cache, so that each epoch is shuffled anew; "" if there is none.
    reorders : bool
        True if the same elements come in another order.
    assumes : str
        What is assumed about the functions, in words; "" for nothing.
    complete : bool
        True if it has to be a complete snapshot, because a permutation follows it.
    """

    after: str
    shuffle: str = ""
    reorders: bool = False
    assumes: str = ""
    complete: bool = False


@dataclass(frozen=True)
class BatchedCall:
    """Calls a function for many rows at once.

    Attributes
    ----------
    name : str
        The map.
    rows : int
        The number of rows.
    reorders : bool
        False: the order does not change.
    assumes : str
        What is assumed about the function, in words.
    """

    name: str
    rows: int
    reorders: bool = False
    assumes: str = ""


Hint: TypeAlias = Move | KeepAfter | BatchedCall


WORTH = 1.05
"""The least gain for which a change is offered."""

MODEL_SPREAD = 0.05
"""The model's error if nothing else is off."""

RATE = "elements/s"
TO_RESTORE = "s to restore"
_UPPER = 0.92  # of a bucket's upper end: about its middle


@dataclass(frozen=True)
class Prediction:
    """The predicted gain of a change.

    Attributes
    ----------
    what : str
        The change.
    now, then : float
        The rate before and after the change.
    basis : str
        What the prediction is based on, and what it assumes.
    spread : float
        The uncertainty of `then`, as a share of it.
    unit : str
        The unit of `now` and `then`.
    hint : Move, KeepAfter, BatchedCall or None
        The change as data, if it is a change of the plan; None if it only affects how the plan is run.
    """

    what: str
    now: float
    then: float
    basis: str
    spread: float = MODEL_SPREAD
    unit: str = RATE
    hint: Hint | None = None

    @property
    def gain(self) -> float:
        """The rate after the change over the rate now."""
        return self.then / self.now if self.now else math.inf

    @property
    def change(self) -> str:
        """The change and its effect, in one line."""
        off = f"(±{share_text(min(max(self.spread, 0.01), 1.0))})"
        if self.unit == TO_RESTORE:
            return f"{self.what}: a restart takes {seconds_text(self.now - self.then)} less {off}"
        return f"{self.what}: {number_text(self.now)} -> {number_text(self.then)} {self.unit} {off}"

    def __str__(self) -> str:
        return f"{self.change}\n    {self.basis}"


def noise_of(stats: Stats) -> float:
    """Return the relative uncertainty of a mean over few tasks, and of the model."""
    square = 0.0
    busy_s = sum(stage.busy_s for stage in stats.stages) or 1.0
    for stage in stats.stages:
        time = stage.time
        if time.count > 1 and time.mean_s:
            squares = sum(count * (upper * _UPPER) ** 2 for upper, count in time.buckets())
            variance = max(0.0, squares / time.count - time.mean_s**2)
            off = math.sqrt(variance / time.count) / time.mean_s
            square += (off * stage.busy_s / busy_s) ** 2
    few = 1 / max(1, stats.elements + stats.errors)
    return min(1.0, math.hypot(MODEL_SPREAD, 2 * math.sqrt(square), few))
