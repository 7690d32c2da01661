"""The reference: the meaning of every operator, written as plainly as possible.

`Model` has the methods of `Dataset`, and generators over generators as its engine: no workers,
no look-ahead, no state. It shares no code with `tundish.loader`, so that where the two differ,
one of them is wrong. An element whose function failed is an element too, and rides to where it
would have been delivered. `basic` has the engine; each other file is one family of operators.
"""

from __future__ import annotations

from tundish.testing.model.asserting import Asserting
from tundish.testing.model.basic import Basic
from tundish.testing.model.grouping import Grouping
from tundish.testing.model.measuring import Measuring
from tundish.testing.model.mixing import Mixing
from tundish.testing.model.packing import Packing
from tundish.testing.model.padding import Padding
from tundish.testing.model.reading import Reading
from tundish.testing.model.rebatching import Rebatching
from tundish.testing.model.resampling import Resampling
from tundish.testing.model.scanning import Scanning
from tundish.testing.model.sorting import Sorting
from tundish.testing.model.storing import Storing
from tundish.testing.model.taking import Taking
from tundish.testing.model.uniqueness import Uniqueness
from tundish.testing.model.units import Units

__all__ = ["Model"]


class Model(
    Rebatching,
    Packing,
    Scanning,
    Uniqueness,
    Resampling,
    Asserting,
    Mixing,
    Padding,
    Taking,
    Grouping,
    Sorting,
    Storing,
    Units,
    Reading,
    Measuring,
    Basic,
):
    """A dataset as a function from a pass to its items.

    Examples
    --------
    >>> [str(outcome) for outcome in Model.range(5).map(lambda x: x * 2).batch(2).outcomes()]
    ['array([0, 2], int64, (2,))', 'array([4, 6], int64, (2,))', 'array([8], int64, (1,))']
    """
