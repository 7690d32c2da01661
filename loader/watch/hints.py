"""Changes of a plan that a verdict may offer, as data: a law applies each, and compares what is delivered.

What changes only how a plan is run (the number of workers, the memory budget) is none of these: it shows nowhere by
the first law. No change may add, lose or alter an element, nor make epochs alike that differed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["Hint", "Keep", "Move", "Together"]


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
class Keep:
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
    """

    after: str
    shuffle: str = ""
    reorders: bool = False
    assumes: str = ""


@dataclass(frozen=True)
class Together:
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


Hint: TypeAlias = Move | Keep | Together
