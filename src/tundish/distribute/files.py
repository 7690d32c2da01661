"""A plan whose files are divided over processes before they are read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tundish.loader.operators.asserting import IgnoreErrors
from tundish.loader.operators.batching import Batch, Unbatch
from tundish.loader.operators.costing import Cost
from tundish.loader.operators.counting import FromList
from tundish.loader.operators.elementwise import Filter, FlatMap, Map
from tundish.loader.operators.grouping import Groups
from tundish.loader.operators.mixing import Sample
from tundish.loader.operators.order import Concatenate, Repeat, Shard, Shuffle, Skip, Take
from tundish.loader.operators.packing import Pack
from tundish.loader.operators.padding import Gathering
from tundish.loader.operators.rebatching import Rebatch
from tundish.loader.operators.sources import Files, Slices
from tundish.loader.operators.storing import Cache
from tundish.loader.plan.node import walk
from tundish.loader.plan.rebuilding import other_inputs
from tundish.loader.protocols.operator import Passing, Unary

if TYPE_CHECKING:
    from tundish.loader.protocols.operator import Operator

__all__ = ["NoFilesError", "by_files"]

_EACH_ELEMENT_ONCE = (
    Map,
    Filter,
    FlatMap,
    Shuffle,
    Repeat,
    Passing,
    Batch,
    Unbatch,
    Rebatch,
    Gathering,
    Cost,
    Pack,
    Groups,
    Cache,
    IgnoreErrors,
    Concatenate,
    Sample,
)
"""What may stand above the files: over the parts of all processes it gives what it gives over the whole,
in another order. Operators that count elements, number them or compare them do not."""

_ORDERING = (Shuffle, Repeat, Passing, Map, Filter)
"""What may stand between a list of files and its reader, and does not mind which files it gets."""

_CHOOSING = (Take, Skip, Shard)


class NoFilesError(ValueError):
    """Why a plan cannot be divided by files."""


def by_files(root: Operator, count: int, index: int) -> Operator:
    """The plan over every `count`-th file, from the `index`-th on.

    The list is divided below any shuffle of it, so files are disjoint whatever seeds there are.

    Raises
    ------
    NoFilesError
        There is no list of files, it is too short, or an operator above is not one that each
        process can run on its own files.
    """
    done: dict[int, Operator] = {}

    def rebuilt(node: Operator) -> Operator:
        if id(node) not in done:
            done[id(node)] = _divided(node)
        return done[id(node)]

    def _divided(node: Operator) -> Operator:
        if isinstance(node, FlatMap) and _is_list(node.up):
            return replace(node, up=_share_of_files(node.up, node, count, index))
        if not node.inputs:
            raise NoFilesError(
                f"{node.label} is no list of files that a reader is given: begin with list_files, or "
                "with a dataset of files, or use the policy DATA"
            )
        if not isinstance(node, _EACH_ELEMENT_ONCE):
            raise NoFilesError(
                f"{node.label} would see the elements of one process only, and give others than over all"
            )
        return replace(node, **other_inputs(node, rebuilt))

    return rebuilt(root)


def _is_list(node: Operator) -> bool:
    while isinstance(node, (*_ORDERING, *_CHOOSING)):
        node = node.up
    if isinstance(node, Slices):
        array = node.arrays
        return getattr(array, "ndim", 0) == 1 and (
            array.dtype.kind in "US" or all(isinstance(x, (str, bytes)) for x in array)
        )
    if isinstance(node, FromList):
        return all(isinstance(leaf, (str, bytes)) for leaves, _ in node.elements for leaf in leaves)
    return isinstance(node, Files)


def _share_of_files(node: Operator, reader: Operator, count: int, index: int) -> Operator:
    if isinstance(node, _ORDERING):
        assert isinstance(node, Unary)
        return replace(node, up=_share_of_files(node.up, reader, count, index))
    for below in walk(node):
        if below.seedless:
            raise NoFilesError(
                f"{node.label} chooses from a list of files whose {below.label} has no seed: each process "
                "would choose from another order. Give it a seed"
            )
    have = node.cardinality
    if 0 <= have < count:
        raise NoFilesError(
            f"{reader.label} reads {have} file(s), which cannot be divided over {count} processes"
        )
    return Shard(node, count, index)
