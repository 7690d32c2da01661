"""Division of a plan by files, before they are read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tundish.loader.operators.choosing import Shard
from tundish.loader.plan.node import walk
from tundish.loader.plan.rebuilding import other_inputs
from tundish.loader.protocols.operator import Unary
from tundish.loader.run.evaluating.ranges import over

if TYPE_CHECKING:
    from tundish.loader.protocols.operator import Operator


class NoFilesError(ValueError):
    """A plan cannot be divided by files, with the reason."""


def by_files(root: Operator, count: int, index: int) -> Operator:
    """Return the plan over every `count`-th file, from the `index`-th on, or over units of its own after a unit shuffle.

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
        if node.deals:
            return Shard(node, count, index)
        if node.expands and _is_list(node.inputs[0]):
            return over(node, node.inputs[0], _share_of_files(node.inputs[0], node, count, index))
        if not node.inputs:
            raise NoFilesError(
                f"{node.label} is not a list of files for a reader: begin with list_files, or "
                "with a dataset of files, or use the policy DATA"
            )
        if not node.distributive:
            raise NoFilesError(
                f"{node.label} would see the elements of one process only, and give others than over all"
            )
        return replace(node, **other_inputs(node, rebuilt))

    return rebuilt(root)


def _is_list(node: Operator) -> bool:
    while _takes_any(node) or (node.choosing and node.share is None):
        node = node.inputs[0]
    return node.gives_paths


def _takes_any(node: Operator) -> bool:
    """Return True if a node between a list of files and its reader works equally on any part of the list."""
    return node.elementwise or (node.choosing and node.distributive)


def _share_of_files(node: Operator, reader: Operator, count: int, index: int) -> Operator:
    if _takes_any(node):
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
