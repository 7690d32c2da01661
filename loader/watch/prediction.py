"""Predictions of what a change of a plan would give: the change as data, the number, and what it rests on.

What changes only how a plan is run (the number of workers, the memory budget) is none of these: it shows nowhere by
the first law. No change may add, lose or alter an element, nor make epochs alike that differed.
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
    """An operator comes before another, upstream.

    Attributes
    ----------
    name, before : str
        The operator, and the first of those that it passes.
    reorders : bool
        Whether the same elements come in another order: a shuffle that passes a filter is over other positions.
    assumes : str
        What has to be true of the functions, in words; "" where nothing has.
    """

    name: str
    before: str
    reorders: bool = False
    assumes: str = ""


@dataclass(frozen=True)
class KeepAfter:
    """A cache or a snapshot comes after an operator.

    Attributes
    ----------
    after : str
        The operator.
    shuffle : str
        A shuffle that moves to right after what is kept, so that each epoch is shuffled anew; "" where there is none.
    reorders : bool
        Whether the same elements come in another order.
    assumes : str
        What has to be true of the functions, in words; "" where nothing has.
    complete : bool
        Whether it has to be a snapshot that is complete: something permutes what is kept.
    """

    after: str
    shuffle: str = ""
    reorders: bool = False
    assumes: str = ""
    complete: bool = False


@dataclass(frozen=True)
class BatchedCall:
    """A function is called for many rows at once.

    Attributes
    ----------
    name : str
        The map.
    rows : int
        How many.
    reorders : bool
        False: the order stays.
    assumes : str
        What has to be true of the function, in words.
    """

    name: str
    rows: int
    reorders: bool = False
    assumes: str = ""


Hint: TypeAlias = Move | KeepAfter | BatchedCall


WORTH = 1.05
"""What changes less is not offered."""

MODEL_SPREAD = 0.05
"""How far the model is off where nothing else is."""

RATE = "elements/s"
TO_RESTORE = "s to restore"
_UPPER = 0.92  # of a bucket's upper end: about its middle


@dataclass(frozen=True)
class Prediction:
    """The prediction of what a change would give.

    Attributes
    ----------
    what : str
        The change.
    now, then : float
        As it is, and as it would be.
    basis : str
        What the prediction rests on, and what it takes for granted.
    spread : float
        How far `then` may be off, as a share of it.
    unit : str
        Of `now` and `then`.
    hint : Move, KeepAfter, BatchedCall or None
        The change as data, where it is one of the plan; None: it changes only how the plan is run.
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
        """The change, and what it would give, in one line."""
        off = f"(±{share_text(min(max(self.spread, 0.01), 1.0))})"
        if self.unit == TO_RESTORE:
            return f"{self.what}: a restart takes {seconds_text(self.now - self.then)} less {off}"
        return f"{self.what}: {number_text(self.now)} -> {number_text(self.then)} {self.unit} {off}"

    def __str__(self) -> str:
        return f"{self.change}\n    {self.basis}"


def noise_of(stats: Stats, model: float = MODEL_SPREAD) -> float:
    """Return how far a mean of so few tasks may be off, and the model with it; as a share.

    Parameters
    ----------
    stats : Stats
        What was measured.
    model : float
        How far the model may be off.
    """
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
    return min(1.0, math.hypot(model, 2 * math.sqrt(square), few))
