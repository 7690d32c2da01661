"""The reference: the meaning of every operator, written as plainly as possible.

`Model` has the methods of `Dataset`, and generators over generators as its engine: no workers,
no look-ahead, no state. It shares no code with `tundish.loader`, so that where the two differ,
one of them is wrong. An element whose function failed is an element too, and rides to where it
would have been delivered. `basic` has the engine; each other file is one family of operators.
"""

from __future__ import annotations

from tundish.testing.model.asserting import AssertingModel
from tundish.testing.model.basic import Basic
from tundish.testing.model.grouping import GroupingModel
from tundish.testing.model.measuring import MeasuringModel
from tundish.testing.model.mixing import MixingModel
from tundish.testing.model.packing import PackingModel
from tundish.testing.model.padding import PaddingModel
from tundish.testing.model.reading import ReadingModel
from tundish.testing.model.rebatching import RebatchingModel
from tundish.testing.model.resampling import ResamplingModel
from tundish.testing.model.scanning import ScanningModel
from tundish.testing.model.sorting import SortingModel
from tundish.testing.model.storing import StoringModel
from tundish.testing.model.tables import TablesModel
from tundish.testing.model.taking import TakingModel
from tundish.testing.model.uniqueness import UniquenessModel
from tundish.testing.model.units import UnitsModel

__all__ = ["Model"]


class Model(
    RebatchingModel,
    PackingModel,
    ScanningModel,
    UniquenessModel,
    ResamplingModel,
    AssertingModel,
    MixingModel,
    PaddingModel,
    TakingModel,
    GroupingModel,
    SortingModel,
    StoringModel,
    UnitsModel,
    ReadingModel,
    TablesModel,
    MeasuringModel,
    Basic,
):
    """A dataset as a function from a pass to its items.

    Examples
    --------
    >>> [str(outcome) for outcome in Model.range(5).map(lambda x: x * 2).batch(2).outcomes()]
    ['array([0, 2], int64, (2,))', 'array([4, 6], int64, (2,))', 'array([8], int64, (1,))']
    """
